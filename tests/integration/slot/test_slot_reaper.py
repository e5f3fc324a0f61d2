"""A lease that really leaked: the worker has ended its turn and the daemon never heard of it."""

from __future__ import annotations

import anyio
import pytest

from modeld.host.worker_host import WorkerHost
from modeld.pipe.messages import Done, Emitted, FromWorker
from modeld.slot.caller import Client
from modeld_process import ENDLESS, write_models, write_script
from shared.errors import EngineFailed
from shared.paths import DataRoot
from shared.protocol import api
from shared.settings import Settings
from slot_inside import Inside, inside
from waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(120)]

SETTINGS = Settings(reaper_silence=0.3, reaper_interval=0.1, affinity_bound=1.0)
SHORT = {"pieces": ["x "] * 3, "when": "short"}
ZED, CODE = Client(1, "Zed"), Client(2, "VS Code")


class LossyPipes:
    """Real workers whose answers can be lost on their way, as a defect in either process would lose them."""

    def __init__(self) -> None:
        self.losing: tuple[type[FromWorker], ...] = ()
        self.lost = 0
        self.hosts: list[WorkerHost] = []

    def stand_between(self, host: WorkerHost) -> None:
        """Called with each worker before it is used."""
        self.hosts.append(host)
        receive = host._link._receive

        def lossy(message: FromWorker) -> None:
            if isinstance(message, self.losing):
                self.lost += 1
            else:
                receive(message)

        host._link._receive = lossy


@pytest.fixture
def pipes(data_root: DataRoot, monkeypatch: pytest.MonkeyPatch) -> LossyPipes:
    write_models(data_root, "a", "b")
    for name, value in write_script(data_root.path, [ENDLESS, SHORT], token_s=0.002).items():
        monkeypatch.setenv(name, value)
    return LossyPipes()


async def test_a_leaked_turn_is_reaped_reported_and_the_next_one_works(data_root: DataRoot, pipes: LossyPipes) -> None:
    async with inside(data_root, SETTINGS, started=pipes.stand_between) as modeld:
        await modeld.load("a", ZED)
        slot = modeld.slot
        pipes.losing = (Done, Emitted)
        with anyio.fail_after(20.0), pytest.raises(EngineFailed, match="forgotten"):
            await modeld.turn("a", ZED, "short")
        assert pipes.lost > 0
        pipes.losing = ()
        assert slot.leases.views() == []
        assert [kind for kind, _, _ in modeld.records.audited] == ["reaped"]
        assert any("reaped turn of Zed" in line for line in modeld.log)
        await eventually(lambda: not slot.state.closing, "the worker has gone")
        assert (slot.state.name, slot.state.generation) == ("Empty", 2)
        assert pipes.hosts[0].exited.is_set(), "the worker that forgot is gone"
        after = await modeld.turn("a", ZED, "short")
        assert (after.finish_reason, after.generation) == ("stop", 3)


async def test_a_leaked_turn_does_not_keep_others_waiting_for_ever(data_root: DataRoot, pipes: LossyPipes) -> None:
    async with inside(data_root, SETTINGS, started=pipes.stand_between) as modeld:
        await modeld.load("a", ZED)
        pipes.losing = (Done, Emitted)
        ends: list[str] = []

        async def leak() -> None:
            with pytest.raises(EngineFailed):
                await modeld.turn("a", ZED, "short")
            pipes.losing = ()

        async def wait() -> None:
            ends.append((await modeld.turn("a", CODE, "short")).finish_reason)

        with anyio.fail_after(20.0):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(leak)
                await eventually(lambda: modeld.slot.scheduler.current, "the one that leaks came first")
                tasks.start_soon(wait)
        assert ends == ["stop"]


async def test_a_pull_is_never_reaped_on_the_evidence_of_a_turn(data_root: DataRoot, pipes: LossyPipes) -> None:
    """Another piece of work of the daemon is silent all the while: the engine's account says nothing of it."""
    async with inside(data_root, SETTINGS, started=pipes.stand_between) as modeld:
        await modeld.load("a", ZED)
        with modeld.slot.leases.job("pull", "VS Code", modeld.slot.now(), "downloading"):
            pipes.losing = (Done, Emitted)
            with anyio.fail_after(20.0), pytest.raises(EngineFailed):
                await modeld.turn("a", ZED, "short")
            pipes.losing = ()
            assert [view.operation for view in modeld.slot.leases.views()] == ["pull"]
        assert [client for _, client, _ in modeld.records.audited] == ["Zed"]


async def test_lost_samples_alone_reap_nothing(data_root: DataRoot, pipes: LossyPipes) -> None:
    from modeld.pipe.messages import Account

    async with inside(data_root, SETTINGS, started=pipes.stand_between) as modeld:
        await modeld.load("a", ZED)
        pipes.losing = (Account, Emitted)  # nothing is heard, and nothing can be asked: that proves nothing
        result: list[api.TurnResult] = []

        async def run() -> None:
            result.append(await modeld.turn("a", ZED, "go on"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await silent_rounds(modeld, pipes)
            assert not result
            assert modeld.slot.state.name == "Busy"
            current = modeld.slot.scheduler.current
            assert current is not None
            modeld.slot.scheduler.stop(current)
        assert result[0].finish_reason == "cancelled"
        assert modeld.records.audited == []


async def silent_rounds(modeld: Inside, pipes: LossyPipes) -> None:
    """Until several samples were asked for and lost."""
    from modeld.pipe.messages import Account

    seen = 0
    host = pipes.hosts[0]
    receive = host._link._receive

    def counting(message: FromWorker) -> None:
        nonlocal seen
        seen += isinstance(message, Account)
        receive(message)

    host._link._receive = counting
    with anyio.fail_after(20.0):
        while seen < 4:
            await anyio.sleep(0.02)


async def test_a_lease_without_a_pin_goes_with_an_idle_engine_and_not_beside_its_work(
    data_root: DataRoot, pipes: LossyPipes
) -> None:
    async with inside(data_root, SETTINGS, started=pipes.stand_between) as modeld:
        await modeld.load("a", ZED)
        leaked = modeld.slot.leases.begin("embed", "VS Code", modeld.slot.now())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(modeld.turn, "a", ZED, "go on")
            await silent_rounds(modeld, pipes)
            assert modeld.slot.leases.view(leaked.number), "the engine works: for this one, for all that is known"
            current = modeld.slot.scheduler.current
            assert current is not None
            modeld.slot.scheduler.stop(current)
        pipes.losing = (Done, Emitted)
        with anyio.fail_after(20.0), pytest.raises(EngineFailed, match="forgotten"):
            await modeld.turn("a", ZED, "short")
        assert modeld.slot.leases.view(leaked.number) is None
        assert ("reaped", "VS Code") in [(kind, client) for kind, client, _ in modeld.records.audited]


async def test_what_is_pinned_to_a_worker_is_pinned_no_more_when_that_is_gone(
    data_root: DataRoot, pipes: LossyPipes
) -> None:
    """The next worker counts its turns from one: an old number would be taken for one of its own."""
    async with inside(data_root, SETTINGS, started=pipes.stand_between) as modeld:
        slot = modeld.slot
        await modeld.load("a", ZED)
        leaked = slot.leases.begin("turn", "Zed", slot.now())
        leaked.pin(7, slot.now())
        await modeld.load("b", CODE, allow_switch=True)
        view = slot.leases.view(leaked.number)
        assert view is not None
        assert view.pin is None
        leaked.end()
