"""Real windows and a real modeld on the scripted engine: two at once, stop, kill, restart, and Stop in the editor."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import psutil
import pytest

from clients.editor import Editor, LspError, Pending
from lsp_world import World
from modeld_process import ENDLESS, Modeld, write_models
from tiny_gguf import write_tiny_gguf

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.timeout(60)]

REPLIES = [{"pieces": ["one ", "two"]}, {**ENDLESS, "when": "for ever"}]


async def beside(modeld: Modeld, work: Callable[[], None]) -> None:
    """Run what an editor does while modeld runs; the loop of the test stays free for it."""
    await anyio.to_thread.run_sync(work)


def slot_free(editor: Editor) -> bool:
    status: dict[str, Any] = editor.request("modeld/status")
    return status["slot"] == "Ready" and status["busy"] is None


def reached(editor: Editor, turn: Pending, event: str) -> None:
    editor.until(lambda: event in turn.types(), event)


async def test_two_windows_share_one_model(world: World) -> None:
    async with world.scripted(replies=REPLIES, token_s=0.005) as modeld:

        def work() -> None:
            with world.window("one") as one, world.window("two") as two:
                one.initialize()
                two.initialize()
                alpha, beta = one.model("alpha")["id"], one.model("beta")["id"]
                running = one.turn(alpha, "for ever")
                one.until(running.texts, "the first text")
                shown = two.until(
                    lambda: [s for s in two.tell("modeld/statusChanged") if s["busy"] and not s["busy"]["mine"]],
                    "the other window's turn",
                )
                assert shown[-1]["busy"]["holder"] == "Test Code (one)"
                queued = two.turn(alpha, "me too")
                two.until(lambda: "queued" in queued.types(), "a place in the queue")
                assert queued.events[0]["ahead"] == ["Test Code (one)"]
                assert one.request("modeld/cancel", {}) == {"count": 1}
                assert one.wait(running)["finishReason"] == "cancelled"
                assert two.wait(queued)["finishReason"] == "stop"
                two.answer = lambda method, params: {"answer": "switch"}
                hurt = one.turn(alpha, "for ever")
                one.until(hurt.texts, "the first text")
                switched = two.turn(beta, "hi")
                two.until(lambda: two.asked, "the question")
                assert two.asked[0]["params"]["inUseBy"] == ["Test Code (one)"]
                one.request("modeld/cancel", {})
                assert two.wait(switched)["model"] == beta
                notices = one.until(lambda: one.tell("modeld/notice"), "who switched away")
                assert notices[0]["kind"] == "switched_away"
                assert f"switched from {alpha} to {beta}" in notices[0]["text"]

        await beside(modeld, work)
        assert len(modeld.workers()) == 1


async def test_the_editors_stop_frees_the_slot_at_any_moment(world: World) -> None:
    async with world.scripted(replies=[ENDLESS], token_s=0.002, prefill_token_s=0.0005, load_s=0.3, chunk=8) as modeld:

        def work() -> None:
            with world.window() as editor:
                editor.initialize()
                alpha = editor.model("alpha")["id"]
                for event in ("loading", "prefill", "generating", "text"):
                    for by_token in (False, True):
                        turn = editor.turn(alpha, f"{event} {by_token} " + "words " * 40)
                        reached(editor, turn, event)
                        if by_token:
                            assert editor.request("modeld/cancel", {"token": f"t{turn.number}"}) == {"count": 1}
                            assert editor.wait(turn)["finishReason"] == "cancelled"
                        else:
                            editor.cancel(turn)
                            with pytest.raises(LspError) as caught:
                                editor.wait(turn)
                            assert caught.value.code == -32800
                        editor.until(lambda: editor.request("modeld/status")["busy"] is None, "the slot is free")
                        if event == "loading":
                            editor.request("modeld/unload")

        await beside(modeld, work)


async def test_a_killed_window_frees_the_slot(world: World) -> None:
    async with world.scripted(replies=[ENDLESS], token_s=0.002) as modeld:

        def work() -> None:
            with world.window("other") as other:
                other.initialize()
                editor = world.window()
                editor.initialize()
                alpha = editor.model("alpha")["id"]
                turn = editor.turn(alpha, "go")
                editor.until(turn.texts, "text")
                editor.kill()
                other.until(lambda: slot_free(other), "the slot is free")

        await beside(modeld, work)


async def test_stop_restart_kill(world: World) -> None:
    modeld = world.scripted(replies=REPLIES)
    await modeld.start()
    with world.window() as editor:

        def first() -> list[tuple[Any, ...]]:
            editor.initialize()
            alpha = editor.model("alpha")["id"]
            editor.request("modeld/pick", {"model": alpha})
            assert editor.wait(editor.turn(alpha, "hi"))["finishReason"] == "stop"
            editor.until(lambda: editor.request("modeld/models")["complete"], "a complete list")
            editor.until(lambda: slot_free(editor), "the slot is free")
            return shape(editor)

        def shape(window: Editor) -> list[tuple[Any, ...]]:
            models = window.request("modeld/models")
            assert models["picked"] == "alpha"
            return [(m["id"], m["name"], m["selectable"]) for m in models["models"]]

        def service(name: str) -> None:
            editor.until(lambda: editor.request("modeld/status")["service"] == name, name)

        before = await anyio.to_thread.run_sync(first)
        await modeld.end(signal.SIGKILL)  # killed: it is expected back
        await anyio.to_thread.run_sync(service, "restarting")
        assert await anyio.to_thread.run_sync(shape, editor) == before
        await modeld.start()
        await anyio.to_thread.run_sync(service, "running")
        again = editor.turn("", "hi")  # the pick
        assert (await anyio.to_thread.run_sync(editor.wait, again))["model"] == "alpha"
        said = await anyio.to_thread.run_sync(editor.request, "modeld/stop")
        assert "stopped" in said["text"]
        assert said["status"]["service"] in ("not_running", "looking", "restarting")
        await anyio.to_thread.run_sync(service, "not_running")
        assert await anyio.to_thread.run_sync(shape, editor) == before

        def refused() -> None:
            with pytest.raises(LspError) as caught:
                editor.wait(editor.turn("", "hi"))
            assert caught.value.kind == "daemon_not_running"
            assert "modeld is not running; start it with `modeld start`" in caught.value.message
            status = editor.request("modeld/status")
            assert status["startable"]

        await anyio.to_thread.run_sync(refused)
        await modeld.end()


async def test_a_frozen_daemon_hangs_no_window(world: World) -> None:
    if sys.platform == "win32":
        pytest.skip("no SIGSTOP there")
    async with world.scripted(replies=REPLIES) as modeld:

        def work() -> None:
            with world.window() as editor:
                editor.initialize()
                alpha = editor.model("alpha")["id"]
                process = psutil.Process(modeld.pid)
                process.suspend()
                try:
                    assert editor.request("modeld/models")["models"]
                    assert editor.request("modeld/status")["service"]
                    with pytest.raises(LspError) as caught:
                        editor.wait(editor.turn(alpha, "hi"))
                    assert caught.value.kind in ("daemon_unreachable", "daemon_restarting")
                    assert editor.request("modeld/count", {"model": alpha, "text": ["a"]})["exact"] is False
                finally:
                    process.resume()
                editor.until(lambda: editor.request("modeld/status")["service"] == "running", "modeld is back")
                editor.until(lambda: _answers(editor, alpha), "an answer")

        await beside(modeld, work)


def _answers(editor: Editor, model: str) -> bool:
    try:
        return bool(editor.wait(editor.turn(model, "hi"))["finishReason"] == "stop")
    except LspError:
        return False


def test_without_a_daemon_the_library_and_pulls_work(world: World) -> None:
    write_models(world.root, "alpha")
    source = world.folder / "other"
    source.mkdir()
    write_tiny_gguf(source / "gamma.gguf", name="gamma", seed=7)
    with world.window() as editor:
        editor.initialize()
        assert editor.request("modeld/status")["service"] == "not_running"
        library = editor.request("modeld/library", {"refresh": True})
        assert [(m["id"], m["selectable"]) for m in library["models"]] == [("alpha", False)]
        assert library["folder"] == str(world.root.models)
        pulled = editor.request("modeld/pull", {"source": str(source / "gamma.gguf")})
        names = [m["id"] for m in editor.request("modeld/library", {"refresh": True})["models"]]
        assert len(names) == 2
        assert pulled["model"] in names
        with pytest.raises(LspError) as caught:
            editor.request("modeld/pull", {"source": str(source / "nothing.gguf")})
        assert caught.value.kind == "download_failed"
        report = editor.request("modeld/doctor")
        assert report["good"] is False
        assert report["root"] == str(world.root.path)
        assert any("modeld start" in finding["text"] for finding in report["findings"])
        assert editor.tell("modeld/progress")[-1]["done"]


def test_start_at_the_users_word(world: World) -> None:
    write_models(world.root, "alpha")
    with world.window(MODELD_BACKEND="none") as editor:
        editor.initialize()
        try:
            said = editor.request("modeld/start")
            assert said["status"]["service"] == "running"
            assert said["text"]
        finally:
            subprocess.run([sys.executable, "-m", "modeld", "stop"], env=world.environ, check=True, capture_output=True)
        editor.until(lambda: editor.request("modeld/status")["service"] == "not_running", "it is stopped")
