"""Exit codes of both command lines, in one table (shown by `modeld --help` and `acp-bridge --help`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from shared.errors import (
    ArgumentInvalid,
    ConsentDeclined,
    ConversationBusy,
    ConversationNotFound,
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
from shared.text.arguments import UsageWrong
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

#: A command in a sentence.
_COMMAND = re.compile(r"`([^`]+)`")

MEANINGS: dict[int, str] = {
    OK: "done",
    FAILED: "failed; the line on stderr says why and what to do (of `doctor`: there is a problem)",
    USAGE: "the command line or a setting is wrong",
    NOT_RUNNING: "modeld is not running or cannot be reached",
    NOT_FOUND: "no such model, or no such conversation",
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
        ((LookupFailed, ConversationNotFound), NOT_FOUND),
        ((SlotError, SlotGenerationStale, QueueFull, WaitTimeout), REFUSED),
        ((ConsentDeclined, ConversationBusy, RemoteNotPicked), REFUSED),
        (DownloadError, DOWNLOAD),
    )
    return next((code for kinds, code in table if isinstance(error, kinds)), FAILED)


def ended(program: str, arguments: Sequence[str], work: Callable[[], int]) -> int:
    """The exit code of one command line: that of `work`, or of what it raised, which is one line on standard error.

    With `--json` it is a JSON object on standard output too: `{"error": {kind, message, fields, remedy, exit_code}}`.
    """
    odd = next((one for one in arguments if not is_text(one)), None)
    if odd is not None:
        sys.stderr.write(f"{program}: {odd!a} is not valid UTF-8: give the file or folder another name\n")
        return USAGE

    def failed(kind: str, message: str, code: int, **fields: Any) -> int:
        if "--json" in arguments:
            _write_json(_document(kind, message, code, fields), streams=arguments[:1] in (["chat"], ["run"]))
        if message:
            sys.stderr.write(f"{program}: {message}\n")
        return code

    try:
        return work()
    except ModeldError as error:
        return failed(error.kind, error.message, code_of(error), **error.data)
    except UsageWrong as error:
        sys.stderr.write(error.usage)
        return failed("usage", error.message, USAGE)
    except KeyboardInterrupt:
        return failed("interrupted", "", INTERRUPTED)
    except BrokenPipeError:
        raise  # the reader of our output has gone: `shared.text.console` ends this without a word
    except OSError as error:
        message = one_line(f"{error.filename or 'the system'}: {error.strerror or error}")
        return failed("system_error", message, FAILED, path=str(error.filename or ""), number=error.errno)
    except Exception as error:
        from shared.diagnosis.defect import frames, report

        failed("internal_error", "", FAILED, type=type(error).__name__)
        sys.stderr.write(frames(error))
        report(program, " ".join(arguments[:1]), error)
        return FAILED


def _document(kind: str, message: str, code: int, fields: dict[str, Any]) -> dict[str, Any]:
    """`remedy`: the command that the message names first, "" where it names none. Pure."""
    named = _COMMAND.search(message)
    remedy = named[1] if named is not None else ""
    return {"error": {"kind": kind, "message": message, "fields": fields, "remedy": remedy, "exit_code": code}}


def _write_json(document: dict[str, Any], *, streams: bool) -> None:
    """`streams`: as the last of many lines, each of which names its event."""
    import json  # only for a mistake

    whole = {"event": "error", **document} if streams else document
    text = json.dumps(whole, indent=None if streams else 2, ensure_ascii=True, default=str)
    sys.stdout.write(f"{text}\n")
