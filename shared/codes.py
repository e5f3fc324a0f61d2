"""Exit codes of both command lines, in one table (shown by `modeld --help` and `acp-bridge --help`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from shared.errors import (
    ArgumentInvalid,
    ConsentDeclined,
    ConversationBusy,
    DaemonError,
    DownloadError,
    InsufficientMemory,
    LookupFailed,
    ModeldError,
    ModelLoadFailed,
    NotOwner,
    QueueFull,
    RemoteNotPicked,
    SettingInvalid,
    SlotError,
    SlotGenerationStale,
    WaitTimeout,
)
from shared.text.shown import one_line
from shared.text.words import is_text

OK = 0
FAILED = 1
USAGE = 2
NOT_RUNNING = 3
NOT_FOUND = 4
REFUSED = 5
NO_MEMORY = 6
DOWNLOAD = 7
INTERRUPTED = 130

MEANINGS: dict[int, str] = {
    OK: "done",
    FAILED: "failed; the line on stderr says why and what to do (of `doctor`: there is a problem)",
    USAGE: "the command line or a setting is wrong",
    NOT_RUNNING: "modeld is not running or cannot be reached",
    NOT_FOUND: "no such model",
    REFUSED: "not allowed now (busy, another model active, in use, changed meanwhile, declined)",
    NO_MEMORY: "not enough memory",
    DOWNLOAD: "the model could not be fetched whole",
    INTERRUPTED: "interrupted",
}


def epilog() -> str:
    """The table as `--help` shows it."""
    return "exit codes:\n" + "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())


def code_of(error: ModeldError) -> int:
    """The exit code that tells this error to a script."""
    table: tuple[tuple[type[ModeldError] | tuple[type[ModeldError], ...], int], ...] = (
        (InsufficientMemory, NO_MEMORY),
        (ModelLoadFailed, FAILED),
        ((SettingInvalid, ArgumentInvalid), USAGE),
        ((DaemonError, NotOwner), NOT_RUNNING),
        (LookupFailed, NOT_FOUND),
        ((SlotError, SlotGenerationStale, QueueFull, WaitTimeout), REFUSED),
        ((ConsentDeclined, ConversationBusy, RemoteNotPicked), REFUSED),
        (DownloadError, DOWNLOAD),
    )
    return next((code for kinds, code in table if isinstance(error, kinds)), FAILED)


def ended(program: str, arguments: Sequence[str], work: Callable[[], int]) -> int:
    """The exit code of one command line: that of `work`, or of what it raised, which is one line on standard error."""
    odd = next((one for one in arguments if not is_text(one)), None)
    if odd is not None:
        sys.stderr.write(f"{program}: {odd!a} is not valid UTF-8: give the file or folder another name\n")
        return USAGE
    try:
        return work()
    except ModeldError as error:
        sys.stderr.write(f"{program}: {error.message}\n")
        return code_of(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        raise  # the reader of our output has gone: `shared.text.console` ends this without a word
    except OSError as error:
        message = one_line(f"{error.filename or 'the system'}: {error.strerror or error}")
        sys.stderr.write(f"{program}: {message}\n")
        return FAILED
    except Exception as error:
        from shared.diagnosis.defect import frames, report

        sys.stderr.write(frames(error))
        report(program, " ".join(arguments[:1]), error)
        return FAILED
