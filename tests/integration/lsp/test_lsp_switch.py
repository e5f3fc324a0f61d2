"""Consent of an LSP window, loads and switches that it asks for, and what it learns of other windows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge_fakes import Bench, Emit, FakeDaemon, active, result, row
from lsp_fakes import Window, window
from shared.errors import ConsentDeclined, ModelLoadFailed, ModelNotFound, ModelSwitchRequired, UnsupportedFeature
from shared.protocol import api
from shared.protocol.faults import MethodNotFound, RequestCancelled
from shared.protocol.requests import Call

pytestmark = [pytest.mark.anyio, pytest.mark.integration]
SENTENCE = "Switching from beta to alpha will unload beta and drop its warm context. beta is in use by Zed."


@pytest.fixture
async def pair(short_tmp: Path) -> AsyncIterator[tuple[Window, FakeDaemon]]:
    (short_tmp / "run").mkdir(mode=0o700)
    bench = Bench(short_tmp, row("alpha"), row("beta"))
    daemon = FakeDaemon(short_tmp / "run")
    daemon.status.active = active("beta")
    bench.attach(daemon)
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.serve)
        async with window(bench) as editor:
            await editor.request("modeld/status")
            yield editor, daemon
        daemon.close()
        group.cancel_scope.cancel()


async def hurts_zed(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
    """A daemon whose active model is in use by another client."""
    if not params.consent:
        raise ModelSwitchRequired(active="beta", requested=params.model, in_use_by=["Zed"])
    emit(api.TextDelta(text="switched"))
    return result(params)


def answering(*answers: str | None) -> Any:
    given = list(answers)

    async def answer(params: dict[str, Any]) -> dict[str, Any]:
        return {"answer": given.pop(0)}

    return answer


async def test_the_question_says_what_is_unloaded_and_whose_it_is(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    daemon.script = hurts_zed
    editor.answer = answering("switch", None)
    turn = editor.turn("alpha")
    await turn.end()
    (asked,) = editor.asked
    assert asked["title"] == SENTENCE
    assert (asked["active"], asked["wanted"], asked["inUseBy"]) == ("beta", "alpha", ["Zed"])
    assert [one["id"] for one in asked["answers"]] == ["switch", "switch_always", "wait", "decline"]
    assert asked["token"] == turn.token
    assert [params.consent for params in daemon.turns] == [False, True]
    with pytest.raises(ConsentDeclined):  # dismissed; and the first answer was for one turn alone
        await editor.turn("alpha").end()
    assert len(editor.asked) == 2


async def test_always_is_for_this_window(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    daemon.script = hurts_zed
    editor.answer = answering("switch_always")
    assert (await editor.turn("alpha").end())["finishReason"] == "stop"
    assert (await editor.turn("alpha").end())["finishReason"] == "stop"
    assert len(editor.asked) == 1


@pytest.mark.parametrize("answer", ["decline", None, "nonsense-is-no-yes"])
async def test_a_declined_switch_ends_the_turn(pair: tuple[Window, FakeDaemon], answer: str | None) -> None:
    editor, daemon = pair
    daemon.script = hurts_zed
    editor.answer = answering(answer)
    if answer == "nonsense-is-no-yes":
        turn = editor.turn("alpha")
        await editor.until(lambda: editor.asked)
        await editor.request("modeld/cancel", {})
        assert (await turn.end())["finishReason"] in ("cancelled", "stop")
        return
    with pytest.raises(ConsentDeclined) as caught:
        await editor.turn("alpha").end()
    assert "Zed uses the active model" in caught.value.message


@pytest.mark.parametrize("answer", [3, {"answer": ["switch"]}, None])
async def test_an_editor_that_cannot_ask_has_not_agreed(pair: tuple[Window, FakeDaemon], answer: Any) -> None:
    editor, daemon = pair
    daemon.script = hurts_zed

    async def odd(params: dict[str, Any]) -> Any:
        if answer is None:
            raise MethodNotFound(method="modeld/ask")
        return answer

    editor.answer = odd
    with pytest.raises(ConsentDeclined) as caught:
        await editor.turn("alpha").end()
    said = "this editor cannot ask for permission" if answer is None else "cannot be understood"
    assert said in caught.value.message


async def test_wait_shows_what_is_waited_for_and_can_be_cancelled(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    daemon.script = hurts_zed
    editor.answer = answering("wait")
    turn = editor.turn("alpha")
    await editor.until(lambda: "waiting" in turn.types())
    assert turn.events[-1]["text"] == "Waiting until Zed no longer uses beta"
    await editor.request("modeld/cancel", {"token": turn.token})
    assert (await turn.end())["finishReason"] == "cancelled"


async def test_a_cancel_withdraws_the_question(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    daemon.script = hurts_zed

    async def never(params: dict[str, Any]) -> Any:
        await anyio.sleep_forever()

    editor.answer = never
    turn = editor.turn("alpha")
    await editor.until(lambda: editor.asked)
    editor.cancel(turn)
    with pytest.raises(RequestCancelled):
        await turn.end()
    await editor.until(lambda: editor.peer.running == 0)  # our own question was cancelled at the editor


async def test_consent_given_or_refused_beforehand(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    daemon.script = hurts_zed
    assert (await editor.turn("alpha", consent="always").end())["finishReason"] == "stop"
    with pytest.raises(ModelSwitchRequired) as caught:
        await editor.turn("alpha", consent="never").end()
    assert caught.value.in_use_by == ["Zed"]
    with pytest.raises(ModelSwitchRequired):
        await editor.turn("alpha", allowSwitch=False).end()
    assert not editor.asked
    assert daemon.turns[-1].allow_switch is False


# --- load, switch, unload ----------------------------------------------------------------------


class Loads:
    """`model/load` of a daemon that holds beta."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self.params: list[api.LoadParams] = []
        self.error: Exception | None = None
        self.hangs = False
        self.cancelled = anyio.Event()
        daemon.answers["model/load"] = self

    async def __call__(self, call: Call) -> api.LoadResult:
        params = call.params(api.LoadParams)
        self.params.append(params)
        if params.model != "beta" and not params.allow_switch:
            raise ModelSwitchRequired(active="beta", requested=params.model)
        if self.error is not None:
            raise self.error
        assert call.id is not None
        event = api.Loading(fraction=0.5, model=params.model, unloads="beta")
        call.peer.notify("session/event", api.EventParams(request=call.id, event=event))
        if self.hangs:
            try:
                await anyio.sleep_forever()
            finally:
                self.cancelled.set()
        return api.LoadResult(active=active(params.model, 4096), generation=2, loaded=True, load_seconds=1.5)


