"""What hangs below the slot (a drive, a driver, a frozen worker) never hangs the slot."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import psutil
import pytest

from frozen import freeze
from modeld.host.worker_host import WorkerHost
from modeld.memory.policy import DeviceMemory
from modeld.memory.probe import host_memory
from modeld.pipe.messages import ToWorker, TrimParked
from modeld.slot.caller import Client
from modeld_process import ENDLESS, Modeld, is_alive, write_models, write_script
from shared.catalog.entry import ModelEntry
from shared.errors import ModelLoadFailed
from shared.paths import DataRoot
from shared.protocol import api
from shared.settings import Settings
from slot_inside import Inside, inside
from waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.anyio,
    pytest.mark.timeout(120),
    pytest.mark.skipif(os.name == "nt", reason="SIGSTOP has no counterpart"),
]

SHORT = {"pieces": ["x "] * 3, "when": "short"}
ZED, CODE = Client(1, "Zed"), Client(2, "VS Code")
FOREVER = api.Sampling(max_tokens=10**6, temperature=0.0)


@pytest.fixture
def models(data_root: DataRoot, monkeypatch: pytest.MonkeyPatch) -> DataRoot:
    write_models(data_root, "a", "b")
    for name, value in write_script(data_root.path, [ENDLESS, SHORT], token_s=0.002).items():
        monkeypatch.setenv(name, value)
    return data_root


async def works(modeld: Inside, model: str) -> None:
    with anyio.fail_after(20.0):
        assert (await modeld.turn(model, CODE, "short")).finish_reason == "stop"


async def test_a_drive_that_hangs_can_be_given_up(models: DataRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is still being read when the client goes: the next client's model is loaded meanwhile."""
    reading, awake = threading.Event(), threading.Event()
    async with inside(models, Settings()) as modeld:
        checked = modeld.library.checked

        def hanging(entry: ModelEntry) -> ModelEntry:
            if entry.name == "a":
                reading.set()
                awake.wait(30.0)
            return checked(entry)

        monkeypatch.setattr(modeld.library, "checked", hanging)
        ends: list[api.TurnResult] = []

        async def ask() -> None:
            ends.append(await modeld.turn("a", ZED, "short"))

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await eventually(reading.is_set, "the file is read")
                assert modeld.slot.scheduler.current is not None
                modeld.slot.scheduler.drop_client(ZED.number)
                await works(modeld, "b")
            assert not awake.is_set()
            assert ends[0].finish_reason == "cancelled"
        finally:
            awake.set()


async def test_a_library_that_hangs_in_its_import_fails_the_load_by_name(models: DataRoot) -> None:
    frozen: list[WorkerHost] = []

    def first(host: WorkerHost) -> None:
        if not frozen:
            freeze(host.pid)
            frozen.append(host)

    async with inside(models, Settings(load_stall=0.5), started=first) as modeld:
        # where its library came in before the signal did, it hangs at the next step
        with anyio.fail_after(20.0), pytest.raises(ModelLoadFailed, match=r"not (imported|reported) within") as caught:
            await modeld.load("a", ZED)
        assert (caught.value.model, caught.value.stage) == ("a", "worker")
        await eventually(frozen[0].exited.is_set, "the worker that hung is gone")
        await works(modeld, "a")


@pytest.mark.parametrize(("step", "said"), [("imported", "not reported within"), ("devices", "no progress for")])
async def test_a_worker_that_hangs_at_a_later_step_of_a_load_fails_it_by_name(
    models: DataRoot, monkeypatch: pytest.MonkeyPatch, step: str, said: str
) -> None:
    done = getattr(WorkerHost, step)
    frozen: list[WorkerHost] = []

    async def then_freeze(host: WorkerHost, *arguments: Any) -> Any:
        answer = await done(host, *arguments)
        if not frozen:
            frozen.append(host)
        if host is frozen[0]:
            freeze(host.pid)
        return answer

    monkeypatch.setattr(WorkerHost, step, then_freeze)
    async with inside(models, Settings(load_stall=0.5)) as modeld:
        with anyio.fail_after(20.0), pytest.raises(ModelLoadFailed, match=said):
            await modeld.load("a", ZED)
        await eventually(frozen[0].exited.is_set, "the worker that hung is gone")
        await works(modeld, "a")


