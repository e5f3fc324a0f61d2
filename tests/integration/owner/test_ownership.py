"""The daemon's hold: shared attempts, the last owner's worker, events, the store in step, a device of two roots."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest

from modeld.owner import previous_worker
from modeld.owner.ownership import Ownership
from modeld.store.store import Store
from shared.errors import DiskFull, NotOwner, RootUnusable
from shared.lease import files, reader
from shared.lease.process import identity
from shared.lease.record import Identity, LeaseRecord, Meta, Released, Worker, encode
from shared.paths import DataRoot
from shared.settings import Settings
from waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.anyio]
SETTINGS = Settings(lease_ttl=1.0)
SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
Make = Callable[..., Awaitable[Ownership]]


@pytest.fixture
def root(short_tmp: Path) -> DataRoot:
    return DataRoot(short_tmp / "data")


@pytest.fixture
async def make(root: DataRoot) -> AsyncIterator[Make]:
    made: list[Ownership] = []
    async with anyio.create_task_group() as tasks:

        async def begin(store: Store | None = None) -> Ownership:
            name = str(uuid.uuid4())
            one = Ownership(root, SETTINGS, name, meta=Meta(endpoint=f"unix:/{name[:8]}"), store=store or Store(root))
            made.append(one)
            await tasks.start(one.run)
            return one

        yield begin
        for one in made:
            await one.release("stop")
        tasks.cancel_scope.cancel()


async def test_nothing_is_taken_before_it_is_needed(root: DataRoot, make: Make) -> None:
    one = await make()
    assert (one.role, one.valid()) == ("idle", False)
    with pytest.raises(NotOwner):
        one.check()
    with pytest.raises(NotOwner):
        await one.confirm()
    assert not root.path.exists()
    epoch = await one.ensure()
    assert one.check() == await one.confirm() == epoch
    assert one.role == "owner"


async def test_an_error_that_nobody_foresaw_is_a_logged_defect_and_not_the_end(
    root: DataRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the watch's look and in the attempt of a caller; both go on when it has passed."""
    lines: list[str] = []
    broken = True
    sight = files.LeaseFolder.sight

    def look(folder: files.LeaseFolder) -> object:
        if broken:
            raise OverflowError("a secret of a record")
        return sight(folder)

    monkeypatch.setattr(files.LeaseFolder, "sight", look)
    one = Ownership(root, SETTINGS, "me", meta=Meta(endpoint="unix:/me"), store=Store(root), log=lines.append)
    async with anyio.create_task_group() as tasks:
        await tasks.start(one.run)
        await eventually(lambda: any("watch: OverflowError" in line for line in lines), "the watch has met it")
        with pytest.raises(RootUnusable) as refused:
            await one.ensure()
        assert "OverflowError" in refused.value.message
        assert any("take: OverflowError" in line for line in lines)
        assert not any("secret" in line for line in lines)
        broken = False
        assert (await one.ensure()).number == 1
        await one.release("stop")
        tasks.cancel_scope.cancel()


async def test_callers_at_the_same_time_share_one_attempt(make: Make) -> None:
    one = await make()
    got = []

    async def ask() -> None:
        got.append(await one.ensure())

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(ask)
    assert {epoch.number for epoch in got} == {1}


async def test_a_caller_that_gives_up_does_not_spoil_the_attempt(make: Make) -> None:
    one = await make()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await one.ensure()
    assert (await one.ensure()).number == 1


async def test_the_loser_learns_the_winners_endpoint(make: Make) -> None:
    one, two = await make(), await make()
    await one.ensure()
    with pytest.raises(NotOwner) as refused:
        await two.ensure()
    assert refused.value.owner == {"instance": one.instance, "endpoint": one.meta.endpoint}


async def test_an_instance_owns_once(make: Make) -> None:
    one, two = await make(), await make()
    await one.ensure()
    events: list[str] = []
    one.subscribe(events.append)
    assert await one.release("restart")
    assert events[-1] == "released"
    with pytest.raises(NotOwner):
        await one.ensure()
    assert (await two.ensure()).before == one.instance


async def test_a_loss_is_reported_and_the_store_closes(root: DataRoot, make: Make) -> None:
    store = Store(root)
    one = await make(store)
    await one.ensure()
    await store.register_backend("x", {}, by="t")
    lost = anyio.Event()
    one.subscribe(lambda event: lost.set() if event == "lost" else None)
    (root.owner / "7.lease").write_bytes(b"")
    with pytest.raises(NotOwner):
        await one.confirm()
    await lost.wait()
    assert one.epoch is None
    with pytest.raises(NotOwner):
        await store.register_backend("y", {}, by="t")
    assert await one.release("lost")


async def test_the_lease_goes_on_while_the_event_loop_hangs(make: Make) -> None:
    one = await make()
    await one.ensure()
    threading.Event().wait(2.0)  # the loop does nothing for two ttl
    assert one.valid()
    assert one.check().number == 1


