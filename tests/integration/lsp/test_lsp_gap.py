"""modeld goes, comes back, hangs or is not there: what the window shows and what a turn gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from acp_bridge.models.view import Advertised
from bridge_fakes import Bench, FakeDaemon, active, row, says
from lsp_fakes import Window, window
from provider_endpoint import Endpoint
from shared.client.locate import Detection
from shared.errors import ModeldError
from shared.protocol import api

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

RESTARTING = Detection(state="restarting", last_seen=1.0)
STOPPED = Detection(state="not_running", last_seen=1.0, stopped=True)


@pytest.fixture
def bench(short_tmp: Path) -> Bench:
    (short_tmp / "run").mkdir(mode=0o700)
    made = Bench(short_tmp, row("alpha"), row("beta"))
    made.settings = msgspec.structs.replace(made.settings, away_check=0.02, gap_wait=0.2)
    return made


def shape(models: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(m["id"], m["name"], m["group"], m["selectable"]) for m in models["models"]]


async def test_each_state_of_a_daemon_that_is_away_has_its_error(bench: Bench) -> None:
    async with window(bench) as editor:
        await editor.request("modeld/status")
        for state, kind, sentence in (
            ("not_running", "daemon_not_running", "modeld is not running; start it with `modeld start`"),
            ("restarting", "daemon_restarting", "modeld is restarting"),
            ("stale", "daemon_stale", "ended without releasing its lease"),
            ("not_installed", "daemon_not_installed", "modeld is not installed"),
        ):
            bench.records.detection = Detection(state=state, last_seen=1.0)  # type: ignore[arg-type]
            await editor.until(lambda state=state: editor.server.window.core_now.daemon.detection.state == state)  # type: ignore[misc, union-attr]
            with pytest.raises(ModeldError) as caught:
                await editor.turn("alpha").end()
            assert caught.value.kind == kind
            assert sentence in caught.value.message
            status = await editor.request("modeld/status")
            assert (status["service"], sentence in status["text"]) == (state, True)
            for method in ("modeld/load", "modeld/switch", "modeld/unload"):
                with pytest.raises(ModeldError) as caught:
                    await editor.request(method, {"model": "alpha"})
                assert caught.value.kind == kind
        counted = await editor.request("modeld/count", {"model": "alpha", "text": ["four"]})
        assert counted["exact"] is False
        assert counted["total"] >= 2


async def test_a_turn_in_the_gap_waits_visibly_and_is_served(bench: Bench) -> None:
    bench.settings = msgspec.structs.replace(bench.settings, gap_wait=5.0)
    bench.records.detection = RESTARTING
    async with window(bench) as editor, anyio.create_task_group() as group:
        turn = editor.turn("alpha")
        await editor.until(lambda: "waiting" in turn.types())
        assert turn.events[0]["text"] == "Waiting for modeld, which is restarting"
        daemon = FakeDaemon(bench.folder / "run")
        bench.attach(daemon)
        group.start_soon(daemon.serve)
        assert (await turn.end())["finishReason"] == "stop"
        assert turn.text == "Hello world"
        daemon.close()
        group.cancel_scope.cancel()


async def test_a_gap_that_does_not_end_is_one_retryable_line(bench: Bench) -> None:
    bench.records.detection = RESTARTING
    async with window(bench) as editor:
        with pytest.raises(ModeldError) as caught:
            await editor.turn("alpha").end()
        assert (caught.value.kind, caught.value.retryable) == ("daemon_restarting", True)


async def test_a_cancel_in_the_gap_ends_the_wait(bench: Bench) -> None:
    bench.settings = msgspec.structs.replace(bench.settings, gap_wait=30.0)
    bench.records.detection = RESTARTING
    async with window(bench) as editor:
        turn = editor.turn("alpha")
        await editor.until(lambda: "waiting" in turn.types())
        assert await editor.request("modeld/cancel", {}) == {"count": 1}
        assert (await turn.end())["finishReason"] == "cancelled"


async def restarted(editor: Window, bench: Bench, daemon: FakeDaemon) -> None:
    """As after a kill: the daemon is gone, its rows are graced."""
    graced = tuple(
        msgspec.structs.replace(one, state="restarting", reason="restarting") for one in bench.inventory.advertised.rows
    )
    bench.records.detection = RESTARTING
    bench.inventory.advertised = Advertised(rows=graced, grace_left=60.0, active="alpha", last_active="alpha")
    daemon.close()
    await editor.until(lambda: "restarting" in [one["service"] for one in editor.of("modeld/statusChanged")])


async def test_through_a_restart_the_list_keeps_its_shape_and_the_pick(bench: Bench) -> None:
    loaded = row("alpha", state="loaded")
    bench.inventory.advertised = Advertised(rows=(loaded, row("beta")), active="alpha", last_active="alpha")
    async with anyio.create_task_group() as group:
        daemon = FakeDaemon(bench.folder / "run")
        daemon.status.active = active("alpha")
        bench.attach(daemon)
        group.start_soon(daemon.serve)
        async with window(bench) as editor:
            await editor.request("modeld/pick", {"model": "alpha"})
            before = await editor.request("modeld/models")
            await restarted(editor, bench, daemon)
            await editor.until(lambda: "restarting" in str(editor.of("modeld/modelsChanged")[-1:]))
            during = await editor.request("modeld/models")
            assert shape(before) == shape(during)
            assert (during["picked"], during["default"]) == ("alpha", "alpha")
            assert [m["state"] for m in during["models"]] == ["restarting", "restarting"]
            pushed = editor.of("modeld/modelsChanged")
            assert all(shape(one) == shape(before) for one in pushed if one["picked"] == "alpha")
            assert all(one["models"] for one in pushed if one["complete"])  # never emptied
            back = FakeDaemon(bench.folder / "run", "bbbbbbbb-0000")
            group.start_soon(back.serve)
            bench.inventory.advertised = Advertised(rows=(row("alpha"), row("beta")), last_active="alpha")
            bench.attach(back)
            await editor.until(lambda: editor.of("modeld/statusChanged")[-1]["service"] == "running")
            back.script = says("after")
            turn = editor.turn("")
            assert (await turn.end())["model"] == "alpha"
            back.close()
        group.cancel_scope.cancel()


async def test_a_turn_that_loses_its_daemon_ends_typed(bench: Bench) -> None:
    reached = anyio.Event()

    async def script(params: api.TurnParams, emit: Any, cancelled: anyio.Event) -> api.TurnResult:
        emit(api.TextDelta(text="half of "))
        reached.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with anyio.create_task_group() as group:
        daemon = FakeDaemon(bench.folder / "run")
        daemon.script = script
        bench.attach(daemon)
        group.start_soon(daemon.serve)
        async with window(bench) as editor:
            turn = editor.turn("alpha")
            await editor.until(lambda: turn.text == "half of ")
            bench.records.detection = STOPPED
            daemon.close()
            with pytest.raises(ModeldError) as caught:
                await turn.end()
            assert caught.value.kind in ("daemon_restarting", "daemon_not_running")
            assert turn.text == "half of "
        group.cancel_scope.cancel()


async def test_a_daemon_that_hangs_hangs_nobody(bench: Bench) -> None:
    bench.settings = msgspec.structs.replace(bench.settings, dial_timeout=0.2)
    async with anyio.create_task_group() as group:
        daemon = FakeDaemon(bench.folder / "run")
        daemon.hung = True
        bench.attach(daemon)
        group.start_soon(daemon.serve)
        async with window(bench) as editor:
            assert (await editor.request("modeld/models"))["models"]
            assert (await editor.request("modeld/status"))["service"] in ("unreachable", "looking")
            with pytest.raises(ModeldError) as caught:
                await editor.turn("alpha").end()
            assert caught.value.kind == "daemon_unreachable"
        daemon.close()
        group.cancel_scope.cancel()


async def test_a_missing_model_heals_once(bench: Bench) -> None:
    async with anyio.create_task_group() as group:
        daemon = FakeDaemon(bench.folder / "run")
        bench.attach(daemon)
        group.start_soon(daemon.serve)
        bench.inventory.advertised = Advertised(rows=(row("beta"),))

        def comes() -> None:
            bench.inventory.advertised = Advertised(rows=(row("alpha"), row("beta")))

        async with window(bench) as editor:
            await editor.request("modeld/models")
            bench.inventory.on_refresh = comes
            assert (await editor.turn("alpha").end())["model"] == "alpha"
            assert bench.inventory.refreshed == 1
        daemon.close()
        group.cancel_scope.cancel()


async def test_past_the_grace_the_pick_is_marked_and_nothing_else_answers(bench: Bench) -> None:
    async with window(bench) as editor:
        await editor.request("modeld/pick", {"model": "alpha"})
        bench.records.detection = STOPPED
        bench.inventory.advertised = Advertised(rows=(), reason="modeld is not running; start it with `modeld start`")
        bench.inventory.changed()
        await editor.until(lambda: any(one["reason"] for one in editor.of("modeld/modelsChanged")))
        models = await editor.request("modeld/models")
        assert [(m["id"], m["selectable"], m["state"]) for m in models["models"]] == [("alpha", False, "not available")]
        assert "start it with `modeld start`" in models["models"][0]["detail"]
        with pytest.raises(ModeldError) as caught:
            await editor.turn("").end()
        assert caught.value.kind == "daemon_not_running"


async def test_remote_models_answer_without_any_daemon(bench: Bench) -> None:
    with Endpoint() as endpoint:
        (bench.folder / "config.toml").write_text(f'[providers.cloud]\nbase_url = "{endpoint.url}"\n')
        async with window(bench) as editor:
            await editor.request("modeld/status")
            await editor.request("modeld/pick", {"model": "cloud/big"})
            turn = editor.turn("cloud/big")
            assert (await turn.end())["finishReason"] == "stop"
            assert turn.text == "hello"
            counted = await editor.request("modeld/count", {"model": "cloud/big", "text": ["a"]})
            assert counted["exact"] is False
