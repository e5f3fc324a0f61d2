"""Real bridges around a real modeld: what every open picker shows while it starts, goes and comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from clients.bridge import model_option
from clients.wire import Wire
from counts import scaled
from gguf_bytes import model
from picker_world import (
    MODELS,
    JsonObject,
    Seat,
    World,
    descriptions,
    groups,
    is_away,
    is_live,
    outcome,
    values,
)
from restart_loop import ENDS, RestartLoop
from tiny_gguf import write_tiny_gguf
from waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.llama, pytest.mark.timeout(180)]


@pytest.fixture
def world() -> Iterator[World]:
    with World(MODELD_LEASE_TTL="1.0") as made:
        yield made


def test_a_restart_loop_moves_no_picker(world: World) -> None:
    loop = RestartLoop(world)
    tally = loop.run(scaled(100))
    assert sum(tally.gaps.values()) == scaled(100)
    assert set(tally.gaps) == {*ENDS, "restart"}
    assert tally.born == tally.picks == scaled(100) - tally.gaps["restart"]
    assert set(tally.prompts) >= {"refused after a stop", "served when modeld was back", "ended in one retryable line"}


def test_models_are_in_every_picker_after_a_start(world: World) -> None:
    """Nothing was ever loaded, and the daemon comes after the editors."""
    seats = [world.sit(f"work{number}") for number in range(5)]
    for seat in seats:
        assert seat.poll()["currentValue"] == "none"
        assert "start" in descriptions(seat.poll())["none"], "the one entry says what to do"
    world.start()
    for seat in seats:
        pushed_until(seat, is_live)
        assert values(seat.poll()) == list(MODELS)
        assert groups(seat.poll()) == {"installed": list(MODELS)}
    assert world.active() == ""


def test_past_the_grace_the_picker_empties_and_fills_again_by_itself() -> None:
    with World(MODELD_LEASE_TTL="1.0", MODELD_GRACE_WINDOW="2.0") as world:
        world.start()
        picked, unpicked = world.sit("picked"), world.sit("unpicked")
        for seat in (picked, unpicked):
            seat.until(is_live, "the models are listed")
        picked.pick("beta")
        world.end("kill")
        (lost,) = pushed_until(picked, lambda option: "unavailable" in groups(option))
        assert groups(lost) == {"unavailable": ["beta"]}, "the others are in the library alone"
        assert lost["currentValue"] == "beta"
        assert descriptions(lost)["beta"].startswith("not available: ")
        (empty,) = pushed_until(unpicked, lambda option: "unavailable" in groups(option))
        assert values(empty) == ["none"]
        assert "modeld" in descriptions(empty)["none"]
        with world.born("picked") as late:
            assert groups(model_option(late.made)) == {"unavailable": ["beta"]}
        kind, _ = outcome(picked, picked.bridge.begin_prompt(picked.session, "hello"))
        assert kind.startswith("daemon_"), kind
        heard = [len(seat.pushed()) for seat in (picked, unpicked)]
        world.start()
        for seat, before in zip((picked, unpicked), heard, strict=True):
            (full,) = pushed_until(seat, is_live, before)
            assert values(full) == list(MODELS)
        assert picked.pushed()[-1][1]["currentValue"] == "beta"
        kind, reported = outcome(picked, picked.bridge.begin_prompt(picked.session, "hello"))
        assert (kind, reported["model"]) == ("served", "beta")


def pushed_until(seat: Seat, what: Callable[[JsonObject], bool], after: int = 0) -> list[JsonObject]:
    """The first pushed option, after so many others, for which `what` holds: nobody asked for it."""
    found: list[JsonObject] = until(
        lambda: [option for _, option in seat.pushed()[after:] if what(option)][:1], "it is pushed"
    )
    return found


def test_files_that_come_and_go_are_seen_in_open_pickers(world: World) -> None:
    world.start()
    seats = [world.sit("one"), world.sit("two")]
    for seat in seats:
        seat.until(is_live, "the models are listed")
    (world.models / "beta.gguf").unlink()
    write_tiny_gguf(world.models / "delta.gguf", name="delta", seed=9, context=256)
    for seat in seats:
        (moved,) = pushed_until(seat, lambda option: values(option) == ["alpha", "delta", "gamma"])
        assert groups(moved) == {"installed": ["alpha", "delta", "gamma"]}


def test_a_model_that_never_loads_is_dropped_with_its_reason(world: World) -> None:
    """The header is sound and the engine refuses the tensors: every picker drops it, the library says why."""
    (world.models / "broken.gguf").write_bytes(model("llama"))
    world.start()
    picked, other = world.sit("picked"), world.sit("other")
    for seat in (picked, other):
        assert "broken" in values(seat.until(lambda option: is_live(option) and "broken" in values(option), "listed"))
    picked.pick("broken")
    kind, data = outcome(picked, picked.bridge.begin_prompt(picked.session, "hello"))
    assert (kind, data["stage"]) == ("model_load_failed", "weights"), data
    other.until(lambda option: values(option) == list(MODELS), "it is dropped where nobody picked it")
    kept = picked.until(lambda option: groups(option).get("unavailable") == ["broken"], "the pick stays, marked")
    assert kept["currentValue"] == "broken"
    assert data["reason"] in descriptions(kept)["broken"]
    kind, _ = outcome(picked, picked.bridge.begin_prompt(picked.session, "hello"))
    assert kind == "no_satisfactory_model", "no other model answers"
    with Wire(world.root.path) as wire:
        rows = {row["name"]: row for row in wire.request("library/list", {})["rows"]}
    assert (rows["broken"]["state"], rows["broken"]["reason"]) == ("rejected", data["reason"])
    world.end("kill")
    other.until(is_away, "the gap is shown")
    assert values(other.poll()) == list(MODELS), "it does not come back in the gap"
    with world.born("other") as late:
        assert values(model_option(late.made)) == list(MODELS)
    world.start()
    other.until(lambda option: is_live(option) and "broken" in values(option), "another instance may try it again")
