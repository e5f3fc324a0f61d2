"""Exit codes of both command lines, in one table (shown by `modeld --help` and `acp-bridge --help`)."""

from __future__ import annotations

from shared.errors import (
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
    SlotError,
    SlotGenerationStale,
    WaitTimeout,
)
from shared.settings import SettingInvalid

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
        (SettingInvalid, USAGE),
        ((DaemonError, NotOwner), NOT_RUNNING),
        (LookupFailed, NOT_FOUND),
        ((SlotError, SlotGenerationStale, QueueFull, WaitTimeout, ConsentDeclined, ConversationBusy), REFUSED),
        (DownloadError, DOWNLOAD),
    )
    return next((code for kinds, code in table if isinstance(error, kinds)), FAILED)
