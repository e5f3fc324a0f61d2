"""Ends the daemon between two turns for a successor: restart, handover, upgrade in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import anyio

from shared.diagnosis.installed import Installed

if TYPE_CHECKING:
    from modeld.slot.driver import Slot
    from shared.settings import Settings

#: Reasons after which this process does not come back, whatever was asked before.
STOPS = frozenset({"stop", "shutdown", "duplicate"})


class Ending(Protocol):
    """The daemon as its succession uses it."""

    slot: Slot
    settings: Settings
    version: str

    @property
    def ending(self) -> bool:
        """Whether its end has begun."""
        ...

    def end(self, reason: str, drain: float | None = None) -> None:
        """Begin to end."""
        ...

    def log(self, line: str) -> None:
        """Write one line for people to the log."""
        ...


class Succession:
    """`again` says whether this process becomes a fresh one at its end, instead of ending."""

    def __init__(self, daemon: Ending) -> None:
        self._daemon = daemon
        self._installed = Installed()
        self.again = False
        #: The reason of an end that waits for the running turn, "" without one.
        self.wanted = ""

    def end(self, reason: str, patience: float, *, again: bool = False) -> None:
        """End between two turns: the running one ends by itself, within `patience` seconds; what waits keeps its place
        until then and finds the next owner.
        """
        self.again = self.again or again
        self.wanted = reason
        if self._daemon.ending:
            self._daemon.end(reason, patience)  # that end goes on, for this reason
        else:
            self._daemon.slot.spawn(self._between_turns(reason, patience))

    async def _between_turns(self, reason: str, patience: float) -> None:
        slot = self._daemon.slot
        slot.hold_back()
        with anyio.move_on_after(patience):
            await slot.until_free()
        if not self._daemon.ending:  # else somebody wished otherwise meanwhile
            self._daemon.end(reason, 0.0)

    def asked_to(self, reason: str) -> None:
        """A stop is a stop, whatever was asked before."""
        self.again = self.again and reason not in STOPS

    def look(self) -> None:
        """The files may have been exchanged by an upgrade: then a fresh process starts from them. One stat."""
        daemon = self._daemon
        found = self._installed.changed()
        if found and not self.again and not daemon.ending:
            daemon.log(f"modeld {found} is installed, this is {daemon.version}: starting again between two turns")
            self.end("upgrade", daemon.settings.queue_wait, again=True)
