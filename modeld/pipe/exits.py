"""Why a worker process ended, as exit codes: read by the daemon, written by the worker."""

from __future__ import annotations

import signal
import sys

from shared.errors import TemplateFailed

CLOSED = 0
#: What the interpreter's own watchdog uses when a chat template outlived its deadline.
TEMPLATE_DEADLINE = 1
OWNER_GONE = 3
OWNER_SILENT = 4
BAD_PROTOCOL = 5
ENGINE_FAULT = 70
#: Windows tells faults as status values from here on.
_WINDOWS_FAULTS = 0xC000_0000

TEMPLATE_TOO_SLOW = "the chat template took too long and was ended with its process"
_REASONS = {
    CLOSED: "closed",
    TEMPLATE_DEADLINE: TEMPLATE_TOO_SLOW,
    OWNER_GONE: "the owner is gone",
    OWNER_SILENT: "no heartbeat from the owner",
    BAD_PROTOCOL: "the pipe carried something that is not a message",
    ENGINE_FAULT: "the worker failed; see its log",
}


def template_failed() -> TemplateFailed:
    """The end of a turn whose chat template was past its deadline."""
    reason = f"{TEMPLATE_TOO_SLOW}; the model is unloaded, use another template or model"
    return TemplateFailed(reason, message=TEMPLATE_TOO_SLOW, index=None)


def crashed(code: int | None) -> bool:
    """Whether native code ended the process by a fault of its own: an assertion, a wrong address, an illegal step."""
    if code is None:
        return False
    if sys.platform == "win32":
        return code >= _WINDOWS_FAULTS
    return -code in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


def describe_exit(code: int | None) -> str:
    """Describe an exit code in one line for people. Negative codes are signals, as `subprocess` tells them."""
    if code is None:
        return "still running"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"killed by {name}"
    return _REASONS.get(code, f"ended with code {code}")
