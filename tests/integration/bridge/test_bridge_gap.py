"""The daemon goes, comes back, changes hands, or hangs: what the picker shows and what a prompt gets."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.from_thread
import msgspec
import pytest

from acp_bridge.models.view import Advertised
from bridge_fakes import Bench, FakeDaemon, bridge, conversation, opened, pair, row, running, says
from shared.client.locate import CRASHED_TEXT, Detection
from shared.errors import ModeldError, NotOwner
from shared.protocol import api
from shared.protocol.requests import Call

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

RESTARTING = Detection(state="restarting", last_seen=1.0)
STOPPED = Detection(state="not_running", last_seen=1.0, stopped=True)


def quick(bench: Bench, **more: Any) -> None:
    """Half a second is long for a test."""
    bench.settings = msgspec.structs.replace(bench.settings, away_check=0.02, **more)


async def test_a_prompt_in_the_gap_is_served_when_the_daemon_is_back(bench: Bench) -> None:
    quick(bench)
    bench.records.detection = RESTARTING
    async with opened(bench) as (client, session):
        async with anyio.create_task_group() as group:

            async def prompt() -> None:
                assert (await client.prompt(session, "hi"))["stopReason"] == "end_turn"

            group.start_soon(prompt)
            await client.wait_for(lambda: "Waiting for modeld" in str(client.updates))
            daemon = FakeDaemon(bench.folder / "run")
            bench.attach(daemon)
            group.start_soon(daemon.serve)
            await client.wait_for(lambda: client.text() == "Hello world")
            group.start_soon(_close_later, daemon, client)


async def _close_later(daemon: FakeDaemon, client: Any) -> None:
    await client.wait_for(lambda: "usage_update" in client.kinds())
    await anyio.lowlevel.checkpoint()
    daemon.close()


async def test_a_gap_that_does_not_end_is_one_retryable_line(bench: Bench) -> None:
    quick(bench, gap_wait=0.1)
    bench.records.detection = RESTARTING
    async with opened(bench) as (client, session):
        with pytest.raises(ModeldError) as refused:
            await client.prompt(session, "hi")
        assert refused.value.kind == "daemon_restarting"
        assert refused.value.retryable


async def test_a_modeld_that_was_killed_is_not_called_restarting(bench: Bench) -> None:
    quick(bench, gap_wait=0.1)
    bench.records.detection = msgspec.structs.replace(RESTARTING, crashed=True)
    async with opened(bench) as (client, session):
        with pytest.raises(ModeldError) as refused:
            await client.prompt(session, "hi")
        assert refused.value.message == CRASHED_TEXT
        assert "Waiting for modeld, which ended unexpectedly" in str(client.updates)


def dies_in_a_turn(bench: Bench, daemon: FakeDaemon, left: Detection) -> None:
    """It ends behind half of its next answer; `left` is what its records say then."""

    async def dies(params: api.TurnParams, emit: Any, cancelled: anyio.Event) -> api.TurnResult:
        emit(api.TextDelta(text="half"))
        await daemon.peers[-1].drain()
        bench.records.detection = left
        daemon.close()
        await anyio.sleep_forever()
        raise AssertionError

    daemon.script = dies


async def test_a_modeld_killed_in_the_middle_of_an_answer_is_not_called_restarting(bench: Bench) -> None:
    quick(bench, gap_wait=0.1)
    async with anyio.create_task_group() as group:
        daemon = FakeDaemon(bench.folder / "run")
        bench.attach(daemon)
        group.start_soon(daemon.serve)
        async with opened(bench) as (client, session):
            dies_in_a_turn(bench, daemon, msgspec.structs.replace(RESTARTING, crashed=True))
            with pytest.raises(ModeldError) as failed:
                await client.prompt(session, "hi")
            assert (failed.value.kind, failed.value.message) == ("daemon_restarting", CRASHED_TEXT)
        group.cancel_scope.cancel()


async def test_after_a_stop_nobody_waits(bench: Bench) -> None:
    quick(bench, gap_wait=1000.0)
    bench.records.detection = STOPPED
    async with opened(bench) as (client, session):
        with anyio.fail_after(5):
            with pytest.raises(ModeldError) as refused:
                await client.prompt(session, "hi")
        assert refused.value.kind == "daemon_not_running"
        assert not [kind for kind in client.kinds() if kind == "tool_call"]


async def test_a_cancel_in_the_gap(bench: Bench) -> None:
    quick(bench, gap_wait=1000.0)
    bench.records.detection = RESTARTING
    async with opened(bench) as (client, session):
        async with anyio.create_task_group() as group:

            async def prompt() -> None:
                assert (await client.prompt(session, "hi"))["stopReason"] == "cancelled"

            group.start_soon(prompt)
            await client.wait_for(lambda: "Waiting for modeld" in str(client.updates))
            client.notify("session/cancel", {"sessionId": session})


async def test_a_daemon_killed_in_a_turn_is_typed_and_the_next_turn_works(bench: Bench) -> None:
    quick(bench, gap_wait=5.0)
    async with pair(bench) as (first, second), opened(bench) as (client, session):
        dies_in_a_turn(bench, first, RESTARTING)
        with pytest.raises(ModeldError) as failed:
            await client.prompt(session, "hi")
        assert failed.value.kind == "daemon_restarting"
        bench.attach(second)
        assert (await client.prompt(session, "again"))["stopReason"] == "end_turn"
        assert second.turns[0].fence == second.instance


async def test_a_turn_whose_daemon_goes_before_the_answer_is_asked_again(bench: Bench) -> None:
    quick(bench, gap_wait=5.0)
    async with pair(bench) as (first, second), bridge(bench) as client:
        await client.initialize()
        session = await client.new()

        async def dies(params: api.TurnParams, emit: Any, cancelled: anyio.Event) -> api.TurnResult:
            emit(api.Prefill(done=0, total=10))
            await first.peers[-1].drain()
            bench.attach(second)
            first.close()
            await anyio.sleep_forever()
            raise AssertionError

        first.script = dies
        assert (await client.prompt(session, "hi"))["stopReason"] == "end_turn"
        assert (len(first.turns), len(second.turns)) == (1, 1)
        assert second.turns[0].model == first.turns[0].model
        assert client.text() == "Hello world"


async def test_a_call_to_who_no_longer_owns_goes_to_the_owner_once(bench: Bench) -> None:
    quick(bench)
    async with pair(bench) as (old, new), opened(bench) as (client, session):
        await client.prompt(session, "hi")

        async def lost(call: Call) -> Any:
            bench.attach(new)
            raise NotOwner(owner={"instance": new.instance, "endpoint": new.target.address})

        old.answers["session/turn"] = lost
        assert (await client.prompt(session, "again"))["stopReason"] == "end_turn"
        before = len(old.methods)
        await client.prompt(session, "and again")
        assert len(old.methods) == before, "nothing is sent to who does not own"
        assert len(new.turns) == 2


async def test_an_owner_that_loses_its_lease_in_the_answer_ends_the_turn_and_nothing_is_said_twice(
    bench: Bench,
) -> None:
    quick(bench, gap_wait=5.0)
    async with pair(bench) as (old, new), opened(bench) as (client, session):

        async def loses(params: api.TurnParams, emit: Any, cancelled: anyio.Event) -> api.TurnResult:
            emit(api.TextDelta(text="half"))
            bench.attach(new)
            raise NotOwner(owner=None)

        old.script = loses
        with pytest.raises(ModeldError) as failed:
            await client.prompt(session, "hi")
        assert failed.value.kind == "daemon_restarting"
        assert client.text() == "half"
        assert new.turns == []
        assert (await client.prompt(session, "again"))["stopReason"] == "end_turn"
        assert [turn.fence for turn in new.turns] == [new.instance]


async def test_another_instance_at_the_address_is_not_called(bench: Bench) -> None:
    """The record is of one that has gone: nothing but a greeting reaches whoever answers there now."""
    quick(bench, gap_wait=0.1)
    async with running(bench) as daemon, bridge(bench) as client:
        old = msgspec.structs.replace(daemon.target, instance="cccccccc-3")
        bench.records.detection = Detection(state="running", targets=(old,))
        await client.initialize()
        session = await client.new()
        with pytest.raises(ModeldError) as refused:
            await client.prompt(session, "hi")
        assert refused.value.kind == "daemon_restarting"
        assert set(daemon.methods) == {"hello"}


async def test_owners_that_keep_changing_end_in_an_error(bench: Bench) -> None:
    quick(bench, gap_wait=0.1)
    async with running(bench) as daemon, bridge(bench) as client:

        async def never(call: Call) -> Any:
            raise NotOwner(owner=None)

        daemon.answers["session/turn"] = never
        await client.initialize()
        session = await client.new()
        with pytest.raises(ModeldError) as refused:
            await client.prompt(session, "hi")
        assert refused.value.kind == "daemon_restarting"


async def test_a_hung_daemon_is_a_typed_error_within_the_dial_time(bench: Bench) -> None:
    quick(bench, dial_timeout=0.1, gap_wait=1.0)
    async with running(bench) as daemon, bridge(bench) as client:
        daemon.hung = True
        await client.initialize()
        session = await client.new()
        with pytest.raises(ModeldError) as refused:
            await client.prompt(session, "hi")
        assert refused.value.kind == "daemon_unreachable"
        assert "does not answer" in refused.value.message
        assert "Waiting for modeld, which does not answer" in str(client.updates)


async def test_a_miss_heals_once_and_never_by_another_model(bench: Bench) -> None:
    bench.inventory.advertised = Advertised(rows=(row("alpha"),))
    async with running(bench) as daemon, opened(bench) as (client, session):
        await client.request("session/set_config_option", {"sessionId": session, "configId": "model", "value": "alpha"})
        bench.inventory.advertised = Advertised(rows=(row("beta"),))
        bench.core.models.on_change(client.wake)
        bench.core.models.touch()
        await client.wait_for(lambda: bench.core.models.row("alpha") is None)
        with pytest.raises(ModeldError) as missing:
            await client.prompt(session, "hi")
        assert missing.value.kind == "no_satisfactory_model"
        assert daemon.turns == []
        assert bench.inventory.refreshed == 1
        bench.inventory.on_refresh = lambda: setattr(
            bench.inventory, "advertised", Advertised(rows=(row("alpha"), row("beta")))
        )
        daemon.push()
        bench.core.models._heal._last = None
        assert (await client.prompt(session, "hi"))["stopReason"] == "end_turn"
        assert bench.inventory.refreshed == 2
        assert daemon.turns[0].model == "alpha"


async def test_the_picker_is_pushed_when_models_come_and_go(bench: Bench) -> None:
    async with running(bench), bridge(bench) as client:
        await client.initialize()
        await client.new()
        await client.wait_for(lambda: "available_commands_update" in client.kinds())
        bench.inventory.advertised = Advertised(rows=(row("gamma"),))
        bench.inventory.changed()
        await client.wait_for(lambda: "gamma" in str(client.updates))
        assert client.kinds().count("config_option_update") == 1


async def test_what_does_not_fit_is_left_out_whole_and_said(bench: Bench) -> None:
    from bridge_fakes import active

    async with running(bench) as daemon, bridge(bench) as client:
        daemon.status = msgspec.structs.replace(daemon.status, active=active("alpha", 400))
        daemon.script = says("answer " * 40)
        await client.initialize()
        session = await client.new()
        for number in range(3):
            daemon.count = api.CountResult(each=[10, *[50] * (number * 2 + 1)], total=50 * (number * 2 + 1) + 10)
            await client.prompt(session, f"question {number} " + "x" * 400)
        daemon.count = api.CountResult(each=[10, *[50] * 7], total=360)
        await client.prompt(session, "last " + "x" * 400)
        sent = conversation(daemon.turns[-1])
        assert sent[0]["role"] == "user"
        assert len(sent) == 3
        assert "The first 4 messages" in client.text()
        assert "question 0" in str(daemon.turns[0].messages)


async def test_counting_waits_for_a_daemon_that_comes_back(bench: Bench) -> None:
    """A long conversation is counted before its turn: a gap that begins right there is the same gap."""
    from bridge_fakes import active

    quick(bench, gap_wait=5.0)
    async with pair(bench) as (first, second):
        for daemon in (first, second):
            daemon.status = msgspec.structs.replace(daemon.status, active=active("alpha", 400))
        second.count = api.CountResult(each=[100], total=110)
        async with bridge(bench) as client:
            await client.initialize()
            session = await client.new()
            await client.wait_for(lambda: bench.core.daemon.status is not None)

            async def goes(call: Call) -> Any:
                bench.attach(second)
                first.close()
                await anyio.sleep_forever()

            first.answers["model/count"] = goes
            assert (await client.prompt(session, "x" * 800))["stopReason"] == "end_turn"
            assert first.turns == []
            assert len(second.turns) == 1


async def test_a_message_larger_than_the_window_says_the_numbers(bench: Bench) -> None:
    from shared.errors import ContextOverflow

    async with running(bench) as daemon, bridge(bench) as client:

        async def refuse(params: api.TurnParams, emit: Any, cancelled: anyio.Event) -> api.TurnResult:
            raise ContextOverflow(context=400, resident=0, additional=900)

        daemon.script = refuse
        daemon.count = api.CountResult(each=[10, 900], total=910)
        await client.initialize()
        session = await client.new()
        with pytest.raises(ModeldError) as refused:
            await client.prompt(session, "x")
        assert refused.value.kind == "context_overflow"
        assert refused.value.additional == 910
        daemon.script = says("fine")
        await client.prompt(session, "short")
        assert conversation(daemon.turns[-1]) == [{"role": "user", "content": "short"}]


async def test_an_owner_frozen_and_replaced_between_turns_is_not_called(bench: Bench) -> None:
    quick(bench, dial_timeout=0.2)
    async with pair(bench) as (old, new), opened(bench) as (client, session):
        await client.prompt(session, "hi")
        old.frozen = True
        bench.attach(new)
        assert (await client.prompt(session, "again"))["stopReason"] == "end_turn"
        assert (len(old.turns), len(new.turns)) == (1, 1)


async def test_an_owner_frozen_in_a_turn_ends_it_with_a_typed_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_bridge.daemon.client.TURN_CHECK_S", 0.05)
    quick(bench, dial_timeout=0.1, gap_wait=0.2)
    async with running(bench) as daemon, opened(bench) as (client, session):

        async def frozen(params: api.TurnParams, emit: Any, cancelled: anyio.Event) -> api.TurnResult:
            daemon.frozen = True
            await anyio.sleep_forever()
            raise AssertionError

        daemon.script = frozen
        with pytest.raises(ModeldError) as failed:
            await client.prompt(session, "hi")
        assert failed.value.kind == "daemon_unreachable"
        assert len(daemon.turns) == 1


async def test_a_pick_that_is_recalled_late_still_answers(bench: Bench) -> None:
    """On a slow disk the session is there first; its first prompt waits for what was picked, and asks nobody else."""
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        first = await client.new()
        setting = {"sessionId": first, "configId": "model", "value": "beta"}
        await client.request("session/set_config_option", setting)
        gate = anyio.Event()
        remembered = bench.core.store.remembered

        async def slowly(workspace: str) -> str:
            await gate.wait()
            return await remembered(workspace)

        bench.core.store.remembered = slowly  # type: ignore[method-assign]
        session = await client.new()
        async with anyio.create_task_group() as group:

            async def prompt() -> None:
                await client.prompt(session, "hi")

            group.start_soon(prompt)
            await anyio.wait_all_tasks_blocked()
            assert daemon.turns == []
            gate.set()
        assert daemon.turns[0].model == "beta"
        await client.wait_for(
            lambda: any(s == session and "'currentValue': 'beta'" in str(u) for s, u in client.updates)
        )


async def test_a_heal_that_was_cancelled_is_done_by_who_waits_for_it(bench: Bench) -> None:
    bench.inventory.advertised = Advertised(reason="nothing yet")
    entered, gate = anyio.Event(), threading.Event()
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        first, second = await client.new(), await client.new()

        def blocked() -> None:
            anyio.from_thread.run_sync(entered.set)
            gate.wait(5)

        bench.inventory.on_refresh = blocked
        async with anyio.create_task_group() as group:

            async def cancelled() -> None:
                assert (await client.prompt(first, "hi"))["stopReason"] == "cancelled"

            async def served() -> None:
                assert (await client.prompt(second, "hi"))["stopReason"] == "end_turn"

            group.start_soon(cancelled)
            await entered.wait()
            group.start_soon(served)
            await anyio.wait_all_tasks_blocked()
            bench.inventory.on_refresh = lambda: setattr(
                bench.inventory, "advertised", Advertised(rows=(row("alpha"),))
            )
            client.notify("session/cancel", {"sessionId": first})
        gate.set()
        assert bench.inventory.refreshed == 2
        assert [turn.model for turn in daemon.turns] == ["alpha"]