@pytest.fixture
def mute(models: DataRoot, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Workers that never say a word, as where a machine is too busy to start a process; until it is called."""
    program = models.path / "mute"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(program))
        yield patch.undo


async def test_a_worker_that_does_not_come_up_is_ended_with_its_load(
    models: DataRoot, mute: Callable[[], None]
) -> None:
    """At once, and not when its time is over, which is half a minute."""
    async with inside(models, Settings(load_rollback=0.0)) as modeld:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(modeld.turn, "a", ZED, "short")
            await eventually(sleepers, "the worker is spawned")
            mute()
            modeld.slot.scheduler.drop_client(ZED.number)
        await eventually(lambda: modeld.slot.state.name == "Empty", "the load is rolled back", 20.0)
        assert not sleepers()
        await works(modeld, "a")


async def test_a_slot_that_is_cancelled_while_a_worker_comes_up_leaves_nothing(
    models: DataRoot, mute: Callable[[], None]
) -> None:
    with anyio.fail_after(20.0), pytest.raises(BaseExceptionGroup):
        async with inside(models, Settings()) as modeld, anyio.create_task_group() as tasks:
            tasks.start_soon(modeld.turn, "a", ZED, "short")
            await eventually(sleepers, "the worker is spawned")
            raise OSError
    assert not sleepers()


def sleepers() -> list[psutil.Process]:
    """Children that never say a word."""
    return [child for child in psutil.Process().children() if child.name() == "sleep" and is_alive(child)]


async def test_a_worker_that_freezes_at_a_turns_border_is_killed_when_the_turn_is_stopped(models: DataRoot) -> None:
    """Parked conversations are dropped under pressure: a worker that never does it holds the slot no longer."""
    asked = anyio.Event()
    enough = host_memory()
    started: list[WorkerHost] = []

    def memory() -> DeviceMemory:
        short = len(started) == 1 and modeld.slot.state.name == "Busy"
        return DeviceMemory(device="CPU", total=enough.total, free=0) if short else enough

    def watch(host: WorkerHost) -> None:
        started.append(host)
        send = host._send

        def freezing(message: ToWorker) -> None:
            if isinstance(message, TrimParked) and host is started[0]:
                freeze(host.pid)
                asked.set()
            send(message)

        host._send = freezing  # type: ignore[method-assign]

    async with inside(models, Settings(cancel_limit=0.3), read_memory=memory, started=watch) as modeld:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(modeld.turn, "a", ZED, "short")
            with anyio.fail_after(20.0):
                await asked.wait()
            modeld.slot.scheduler.drop_client(ZED.number)
        await eventually(started[0].exited.is_set, "the worker that froze is gone")
        await works(modeld, "a")


async def test_a_frozen_worker_is_ended_by_a_cancel_and_by_an_unload(models: DataRoot) -> None:
    environ = {"MODELD_CANCEL_LIMIT": "0.3"}
    async with Modeld(models, "scripted", **environ) as modeld, modeld.client() as client:
        turn = client.turn("a", params=FOREVER)
        await turn.until(api.TextDelta)
        (worker,) = modeld.workers()
        worker.suspend()
        client.cancel(turn)
        assert (await turn.end()).finish_reason == "cancelled"
        await eventually(lambda: not is_alive(worker), "the worker is killed")
        assert (await client.turn("a", "short").end()).finish_reason == "stop"
        (worker,) = modeld.workers()
        worker.suspend()
        assert (await client.unload()).freed == "a"
        assert not is_alive(worker)
        assert (await client.turn("a", "short").end()).finish_reason == "stop"
