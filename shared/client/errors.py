"""Maps connection failures to typed errors: one table for every client. Pure."""

from __future__ import annotations

from shared.endpoint.faults import EndpointBusy, EndpointError, EndpointForbidden, NobodyListens
from shared.errors import DaemonError, DaemonRestarting, DaemonUnreachable

SILENT_TEXT = "it accepts connections but does not answer"


def silent(pid: int, *, stopped: bool) -> DaemonUnreachable:
    """Why the process that holds the connection does not answer, with the one way out. `stopped`: by a signal."""
    if stopped:
        hint = f"a signal stopped it, so it does not answer; `kill -CONT {pid}` lets it go on, `modeld stop` ends it"
        return DaemonUnreachable(hint=hint, retryable=True)
    return DaemonUnreachable(hint=f"{SILENT_TEXT}; `modeld stop` ends it, then `modeld start`", retryable=True)


def unreached(error: EndpointError) -> DaemonError:
    """DaemonRestarting where it is proven that nobody listens, else DaemonUnreachable with the reason."""
    if isinstance(error, NobodyListens):
        if error.refused:
            return DaemonRestarting(hint="nobody listens at its address any more", retryable=True)
        hint = f"{error.address} is not there; a sandboxed editor may not see it"
        return DaemonUnreachable(hint=hint, retryable=True)
    if isinstance(error, EndpointBusy):
        return DaemonUnreachable(hint=f"{error.reason}; it is busy", retryable=True)
    if isinstance(error, EndpointForbidden):
        return DaemonUnreachable(hint=error.reason, retryable=False)
    return DaemonUnreachable(hint=str(error), retryable=False)


def token_lost(error: OSError) -> DaemonError:
    """DaemonRestarting where the secret of the handshake is gone, else DaemonUnreachable: it cannot be read."""
    if isinstance(error, FileNotFoundError):
        return DaemonRestarting(hint="its token is gone", retryable=True)
    return DaemonUnreachable(hint=f"its token cannot be read: {error.strerror or error}", retryable=False)


def misunderstood(reason: object) -> DaemonUnreachable:
    """An answer of another shape than this program knows."""
    return DaemonUnreachable(hint=f"{reason}; `modeld restart` makes both one version", retryable=False)
