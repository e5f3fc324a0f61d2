"""The handles that clients hold: sessions, and turns that are taken step by step."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from modeld.rpc import fence
from shared.errors import SessionClosed
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.server import Connection
    from modeld.rpc.serving import Serving
    from modeld.slot.steps import HeldTurn

#: Turns whose end is remembered, so that a step which comes too late learns why.
_REMEMBERED = 64


class Handles:
    """All of one process. A handle acts for the connection that has it, on its instance and slot generation."""

    def __init__(self, daemon: Serving) -> None:
        self._daemon = daemon
        self._next = 0
        self._turns: dict[str, tuple[Connection, HeldTurn]] = {}
        self._over: deque[tuple[str, str]] = deque(maxlen=_REMEMBERED)

    def _mint(self, generation: int) -> str:
        self._next += 1
        return str(fence.Handle(self._daemon.instance, generation, self._next))

    def _check(self, handle: str) -> fence.Handle:
        parsed = fence.parse_handle(handle)
        fence.check_handle(parsed, self._daemon.instance, self._daemon.slot.state.generation)
        return parsed

    # --- sessions ------------------------------------------------------------------------------

    def open(self, connection: Connection) -> api.OpenResult:
        """A handle on what is resident now."""
        state = self._daemon.slot.state
        assert state.active is not None
        handle = self._mint(state.generation)
        connection.sessions.add(handle)
        return api.OpenResult(handle=handle, generation=state.generation, num_ctx=state.active.num_ctx)

    def check(self, connection: Connection, handle: str) -> fence.Handle:
        """Raises SessionClosed, StaleFence, SlotGenerationStale."""
        parsed = self._check(handle)
        if handle not in connection.sessions:
            raise SessionClosed(handle=handle)
        return parsed

    def close(self, connection: Connection, handle: str) -> None:
        """End a session and the turn on it. Raises as `check`; a stale handle is forgotten all the same."""
        try:
            self.check(connection, handle)
        finally:
            connection.sessions.discard(handle)
            for _, held in list(self._turns.values()):
                if held.handle == handle:
                    held.over = held.over or "its session was closed"
                    held.stop()

    # --- turns ---------------------------------------------------------------------------------

    def new_turn(self, connection: Connection, handle: str) -> HeldTurn:
        """A turn on that session, not begun yet. Raises as `check`."""
        generation = self.check(connection, handle).generation
        held = self._daemon.slot.held_turn(handle, generation)
        held.name = self._mint(generation)
        self._turns[held.name] = (connection, held)
        return held

    def forget(self, held: HeldTurn) -> None:
        """Forget a turn that is over; its reason is kept for a while."""
        self._turns.pop(held.name, None)
        self._over.append((held.name, held.over))

    def turn(self, connection: Connection, name: str) -> HeldTurn:
        """The turn of that name. Raises SessionClosed with the reason of its end, StaleFence, SlotGenerationStale."""
        owner, held = self._turns.get(name, (None, None))
        if held is not None and owner is connection:
            return held
        self._check(name)
        why = next((reason for other, reason in self._over if other == name), "there is no such turn")
        raise SessionClosed(f"turn {name} is over: {why}; begin another", handle=name)
