"""From the records under the data root to one answer: where modeld is, or why it cannot be called.

Pure over a survey of the records; only `installed` looks at the machine. Each state that is not `Found` is a typed
error of the table with its own next step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from shared.errors import (
    DaemonError,
    DaemonNotInstalled,
    DaemonNotRunning,
    DaemonRestarting,
    DaemonStale,
    DaemonUnreachable,
)

if TYPE_CHECKING:
    pass

State = Literal["running", "not_running", "restarting", "stale", "unreachable", "not_installed"]
START_HINT = "start it with `modeld start`"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One instance that may be dialled. `token_file` holds the secret of the handshake."""

    instance: str
    address: str
    token_file: str
    pid: int
    owner: bool


class Detection(msgspec.Struct, frozen=True, kw_only=True):
    """`targets` in the order to try: the owner first, then the oldest live instance. Empty unless running."""

    state: State
    targets: tuple[Target, ...] = ()
    last_seen: float | None = None
    stopped: bool = False

    def error(self, hint: str = "") -> DaemonError:
        """The typed error of this state. `hint` is added where the kind takes one."""
        kinds: dict[State, type[DaemonError]] = {
            "running": DaemonUnreachable,
            "not_running": DaemonNotRunning,
            "restarting": DaemonRestarting,
            "stale": DaemonStale,
            "unreachable": DaemonUnreachable,
            "not_installed": DaemonNotInstalled,
        }
        default = "install it with `pip install modeld`" if self.state == "not_installed" else START_HINT
        return kinds[self.state](
            hint=hint or default, last_seen=self.last_seen, retryable=self.state in ("restarting", "running")
        )
