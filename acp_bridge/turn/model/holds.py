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


class _Hold:
    """One model held for a run. `gone` is set once others may have it."""

    def __init__(self, model: Model, deadline: float) -> None:
        self.model = model
        self.scope = anyio.CancelScope(deadline=deadline)
        self.gone = anyio.Event()


class Holds:
    """One hold for each run. `group` is where they are kept, None before the bridge runs (nothing is held then)."""

    def __init__(self) -> None:
        self.group: TaskGroup | None = None
        self._held: dict[str, _Hold] = {}

    def begin(self, run: str, model: Model, limit: float | None = None) -> None:
        """Hold `model` until `end(run)`, or for `limit` seconds. What the run holds already is held on; another model
        is let go for it. A run without a name holds nothing.
        """
        if self.group is None or not run:
            return
        deadline = float("inf") if limit is None else anyio.current_time() + limit
        before = self._held.get(run)
        if before is not None and before.model.name == model.name and not before.scope.cancel_called:
            before.scope.deadline = deadline
            return
        self.end(run)
        hold = self._held[run] = _Hold(model, deadline)
        self.group.start_soon(self._keep, run, hold, before)

    def end(self, run: str) -> None:
        """Let others have it. Safe to call for a run that is not held."""
        hold = self._held.get(run)
        if hold is not None:
            hold.scope.cancel()

    async def _keep(self, run: str, hold: _Hold, before: _Hold | None) -> None:
        try:
            with hold.scope:
                if before is not None:
                    await before.gone.wait()  # modeld knows holds by their run: a late release would end this one
                await hold.model.hold(run)
        finally:
            hold.gone.set()
            if self._held.get(run) is hold:
                del self._held[run]
