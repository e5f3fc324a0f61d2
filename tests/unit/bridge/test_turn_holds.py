"""One hold for each run: which model it keeps, and when it lets go."""

from __future__ import annotations

import anyio
import pytest

from acp_bridge.turn.model.holds import Holds

pytestmark = [pytest.mark.anyio, pytest.mark.unit]


class Held:
    """A model that notes who holds it and who let go."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self._notes = notes

    async def hold(self, run: str) -> None:
        self._notes.append(f"{run} holds {self.name}")
        try:
            await anyio.sleep_forever()
        finally:
            self._notes.append(f"{run} lets {self.name} go")


async def settle() -> None:
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


async def test_what_is_held_is_held_on_and_another_model_takes_its_place() -> None:
    notes: list[str] = []
    alpha, beta = Held("alpha", notes), Held("beta", notes)
    holds = Holds()
    async with anyio.create_task_group() as holds.group:
        for _ in range(2):
            holds.begin("agent", alpha)  # type: ignore[arg-type]  # only held
            await settle()
        assert notes == ["agent holds alpha"]
        holds.begin("other", alpha)  # type: ignore[arg-type]
        holds.begin("agent", beta)  # type: ignore[arg-type]
        await settle()
        assert sorted(notes[1:]) == ["agent holds beta", "agent lets alpha go", "other holds alpha"]
        holds.end("agent")
        holds.end("agent")
        holds.end("nobody")
        await settle()
        assert notes[-1] == "agent lets beta go"
        holds.begin("agent", alpha)  # type: ignore[arg-type]
        holds.end("agent")
        holds.begin("agent", alpha, limit=60.0)  # type: ignore[arg-type]
        await settle()
        assert notes[-1] == "agent holds alpha", "what ended is not in the way of what begins"
        holds.group.cancel_scope.cancel()


async def test_without_a_name_or_before_the_bridge_runs_nothing_is_held() -> None:
    notes: list[str] = []
    alpha = Held("alpha", notes)
    holds = Holds()
    holds.begin("agent", alpha)  # type: ignore[arg-type]
    async with anyio.create_task_group() as holds.group:
        holds.begin("", alpha)  # type: ignore[arg-type]
        await settle()
        holds.group.cancel_scope.cancel()
    assert notes == []


async def test_a_limit_ends_it_and_is_counted_again() -> None:
    notes: list[str] = []
    alpha = Held("alpha", notes)
    holds = Holds()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as holds.group:
            holds.begin("agent", alpha, limit=60.0)  # type: ignore[arg-type]
            await settle()
            holds.begin("agent", alpha, limit=0.01)  # type: ignore[arg-type]
        assert notes == ["agent holds alpha", "agent lets alpha go"]
