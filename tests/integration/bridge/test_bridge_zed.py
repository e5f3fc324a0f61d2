"""A replay of Zed's rules for its model menu, over modeld's absences: nothing is lost, nothing reads "Unknown"."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import anyio.to_thread
import pytest

from bridge_fakes import until_cancelled
from bridge_world import World, scripted
from clients.zed import UNKNOWN, Zed, ZedThread
from tiny_gguf import write_tiny_gguf

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.timeout(90)]

T = TypeVar("T")
A_LONG_NAME = "a-model-with-a-name-that-no-button-has-room-for"


@pytest.fixture
def models(world: World) -> None:
    folder = world.folder / "models"
    folder.mkdir()
    for seed, name in enumerate(("alpha", "beta", A_LONG_NAME)):
        write_tiny_gguf(folder / f"{name}.gguf", name=name, seed=seed)
    world.environ["MODELD_MODEL_FOLDERS"] = str(folder)


@contextmanager
def window(world: World, defaults: dict[str, str]) -> Iterator[Zed]:
    """A window as Zed opens one: through a shell, in a process group of its own."""
    command = ("/bin/sh", "-c", f"exec '{sys.executable}' -m acp_bridge acp")
    with world.bridge(*command, group=True, text_ids=True) as bridge:
        yield Zed(bridge, world.work, defaults)


async def inside(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work)


def until(thread: ZedThread, condition: Callable[[], Any]) -> None:
    """Until it holds; at no moment meanwhile may the button read "Unknown"."""
    pause = threading.Event()
    for _ in range(3000):
        assert thread.button() != UNKNOWN
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError(f"not reached; menu {thread.menu()}, button {thread.button()!r}")


def find(thread: ZedThread, part: str) -> str:
    """The value of the menu that contains `part`, once it is there."""
    until(thread, lambda: any(part in value for value in thread.menu()))
    return next(value for value in thread.menu() if part in value)


async def test_a_saved_pick_is_applied_again_at_new_load_and_resume(world: World, models: None) -> None:
    defaults: dict[str, str] = {}

    def first() -> str:
        with window(world, defaults) as zed:
            thread = zed.new()
            thread.pick("model", find(thread, "beta"))
            thread.say("hi")
            return thread.session

    def second(session: str) -> None:
        with window(world, defaults) as zed:
            for thread in (zed.new(), zed.load(session), zed.resume(session)):
                assert thread.dropped == []
                assert "beta" in thread.button()
                assert thread.menu().count(defaults["model"]) == 1

    async with scripted(world):
        session = await inside(first)
        await inside(lambda: second(session))


async def test_a_saved_pick_that_is_not_advertised_is_dropped_and_nothing_breaks(world: World, models: None) -> None:
    def talk() -> None:
        with window(world, {"model": "deleted-model", "mode": "ask"}) as zed:
            thread = zed.new()
            find(thread, "alpha")
            assert thread.dropped == ["deleted-model"]
            assert thread.button("mode") == "Ask", "the other saved values are applied"
            assert thread.say("hi").stop_reason == "end_turn"

    async with scripted(world):
        await inside(talk)


async def test_names_fit_the_button(world: World, models: None) -> None:
    def talk() -> None:
        with window(world, {}) as zed:
            thread = zed.new()
            thread.pick("model", find(thread, A_LONG_NAME[:20]))
            assert len(thread.button()) <= 32
            assert thread.button().endswith("…"), "it is shortened by us, not cut by the editor"

    async with scripted(world):
        await inside(talk)


async def test_a_gap_changes_nothing_but_the_words(world: World, models: None) -> None:
    defaults: dict[str, str] = {}
    with window(world, defaults) as zed:
        async with scripted(world):
            thread = await inside(zed.new)
            beta = await inside(lambda: find(thread, "beta"))
            await inside(lambda: thread.pick("model", beta))
            menu = thread.menu()

        def gap() -> None:
            until(thread, lambda: "stopped" in str(thread.explained()))
            assert thread.menu() == menu
            fresh = zed.new()
            assert (fresh.menu(), fresh.dropped) == (menu, [])
            assert "beta" in fresh.button()

        await inside(gap)
        async with scripted(world, "cccccccc-2222"):
            await inside(lambda: until(thread, lambda: "stopped" not in str(thread.explained())))
            assert thread.menu() == menu
            assert (await inside(lambda: thread.say("hi"))).text == "Hello world"


async def test_past_the_grace_one_entry_explains_and_the_menu_comes_back(world: World, models: None) -> None:
    world.environ["MODELD_GRACE_WINDOW"] = "0.3"
    with window(world, {}) as zed:
        async with scripted(world):
            before = await inside(zed.new)
            await inside(lambda: find(before, "alpha"))
        zed.defaults["model"] = "beta"  # picked in another window, for another project

        def after() -> ZedThread:
            until(before, lambda: len(before.menu()) == 1)
            thread = zed.new()
            assert thread.options is not None, "without options Zed would ignore every later update"
            assert thread.menu() == ["none"]
            assert thread.button().startswith("No model: ")
            assert "modeld start" in thread.explained()[0]
            assert thread.dropped == ["beta"]
            return thread

        thread = await inside(after)
        async with scripted(world, "cccccccc-2222"):
            await inside(lambda: until(thread, lambda: len(thread.menu()) == 3))
            assert (await inside(lambda: thread.say("hi"))).text == "Hello world"


async def test_past_the_grace_a_pick_of_this_project_is_the_one_entry(world: World, models: None) -> None:
    world.environ["MODELD_GRACE_WINDOW"] = "0.3"
    defaults: dict[str, str] = {}
    with window(world, defaults) as zed:
        async with scripted(world):
            before = await inside(zed.new)
            beta = await inside(lambda: find(before, "beta"))
            await inside(lambda: before.pick("model", beta))

        def after() -> None:
            until(before, lambda: len(before.menu()) == 1)
            thread = zed.new()
            assert thread.menu() == [beta]
            assert "beta" in thread.button()
            assert "not available" in thread.explained()[0]
            assert thread.dropped == [], "the saved pick stays picked"

        await inside(after)
        async with scripted(world, "cccccccc-2222") as daemon:
            assert (await inside(lambda: before.say("hi"))).stop_reason == "end_turn"
            assert daemon.turns[0].model == beta


async def test_modeld_was_never_started(world: World, models: None) -> None:
    def talk() -> None:
        with window(world, {}) as zed:
            thread = zed.new()
            until(thread, lambda: "modeld" in str(thread.explained()))
            assert thread.menu() == ["none"]

    await inside(talk)


async def test_a_prompt_before_the_cancel_of_the_last(world: World, models: None) -> None:
    async with scripted(world) as daemon:
        script, daemon.script = daemon.script, until_cancelled

        def talk() -> None:
            with window(world, {}) as zed:
                thread = zed.new()
                find(thread, "alpha")
                first = thread.begin("talk")
                zed.bridge.wait_update(first, "agent_message_chunk", 20)
                daemon.script = script
                second = thread.begin("now this")
                zed.bridge.notify("session/cancel", {"sessionId": thread.session})
                assert zed.bridge.end_prompt(first).stop_reason == "cancelled"
                assert zed.bridge.end_prompt(second).stop_reason == "end_turn"

        await inside(talk)