async def test_the_worker_of_a_dead_owner_is_gone_before_ensure_returns(root: DataRoot, make: Make) -> None:
    me = identity.current()
    with subprocess.Popen(SLEEPER) as worker:
        named = Worker(
            **{
                **msgspec.structs.asdict(me),
                "pid": worker.pid,
                "start_token": identity.start_token(worker.pid) or "",
            }
        )
        dead = msgspec.structs.asdict(msgspec.structs.replace(me, pid=2**22 + 1))
        files.prepare(root)
        record = LeaseRecord(instance="dead", epoch=4, sequence=9, worker=named, **dead)
        (root.owner / "4.lease").write_bytes(encode(record))
        one = await make()
        epoch = await one.ensure()
        assert (epoch.number, epoch.before) == (5, "dead")
        assert identity.liveness(named.pid, named.start_token) == "gone"
        survey = reader.survey(root)
        assert survey.owner is not None
        assert survey.owner.worker is None


async def test_a_worker_that_cannot_be_seen_is_waited_out(root: DataRoot, make: Make) -> None:
    files.prepare(root)
    far = Worker(pid=4, start_token="4", host="elsewhere", boot_id="b", pid_namespace="n")
    record = LeaseRecord(
        instance="far", epoch=1, pid=3, sequence=5, worker=far, released=Released(reason="lost", at=0.0)
    )
    (root.owner / "1.lease").write_bytes(encode(record))
    one = await make()
    started = anyio.current_time()
    await one.ensure()
    assert anyio.current_time() - started >= SETTINGS.worker_watchdog


def test_a_reused_pid_is_never_killed(tmp_path: Path) -> None:
    me = identity.current()
    with subprocess.Popen(SLEEPER) as other:
        stale = Worker(**{**msgspec.structs.asdict(me), "pid": other.pid, "start_token": "1"})
        previous_worker.clear(stale, me, watchdog=30.0)
        assert not previous_worker.evict(Identity(**msgspec.structs.asdict(stale)), me, tmp_path / "local.db")
        assert other.poll() is None
        other.kill()


def test_this_process_never_evicts_itself(tmp_path: Path) -> None:
    me = identity.current()
    assert not previous_worker.evict(me, me, tmp_path / "local.db")


LOCKER = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None); db.execute('BEGIN IMMEDIATE'); "
LOCKER += "print('locked', flush=True); sys.stdin.read()"


@pytest.mark.parametrize("released", [True, False])
async def test_nobody_is_killed_for_a_lock_that_a_third_program_holds(
    root: DataRoot, make: Make, released: bool
) -> None:
    files.prepare(root)
    Store(root).take_over("old", 1)
    with (
        subprocess.Popen(SLEEPER) as owner,
        subprocess.Popen(
            [sys.executable, "-c", LOCKER, str(root.database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as third,
    ):
        try:
            assert third.stdout is not None
            third.stdout.readline()
            me = {**msgspec.structs.asdict(identity.current()), "pid": owner.pid}
            me["start_token"] = identity.start_token(owner.pid) or ""
            mark = Released(reason="stop", at=0.0) if released else None
            record = LeaseRecord(instance="x", epoch=1, sequence=3, ttl=0.2, released=mark, **me)
            (root.owner / "1.lease").write_bytes(encode(record))
            one = await make()
            with anyio.fail_after(15):
                while True:
                    with pytest.raises((NotOwner, RootUnusable)) as reported:
                        await one.ensure()
                    if issubclass(reported.type, RootUnusable):
                        break
                    await anyio.sleep(0.05)
            assert "locked" in str(reported.value)
            assert owner.poll() is None
        finally:
            owner.kill()
            third.kill()


class FullStore(Store):
    full = True

    def take_over(self, instance: str, epoch: int) -> None:
        if self.full:
            raise DiskFull(path="local.db", needed_bytes=1)
        super().take_over(instance, epoch)


async def test_a_store_that_fails_is_tried_again_under_the_same_lease(root: DataRoot, make: Make) -> None:
    store = FullStore(root)
    one = await make(store)
    with pytest.raises(DiskFull):
        await one.ensure()
    assert not one.valid()
    store.full = False
    assert (await one.ensure()).number == 1
    await store.register_backend("x", {}, by="t")


async def test_the_epoch_is_above_the_one_in_the_database(root: DataRoot, make: Make) -> None:
    files.prepare(root)
    store = Store(root)
    store.take_over("old", 30)
    store.let_go()
    one = await make()
    with pytest.raises(NotOwner):  # it knows of an owner whose record is gone: that is watched first
        await one.ensure()
    with anyio.fail_after(30):
        while one.epoch is None:
            await anyio.sleep(0.05)
            try:
                await one.ensure()
            except NotOwner:
                continue
    assert one.epoch.number == 31


async def test_a_new_endpoint_is_published_in_the_lease(root: DataRoot, make: Make) -> None:
    one = await make()
    await one.publish(Meta(endpoint="unix:/before"))
    await one.ensure()
    await one.publish(Meta(endpoint="unix:/after", backend="llama"))
    survey = reader.survey(root)
    assert survey.owner is not None
    assert (survey.owner.endpoint, survey.owner.backend) == ("unix:/after", "llama")
