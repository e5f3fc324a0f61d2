"""The holds of this process (`run/hold`): between two rounds of tools no other client switches the model away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from acp_bridge.turn.interfaces import Model

#: An editor that runs the tools itself does not say when it gave up. After this long without its next turn the model
#: is free for others; the tools of a turn seldom take longer.
NEXT_TURN_S = 120.0


class Holds:
    """One hold for each run. `group` is where they are kept, None before the bridge runs (nothing is held then)."""

    def __init__(self) -> None:
        self.group: TaskGroup | None = None
        self._scopes: dict[str, anyio.CancelScope] = {}

    def begin(self, run: str, model: Model, limit: float | None = None) -> None:
        """Hold `model` until `end(run)`, or for `limit` seconds. One that is held already is held on."""
        if self.group is None:
            return
        deadline = float("inf") if limit is None else anyio.current_time() + limit
        held = self._scopes.get(run)
        if held is not None:
            held.deadline = deadline
            return
        scope = self._scopes[run] = anyio.CancelScope(deadline=deadline)
        self.group.start_soon(self._keep, run, model, scope)

    def end(self, run: str) -> None:
        """Let others have it. Safe to call for a run that is not held."""
        scope = self._scopes.pop(run, None)
        if scope is not None:
            scope.cancel()

    async def _keep(self, run: str, model: Model, scope: anyio.CancelScope) -> None:
        with scope:
            await model.hold(run)
        if self._scopes.get(run) is scope:
            del self._scopes[run]
