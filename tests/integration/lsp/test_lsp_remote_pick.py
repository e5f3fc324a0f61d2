"""A default is not a pick, in the windows of LSP editors: a remote model answers only as the workspace's pick.

The endpoint really listens and counts its connections; each test ends with a pick that makes it answer, so that a
count of zero says something.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from acp_bridge.models.view import Advertised
from bridge_fakes import Bench
from clients.editor import Editor, LspError
from counting_endpoint import ANSWER, MODEL, CountingEndpoint
from lsp_fakes import Window, window
from lsp_world import World
from shared.errors import ModeldError

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.timeout(90)]

SELECTION = {"start": {"line": 0, "character": 0}, "end": {"line": 1, "character": 0}}


@pytest.fixture
def endpoint() -> Iterator[CountingEndpoint]:
    with CountingEndpoint() as made:
        yield made


@pytest.fixture
def bench(short_tmp: Path, endpoint: CountingEndpoint) -> Bench:
    """A window on a machine with a configured provider and no local model."""
    (short_tmp / "run").mkdir(mode=0o700)
    endpoint.configure(short_tmp / "config.toml")
    made = Bench(short_tmp)
    made.inventory.advertised = Advertised(rows=(), reason="modeld is not running; start it with `modeld start`")
    return made


def refused(editor: Editor, model: str) -> LspError:
    """A turn as every surface of an editor asks for one gets one sentence that says what to do."""
    with pytest.raises(LspError) as caught:
        editor.wait(editor.turn(model, "what is in my files?"))
    assert "\n" not in caught.value.message
    return caught.value


def models(editor: Editor) -> dict[str, Any]:
    found: dict[str, Any] = editor.request("modeld/models")
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "kill"])
async def test_a_local_model_that_went_away_never_becomes_a_remote_call(
    world: World, endpoint: CountingEndpoint, number: signal.Signals
) -> None:
    world.environ["MODELD_CONFIG"] = endpoint.configure(world.folder / "config.toml")
    world.environ.update(MODELD_GRACE_WINDOW="2.0", MODELD_LEASE_TTL="1.0")

    def listed(editor: Editor) -> str:
        editor.initialize()
        editor.until(lambda: any(one["id"] == MODEL for one in models(editor)["models"]), "the remote model is listed")
        editor.model("alpha")
        default = models(editor)["default"]
        assert default == "alpha"
        return str(default)

    def away(editor: Editor, default: str) -> None:
        assert refused(editor, "").kind.startswith("daemon_")  # within the grace
        editor.until(lambda: models(editor)["default"] == "", "the grace is over")
        reported = models(editor)
        assert reported["picked"] == ""
        assert reported["reason"].endswith(", or pick a remote model")
        still_refused(editor, default)

    def still_refused(editor: Editor, default: str) -> None:
        for model in ("", default):
            assert refused(editor, model).kind.startswith("daemon_")
        named = refused(editor, MODEL)
        assert named.kind == "remote_not_picked"
        assert named.data["model"] == MODEL
        assert endpoint.connections == 0

    with world.window() as editor:
        async with world.scripted("alpha") as modeld:
            default = await anyio.to_thread.run_sync(listed, editor)
            await modeld.end(number)
        await anyio.to_thread.run_sync(away, editor, default)
    with world.window() as again:
        again.initialize()
        again.until(lambda: any(one["id"] == MODEL for one in models(again)["models"]), "the remote model is listed")
        assert models(again)["default"] == ""
        still_refused(again, default)
        again.request("modeld/pick", {"model": MODEL})
        turn = again.turn("", "hello")
        assert again.wait(turn)["model"] == MODEL
        assert turn.texts() == ANSWER
        assert len(endpoint.prompts) == 1


async def refusal(editor: Window, model: str, **more: Any) -> ModeldError:
    with pytest.raises(ModeldError) as caught:
        await editor.turn(model, **more).end()
    return caught.value


async def until_listed(editor: Window) -> None:
    await editor.request("modeld/status")
    core = editor.server.window.core_now
    assert core is not None
    await editor.until(lambda: core.models.remotes)


async def test_nothing_that_an_editor_may_ask_reaches_a_remote_model_that_was_not_picked(
    bench: Bench, endpoint: CountingEndpoint
) -> None:
    async with window(bench) as editor:
        await until_listed(editor)
        reported = await editor.request("modeld/models")
        assert (reported["picked"], reported["default"]) == ("", "")
        assert [(one["id"], one["selectable"]) for one in reported["models"]] == [(MODEL, True)]
        assert reported["reason"] == "modeld is not running; start it with `modeld start`, or pick a remote model"
        assert (await refusal(editor, "")).message == reported["reason"]
        assert (await refusal(editor, MODEL)).kind == "remote_not_picked"
        assert (await refusal(editor, MODEL, consent="always")).kind == "remote_not_picked"
        text = {"uri": "file:///home/me/proj/a.py", "languageId": "python", "version": 1, "text": "def f():\n    "}
        editor.peer.notify("textDocument/didOpen", {"textDocument": text})
        document = {"textDocument": {"uri": text["uri"]}}
        actions = {**document, "range": SELECTION, "context": {"diagnostics": []}}
        assert await editor.request("textDocument/codeAction", actions) == []
        typed = {**document, "position": {"line": 1, "character": 4}, "context": {"triggerKind": 1}}
        assert (await editor.request("textDocument/inlineCompletion", typed))["items"] == []
        counted = await editor.request("modeld/count", {"model": MODEL, "text": ["a"]})
        assert counted["exact"] is False
        with pytest.raises(ModeldError):
            await editor.request("modeld/load", {"model": MODEL})
        assert endpoint.connections == 0

        await editor.request("modeld/pick", {"model": MODEL})
        assert (await editor.request("modeld/models"))["reason"] == ""
        assert await editor.request("textDocument/codeAction", actions) != []
        for model in ("", MODEL):
            turn = editor.turn(model)
            await turn.end()
            assert turn.text == ANSWER
        assert len(endpoint.prompts) == 2


async def test_a_pick_counts_for_its_workspace_alone(bench: Bench, endpoint: CountingEndpoint) -> None:
    async with window(bench) as editor:
        await until_listed(editor)
        await editor.request("modeld/pick", {"model": MODEL, "workspace": "/home/me/open"})
        assert (await refusal(editor, MODEL)).kind == "remote_not_picked"
        assert (await refusal(editor, "", workspace="/home/me/closed")).kind == "daemon_not_running"
        assert endpoint.connections == 0
        assert (await editor.turn("", workspace="/home/me/open").end())["model"] == MODEL
        assert len(endpoint.prompts) == 1


async def test_a_remote_pick_that_is_taken_back_answers_no_more(bench: Bench, endpoint: CountingEndpoint) -> None:
    from bridge_fakes import row

    bench.inventory.advertised = Advertised(rows=(row("alpha"),))
    async with window(bench) as editor:
        await until_listed(editor)
        await editor.request("modeld/pick", {"model": MODEL})
        await editor.turn("").end()
        assert len(endpoint.prompts) == 1
        await editor.request("modeld/pick", {"model": "alpha"})
        assert (await refusal(editor, MODEL)).kind == "remote_not_picked"
        assert (await refusal(editor, "")).kind == "daemon_not_running"
        assert len(endpoint.prompts) == 1
