"""The daemon's hold on the hardware: taken at the first resident operation, checked before each use.

One Ownership belongs to one instance id and owns at most once. After a loss the daemon ends its
worker, calls `release("lost")` and goes on with a new instance id and a new Ownership.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from functools import partial
from typing import Literal, TypeVar

import anyio
import anyio.abc
import msgspec

from modeld.owner import previous_worker
from modeld.owner.coordination import Coordination
from modeld.owner.process_exit_watch import DeathWatch
from modeld.owner.standby import Standby
from modeld.owner.trace import Trace
from modeld.store.database import StoreBusy
from shared.clock import Clock, SystemClock
from shared.diagnosis.defect import where
from shared.diagnosis.exhausted import exhausted
from shared.diagnosis.threads import in_thread, poster, somehow
from shared.endpoint.folder import user_folder
from shared.errors import ModeldError, NotOwner, RootUnusable
from shared.lease import disk, files, policy, presence
from shared.lease.contender import Contender, Look, Taken
from shared.lease.keeper import Keeper, KeeperEvent, LeaseLost
from shared.lease.process import identity
from shared.lease.record import LONGEST_TTL, LeaseRecord, Meta, Worker, meta_of
from shared.paths import DataRoot
from shared.protocol.api import Role
from shared.settings import Settings

OwnershipEvent = Literal["acquired", "renewed", "freeze", "thaw", "lost", "released"]
RELEASE_WAIT = 5.0
#: For the database to be closed before that, on a disk that may be stalled. Seconds.
CLOSE_WAIT = 1.0

T = TypeVar("T")


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """An ownership as the daemon sees it. `before` is the instance that owned last, or ""."""

    number: int
    instance: str
    before: str = ""


class Ownership:
    """See the module. Run `run` in a task for as long as the instance lives.

    Events reach the subscribers on the event loop, in order. The clock is the fence: `valid` says
    the truth also while the loop, or the filesystem, hangs.
    """

    def __init__(
        self,
        root: DataRoot,
        settings: Settings,
        instance: str,
        *,
        meta: Meta,
        store: Coordination,
        clock: Clock | None = None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.instance = instance
        self.meta = meta
        self._root = root
        self._ttl = min(settings.lease_ttl, LONGEST_TTL)
        self._clock = clock if clock is not None else SystemClock()
        self._store = store
        self._log = log
        self._trace = Trace(user_folder(), root, instance)
        self._folder = files.LeaseFolder(root, instance, self._trace)
        self._me = identity.current()
        self._contender = Contender(self._folder, self._me, self._clock, self._ttl)
        self._keeper: Keeper | None = None
        self._epoch: Epoch | None = None
        self._over = False
        self._subscribers: list[Callable[[OwnershipEvent], None]] = []
        self._files_lock = anyio.Lock()
        self._attempt: _Attempt | None = None
        self._changed = anyio.Event()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._standby = Standby()
        self._wake = anyio.Event()
        self._deathwatch = DeathWatch(self._me, self._wake_up)
        self._before: LeaseRecord | None = None
        self._stood_still = False
        self._left: Worker | None = None
        self._why = ""
        self._post: Callable[..., None] | None = None

    # --- asking ---

    @property
    def epoch(self) -> Epoch | None:
        """The ownership held, or None."""
        return self._epoch

    @property
    def last_look(self) -> Look | None:
        """What the watch saw last, for status. None while owning or before the first look."""
        return self._standby.last

    @property
    def role(self) -> Role:
        """`owner`; `standby` beside a living owner; `idle` when nobody owns."""
        if self._epoch is not None:
            return "owner"
        last = self._standby.last
        return "standby" if last is not None and last.standing == "held" else "idle"

    @property
    def why_lost(self) -> str:
        """How the lease was lost, in words; "" while it was not."""
        return self._why

    def subscribe(self, callback: Callable[[OwnershipEvent], None]) -> None:
        """Call `callback` on the event loop at each event. It must not raise."""
        self._subscribers.append(callback)

    def valid(self) -> bool:
        """Whether this instance may act as the owner at this moment. Cheap, from any thread."""
        return self._epoch is not None and self._keeper is not None and self._keeper.valid()

    def check(self) -> Epoch:
        """The epoch, if this instance may act now. Raises NotOwner (also while frozen). Cheap."""
        if self._epoch is None or not self.valid():
            raise NotOwner(owner=None)
        return self._epoch

    async def confirm(self) -> Epoch:
        """Before each load and turn: wait out a freeze, and see that no higher epoch exists.

        Raises NotOwner.
        """
        await self._settled()
        keeper = self._keeper
        if keeper is None or self._epoch is None:
            raise NotOwner(owner=None)
        try:
            with anyio.fail_after(policy.validity(self._ttl)):
                await in_thread(keeper.confirm, abandon_on_cancel=True)
        except (LeaseLost, TimeoutError, OSError) as error:
            raise NotOwner(owner=None) from error
        return self.check()

    # --- taking and letting go ---

    async def ensure(self) -> Epoch:
        """Own, now. The first resident operation calls this; callers at the same time share one attempt.

        Raises NotOwner with the winner, RootUnusable, NetworkFilesystem, DiskFull, DeviceBusy (a
        worker of the last owner does not end).
        """
        await self._settled()
        if self._epoch is not None and self.valid():
            return self._epoch
        if self._over or self._tasks is None:
            raise NotOwner(owner=None)
        attempt = self._attempt
        if attempt is None:
            attempt = self._attempt = _Attempt()
            self._tasks.start_soon(self._try, attempt)
        await attempt.done.wait()
        if attempt.error is not None:
            raise attempt.error
        return self.check()

    async def name_worker(self, pid: int, start_token: str) -> None:
        """Write the worker into the lease: it may load only after this returned. Raises NotOwner."""
        worker = Worker(**{**msgspec.structs.asdict(self._me), "pid": pid, "start_token": start_token})
        await self._write_worker(worker)

    async def clear_worker(self) -> None:
        """After the worker was seen gone. Raises NotOwner."""
        await self._write_worker(None)

    async def publish(self, meta: Meta) -> None:
        """The endpoint has changed: write it into the lease, if one is held. Raises NotOwner."""
        self.meta = meta
        keeper = self._keeper
        if keeper is not None and self._epoch is not None:
            await self._in_thread(lambda: keeper.publish(msgspec.to_builtins(meta)))

    async def release(self, reason: str) -> bool:
        """Let go for good, after the worker was seen gone. Whether the mark is on disk.

        `reason`: stop, restart, upgrade, shutdown; lost after a loss. Does nothing without a lease.
        """
        keeper, self._epoch, self._over = self._keeper, None, True
        if keeper is None:
            return True
        self._keeper = None
        closed = self._store.let_go()
        gone = self._left is None

        def let_go() -> bool:
            # who has released is never ended by anybody, so it must hold no lock of the database by then
            if closed is not None:
                futures.wait([closed], timeout=CLOSE_WAIT)
            return keeper.release(reason, RELEASE_WAIT, worker_gone=gone)

        written = await somehow(let_go, abandon_on_cancel=True)
        self._tell("released")
        return written

    # --- the life of the instance ---

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch the lease while this instance does not own it, and step in after a crash. Until cancelled."""
        self._post = poster()
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                task_status.started()
                while self._keeper is None and not self._over:
                    await self._watch()
                    with anyio.move_on_after(self._pause()):
                        await self._wake.wait()
                    self._wake = anyio.Event()
                self._deathwatch.close()
                await anyio.sleep_forever()  # an instance owns once: there is nothing to look for any more
            finally:
                self._deathwatch.close()
                self._tasks = None

    def _wake_up(self) -> None:
        self._wake.set()

    def _pause(self) -> float:
        """Until the next look; the owner's end is reported before that where the system can tell it."""
        last = self._standby.last
        held = last.record if last is not None and last.standing == "held" else None
        reported = self._deathwatch.follow(held.identity if held is not None else None)
        provable = held is not None and policy.can_prove(held.identity, self._me)
        return self._standby.pause(self._ttl, reported=reported, provable=provable)

    async def _watch(self) -> None:
        try:
            step_in = await self._exclusive(self._look_as_standby)
        except OSError:
            return  # nothing is known; ensure explains it to whoever asks
        except Exception as error:
            self._defect("watch", error)
            return
        if step_in:
            try:
                await self.ensure()
            except ModeldError:
                return  # somebody else has it, or the root is unusable: the next caller is informed

    def _look_as_standby(self) -> bool:
        look = self._contender.look()
        return self._standby.saw(look, self._clock.awake(), self._rank, policy.patience(self._ttl))

    def _rank(self, gone: str) -> int | None:
        return presence.rank_of(self.instance, self._root, self._me, without=gone)

    async def _try(self, attempt: _Attempt) -> None:
        try:
            await self._exclusive(self._take)
            await self._settle_in()
        except ModeldError as error:
            attempt.error = error
        except Exception as error:  # whatever stands on the disk, the daemon outlives a look at it
            self._defect("take", error)
            attempt.error = exhausted(error) or RootUnusable(
                path=str(self._root.path), hint=f"{type(error).__name__} while the lease was taken; see `modeld logs`"
            )
        finally:
            if attempt.error is None and not self.valid():
                attempt.error = NotOwner(owner=None)
            self._attempt = None
            attempt.done.set()

    def _take(self) -> None:
        """Blocking: the whole way from a look to the owner row."""
        if self._keeper is not None:
            return
        files.prepare(self._root)
        floor = self._contender.floor = self._store.stored_epoch()
        try:
            look = self._contender.look()
            taken = self._contender.take(
                look, self.instance, ttl=self._ttl, meta=msgspec.to_builtins(self.meta), floor=floor
            )
            if taken is None:
                raise NotOwner(owner=winner_of(self._contender.look().record))
        except OSError as error:
            disk.explain(error, self._root.owner)
        self._begin(taken)

    def _begin(self, taken: Taken) -> None:
        keeper = Keeper(self._folder, taken, self._clock, self._from_keeper)
        self._before = taken.before
        self._stood_still = taken.standing == "expired"
        self._left = taken.record.worker
        keeper.start()
        self._keeper = keeper
        try:
            self._folder.sweep(taken.record.epoch, self._clock.wall())
            presence.sweep(self._root, self._me, self._clock.wall())
        except OSError:
            return  # old files do no harm; the next owner sweeps them

    async def _settle_in(self) -> None:
        """The lease is ours: make the owner row, see the last owner's worker gone, then tell.

        What fails here is tried again by the next `ensure`; the lease is kept meanwhile.
        """
        keeper = self._keeper
        if keeper is None or self._epoch is not None:
            return
        number = keeper.record.epoch
        await in_thread(self._open_store, number, abandon_on_cancel=True)
        if self._left is not None:
            seen = self._before.renewed if self._before is not None else 0.0
            clear = partial(previous_worker.clear, self._left, self._me, policy.validity(self._ttl), seen)
            await in_thread(clear, abandon_on_cancel=True)
            await self._in_thread(lambda: keeper.name_worker(None))
            self._left = None
        if keeper.state == "lost":
            raise NotOwner(owner=None)
        before = self._before.instance if self._before is not None else ""
        self._epoch = Epoch(number=number, instance=self.instance, before=before)
        self._tell("acquired")

    def _open_store(self, number: int) -> None:
        try:
            self._store.take_over(self.instance, number)
        except StoreBusy:
            before = self._before if self._stood_still else None  # one that let go owns nothing, and is left alone
            if before is None or not previous_worker.evict(before.identity, self._me, self._root.database):
                raise
            self._store.take_over(self.instance, number)

    async def _write_worker(self, worker: Worker | None) -> None:
        keeper = self._keeper
        if keeper is None or self._epoch is None:
            raise NotOwner(owner=None)
        await self._in_thread(lambda: keeper.name_worker(worker))

    async def _in_thread(self, call: Callable[[], None]) -> None:
        try:
            await in_thread(call, abandon_on_cancel=True)
        except LeaseLost as error:
            raise NotOwner(owner=None) from error

    async def _exclusive(self, call: Callable[[], T]) -> T:
        async with self._files_lock:
            return await in_thread(call, abandon_on_cancel=True)

    # --- events ---

    async def _settled(self) -> None:
        """Wait while the lease is frozen: it thaws or is lost within ttl/4."""
        while self._keeper is not None and self._keeper.state == "frozen":
            await self._changed.wait()

    def _from_keeper(self, event: KeeperEvent) -> None:
        """From a keeper's thread: hand the event to the loop, without waiting for it."""
        if self._post is not None:
            self._post(self._tell, event)

    def _defect(self, what: str, error: Exception) -> None:
        self._log(f"defect in ownership, {what}: {type(error).__name__} at {where(error)}")

    def _tell(self, event: OwnershipEvent) -> None:
        if event == "lost":
            self._why = self._keeper.why if self._keeper is not None else self._why
            self._epoch, self._over = None, True
            self._store.let_go()
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
        for subscriber in list(self._subscribers):
            subscriber(event)


class _Attempt:
    """One try to own, shared by everybody who asks at the same time."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.error: ModeldError | None = None


def winner_of(record: LeaseRecord | None) -> dict[str, str] | None:
    """Whom NotOwner names: the owner of that record, None where nobody holds it."""
    if record is None or record.released is not None:
        return None
    return {"instance": record.instance, "endpoint": meta_of(record).endpoint}
