"""Whether another client replaced the model that a conversation or a window used. Pure."""

from __future__ import annotations

import msgspec

from shared.protocol import api


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """`before` gave way to `now`; `by` names the client whose work runs, "" when that is not known."""

    before: str
    now: str
    by: str

    def concerns(self, used: str, *, busy: bool, me: str) -> bool:
        """Whether to tell one that used the model `used` last: not while it is busy, nor of what it did itself."""
        return used == self.before and not busy and self.by != me

    def text(self) -> str:
        """What is reported, once."""
        return (
            f"{self.by or 'Another client'} switched from {self.before} to {self.now}. "
            "The next message here asks before switching back."
        )


class ActiveModelWatch:
    """Follows the active model from status to status."""

    def __init__(self) -> None:
        self._active = ""

    def see(self, status: api.Status) -> Replaced | None:
        """The change that this status brings, None when there is none. A model that was only unloaded is no change."""
        before = self._active
        if status.active is None:
            return None
        now = self._active = status.active.name
        if before in ("", now):
            return None
        return Replaced(before=before, now=now, by=status.busy.holder if status.busy is not None else "")