async def test_load_replaces_nothing_and_switch_does(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    loads = Loads(daemon)
    with pytest.raises(ModelSwitchRequired) as caught:
        await editor.request("modeld/load", {"model": "alpha"})
    assert (caught.value.active, caught.value.requested) == ("beta", "alpha")
    done = await editor.request("modeld/switch", {"model": "alpha", "context": 4096, "workDoneToken": "w"})
    assert done == {
        "model": "alpha", "context": 4096, "device": "cpu", "fresh": True, "seconds": 1.5, "reservedBytes": None,
    }  # fmt: skip
    assert loads.params[-1].config.num_ctx == 4096
    kinds = [one["value"]["kind"] for one in editor.other_progress if one["token"] == "w"]
    assert kinds == ["begin", "report", "end"]
    report = editor.other_progress[1]["value"]
    assert (report["percentage"], report["message"]) == (50, "Loading alpha (50 %, unloading beta)")
    reported = editor.of("modeld/progress")
    assert [(one["operation"], one["fraction"], one["mine"], one["done"]) for one in reported] == [
        ("switch", 0.5, True, False),
        ("switch", None, True, True),
    ]
    assert (await editor.request("modeld/models"))["picked"] == "alpha"
    # nobody else uses it: there is nothing to agree to
    assert (await editor.request("modeld/switch", {"model": "alpha", "consent": "never"}))["model"] == "alpha"


async def test_a_switch_that_hurts_another_asks(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    Loads(daemon)
    busy = api.BusyOperation(operation="turn", stage="generating", holder="Zed", age_s=1.0)
    daemon.push(state="Busy", busy=busy)
    await editor.until(lambda: any(one["busy"] for one in editor.of("modeld/statusChanged")))
    editor.answer = answering("decline", "switch")
    with pytest.raises(ConsentDeclined):
        await editor.request("modeld/switch", {"model": "alpha"})
    assert editor.asked[0]["title"] == SENTENCE
    assert (await editor.request("modeld/switch", {"model": "alpha"}))["model"] == "alpha"
    with pytest.raises(ModelSwitchRequired):
        await editor.request("modeld/switch", {"model": "alpha", "consent": "never"})


@pytest.mark.parametrize("way", ["token", "request"])
async def test_a_load_can_be_cancelled(pair: tuple[Window, FakeDaemon], way: str) -> None:
    editor, daemon = pair
    loads = Loads(daemon)
    loads.hangs = True
    failures: list[Exception] = []
    numbers: list[int] = []

    async def load() -> None:
        params = {"model": "beta", "workDoneToken": "w"}
        try:
            await editor.peer.request("modeld/load", params, on_id=numbers.append)
        except RequestCancelled as error:
            failures.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(load)
        await editor.until(lambda: any(one["value"]["kind"] == "report" for one in editor.other_progress))
        if way == "token":
            assert await editor.request("modeld/cancel", {"token": "w"}) == {"count": 1}
        else:
            editor.peer.notify("$/cancelRequest", {"id": numbers[0]})
        with anyio.fail_after(10):
            await loads.cancelled.wait()
    assert len(failures) == 1
    await editor.until(lambda: editor.other_progress[-1]["value"]["kind"] == "end")


async def test_errors_of_a_load(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    loads = Loads(daemon)
    loads.error = ModelLoadFailed(model="beta", stage="weights", reason="short file")
    with pytest.raises(ModelLoadFailed) as caught:
        await editor.request("modeld/load", {"model": "beta"})
    assert caught.value.stage == "weights"
    with pytest.raises(ModelNotFound):
        await editor.request("modeld/pick", {"model": "gone"})


async def test_unload(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    seen: list[api.UnloadParams] = []

    async def unload(call: Call) -> api.UnloadResult:
        seen.append(call.params(api.UnloadParams))
        return api.UnloadResult(freed="beta", freed_bytes=1000, generation=3)

    daemon.answers["model/unload"] = unload
    assert await editor.request("modeld/unload", {"model": "beta"}) == {"model": "beta", "freedBytes": 1000}
    assert seen[0].expect is not None
    assert (seen[0].expect.model, seen[0].on_busy) == ("beta", "fail")
    await editor.request("modeld/unload", {"cancel": True})
    assert (seen[1].expect, seen[1].on_busy) == (None, "cancel")


async def test_describe_tells_the_consequence(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    plan = api.MemoryPlan(
        device="cpu", weights_bytes=100, kv_bytes=20, compute_bytes=5, required_bytes=125, free_bytes=1000,
        reserve_bytes=50, num_ctx=4096, fits=2048,
    )  # fmt: skip
    daemon.answers["model/describe"] = api.ModelInfo(name="alpha", backend="llama", servable=True, plan=plan)
    reported = await editor.request("modeld/describe", {"model": "alpha"})
    assert reported["switch"] == "Switching from beta to alpha will unload beta and drop its warm context"
    assert reported["fit"]["verdict"] == "fits_smaller"
    assert reported["fit"]["context"] == 2048
    assert "only" in reported["fit"]["text"]
    assert reported["inUse"] == ""
    assert (await editor.request("modeld/describe", {"model": "beta"}))["switch"] == ""
    daemon.push(state="Busy", busy=api.BusyOperation(operation="turn", stage="generating", holder="Zed", age_s=1.0))
    await editor.until(lambda: any(one["busy"] for one in editor.of("modeld/statusChanged")))
    reported = await editor.request("modeld/describe", {"model": "alpha"})
    assert f"{reported['switch']}. {reported['inUse']}." == SENTENCE
    with pytest.raises(ModelNotFound):
        await editor.request("modeld/describe", {"model": "gone"})


async def test_the_window_whose_model_was_switched_away_is_reported_once(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    await editor.turn("beta").end()
    assert editor.of("modeld/statusChanged")[-1]["tokensPerS"] == 40.0
    daemon.push(active=active("beta"))
    busy = api.BusyOperation(operation="turn", stage="generating", holder="Zed", age_s=0.1)
    daemon.push(active=active("alpha"), busy=busy)
    await editor.until(lambda: editor.of("modeld/notice"))
    daemon.push(active=active("beta"), busy=busy)
    daemon.push(active=active("alpha"), busy=None)
    await editor.until(lambda: editor.of("modeld/statusChanged")[-1]["busy"] is None)
    (notice,) = editor.of("modeld/notice")
    assert notice["kind"] == "switched_away"
    assert notice["text"].startswith("Zed switched from beta to alpha.")


async def test_pressure_is_reported_with_the_way_out(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    daemon.push(memory=api.MemoryStatus(pressure=True))
    await editor.until(lambda: editor.of("modeld/notice"))
    assert editor.of("modeld/notice")[0]["text"] == "Memory is short. Unload beta to free what it takes."


async def test_files_that_were_exchanged_are_reported_once(pair: tuple[Window, FakeDaemon], tmp_path: Path) -> None:
    editor, daemon = pair
    version = tmp_path / "version.py"
    version.write_text('__version__ = "1.0"\n')
    editor.server.installed.__init__(version, "1.0")  # type: ignore[misc]
    version.write_text('__version__ = "2.0.1"\n')
    daemon.push(generation=5)
    await editor.until(lambda: editor.of("modeld/notice"))
    daemon.push(generation=6)
    await editor.until(lambda: editor.of("modeld/statusChanged")[-1]["generation"] == 6)
    (notice,) = editor.of("modeld/notice")
    assert notice["kind"] == "other_version"
    assert "replaced by version 2.0.1 on disk. Reload the window" in notice["text"]


async def test_a_load_of_another_window_is_shown_too(pair: tuple[Window, FakeDaemon]) -> None:
    editor, daemon = pair
    detail = {"model": "alpha", "unloads": "beta", "fraction": 0.25}
    busy = api.BusyOperation(operation="switch", stage="unloading", holder="Zed", age_s=0.1, detail=detail)
    daemon.push(state="Switching", active=None, busy=busy)
    await editor.until(lambda: editor.of("modeld/progress"))
    progress = editor.of("modeld/progress")[-1]
    assert (progress["operation"], progress["model"], progress["fraction"]) == ("switch", "alpha", 0.25)
    assert progress["mine"] is False
    daemon.push(state="Ready", active=active("alpha"), busy=None)
    await editor.until(lambda: editor.of("modeld/progress")[-1]["done"])


async def test_a_remote_model_is_not_loaded(pair: tuple[Window, FakeDaemon]) -> None:
    from acp_bridge.models.picker import RemoteModel

    editor, _ = pair
    core = editor.server.window.core_now
    assert core is not None
    core.models.remotes = (RemoteModel(id="cloud/big", name="big", provider="cloud", context=32768),)
    with pytest.raises(UnsupportedFeature):
        await editor.request("modeld/switch", {"model": "cloud/big"})
    (shown,) = [m for m in (await editor.request("modeld/models"))["models"] if m["group"] == "remote"]
    assert (shown["id"], shown["context"], shown["selectable"]) == ("cloud/big", 32768, True)
