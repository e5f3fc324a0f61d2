"""A turn whose model is not the active one: who is asked, what the answers do, and who is informed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from bridge_fakes import Bench, Emit, FakeDaemon, active, bridge, result, running
from shared.errors import ModeldError, ModelSwitchRequired
from shared.protocol import api

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

SENTENCE = "Switching from beta to alpha will unload beta and drop its warm context"


def in_use(daemon: FakeDaemon, users: list[str]) -> None:
    """beta is active and used by others, as modeld judges it."""
    daemon.status = api.Status(
        instance=daemon.instance, role="owner", pid=1, backend="llama", state="Ready", generation=1,
        active=active("beta"),
    )  # fmt: skip

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        del cancelled
        if not params.allow_switch or (users and not params.consent):
            raise ModelSwitchRequired(active="beta", requested=params.model, in_use_by=list(users))
        emit(api.Loading(fraction=0.5, model=params.model, unloads="beta"))
        emit(api.TextDelta(text="done"))
        return result(params)

    daemon.script = script


def answering(option: str | None) -> Callable[[str, dict[str, Any]], Awaitable[Any]]:
    async def answer(method: str, params: dict[str, Any]) -> Any:
        assert method == "session/request_permission"
        assert SENTENCE in params["toolCall"]["title"]
        if option is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": option}}

    return answer


async def begin(client: Any) -> str:
    await client.initialize()
    session: str = await client.new()
    await client.request("session/set_config_option", {"sessionId": session, "configId": "model", "value": "alpha"})
    return session


async def test_a_model_that_nobody_uses_is_switched_without_asking(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        in_use(daemon, [])
        session = await begin(client)
        assert (await client.prompt(session, "hi"))["stopReason"] == "end_turn"
        assert client.asked == []
        titles = [update.get("title") for _, update in client.updates if update["sessionUpdate"] == "tool_call"]
        assert titles == ["Loading alpha (50 %, unloading beta)"]


async def test_switch_now_carries_the_consent(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        in_use(daemon, ["Zed"])
        session = await begin(client)
        client.answer = answering("switch")
        assert (await client.prompt(session, "hi"))["stopReason"] == "end_turn"
        assert [turn.consent for turn in daemon.turns] == [False, True]
        await client.prompt(session, "again")
        assert len(client.asked) == 2, "once is once"


async def test_always_is_asked_once_a_session(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        in_use(daemon, ["Zed"])
        session = await begin(client)
        client.answer = answering("switch_always")
        await client.prompt(session, "hi")
        await client.prompt(session, "again")
        assert len(client.asked) == 1


@pytest.mark.parametrize("answer", ["decline", None, "nonsense"])
async def test_a_refused_switch_is_a_typed_error(bench: Bench, answer: str | None) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        in_use(daemon, ["Zed"])
        session = await begin(client)
        client.answer = answering(answer)
        with pytest.raises(ModeldError) as refused:
            await client.prompt(session, "hi")
        assert refused.value.kind == "consent_declined"
        assert "Zed" in refused.value.message
        assert not any(turn.consent for turn in daemon.turns)


async def test_an_editor_that_cannot_ask_has_not_consented(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        in_use(daemon, ["Zed"])
        session = await begin(client)
        with pytest.raises(ModeldError) as refused:
            await client.prompt(session, "hi")
        assert refused.value.kind == "consent_declined"
        assert "this editor cannot ask for permission" in refused.value.message


async def test_waiting_goes_when_the_other_is_done(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acp_bridge.turn.model.consent.WAIT_STEP_S", 0.02)
    users = ["Zed"]
    async with running(bench) as daemon, bridge(bench) as client:
        in_use(daemon, users)
        session = await begin(client)
        client.answer = answering("wait")
        async with anyio.create_task_group() as group:

            async def prompt() -> None:
                assert (await client.prompt(session, "hi"))["stopReason"] == "end_turn"

            group.start_soon(prompt)
            await client.wait_for(lambda: any("Waiting until Zed" in str(update) for _, update in client.updates))
            users.clear()
        assert not any(turn.consent for turn in daemon.turns)
        assert len(client.asked) == 1


async def test_a_cancel_ends_the_question(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        in_use(daemon, ["Zed"])
        session = await begin(client)
        asked = anyio.Event()

        async def never(method: str, params: dict[str, Any]) -> Any:
            asked.set()
            await anyio.sleep_forever()

        client.answer = never
        async with anyio.create_task_group() as group:

            async def prompt() -> None:
                assert (await client.prompt(session, "hi"))["stopReason"] == "cancelled"

            group.start_soon(prompt)
            await asked.wait()
            client.notify("session/cancel", {"sessionId": session})


async def test_who_was_switched_away_is_reported_once(bench: Bench) -> None:
    async with running(bench) as daemon, bridge(bench) as client:
        daemon.push(active=active("alpha"))
        session = await begin(client)
        await client.prompt(session, "hi")
        daemon.push(active=active("alpha"))
        holder = api.BusyOperation(operation="turn", stage="prefill", holder="Cursor", age_s=0.1)
        daemon.push(active=active("beta"), state="Busy", busy=holder)
        await client.wait_for(lambda: "beta" in str(bench.core.daemon.status and bench.core.daemon.status.active))
        await client.prompt(session, "again")
        await client.prompt(session, "and again")
        assert client.text().count("Cursor switched from alpha to beta") == 1
