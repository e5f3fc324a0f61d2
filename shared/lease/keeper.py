"""Keeping a lease: a thread that renews, a thread that watches the clock, and the fence they serve.

The renewing thread may hang in a stalled filesystem; the watching thread does not touch files, so
the freeze comes in time all the same. Whoever acts asks `valid` first, which looks at the clock
itself and needs neither thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from shared.clock import Clock
from shared.lease import policy
from shared.lease.contender import Taken
from shared.lease.crashpoint import crash_point
from shared.lease.files import LeaseFolder
from shared.lease.place import PlaceLost
from shared.lease.policy import Tenure, TenureState
from shared.lease.record import LeaseRecord, Released, Worker

KeeperEvent = Literal["renewed", "freeze", "thaw", "lost"]
#: Failed renewals are tried again after this part of the ttl.
RETRY_FRACTION = 12
#: Bound of a wait that a notification ends. Seconds.
_LONGEST_WAIT = 3600.0


class LeaseLost(Exception):
    """The lease is not ours any more, or not valid at this moment."""


class Keeper:
    """Holds one lease from `start` to `release`.

    `listener` is called with each event, in order, from the keeper's threads: it must return at
    once, must not raise and must not call the keeper. `last_error` is that of the last renewal, `why` says how the
    lease was lost.
    """

    def __init__(
        self, folder: LeaseFolder, taken: Taken, clock: Clock, listener: Callable[[KeeperEvent], None]
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._listener = listener
        self._changed = threading.Condition()
        self._wanted = taken.record
        self._wanted_version = 0
        self._written_version = 0
        self._tenure = policy.begin(taken.record.ttl, taken.started)
        self._due = taken.started + policy.renew_interval(taken.record.ttl)
        self._releasing: Released | None = None
        self._worker_gone = True
        self._release_written = False
        self._closed = False
        self.last_error: OSError | None = None
        self.why = ""
        self._threads = [
            threading.Thread(target=self._renew_forever, name="lease-renew", daemon=True),
            threading.Thread(target=self._watch_forever, name="lease-watch", daemon=True),
        ]

    @property
    def record(self) -> LeaseRecord:
        """What is written, or about to be."""
        return self._wanted

    @property
    def state(self) -> TenureState:
        """The state by the clock now; never later than the truth."""
        return policy.tick(self._tenure, self._clock.awake()).state

    def start(self) -> None:
        """Begin to renew. Raises RuntimeError where no thread can be had, after the lease was let go again."""
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError:
            with self._changed:
                self._releasing = Released(reason="withdrawn", at=self._clock.wall())
                self._changed.notify_all()
            if not self._threads[0].is_alive():
                self._finish()
            raise

    def valid(self) -> bool:
        """Whether the owner may act at this moment. Touches no file and waits for nobody."""
        return self.state == "valid"

    def confirm(self) -> None:
        """Check the clock, that the record is the one we wrote, and that no higher epoch exists: before each load and
        turn. Blocking.

        Raises LeaseLost; OSError when the folder cannot be read.
        """
        if not self.valid():
            raise LeaseLost(self.state)
        why = self._followed()
        if why:
            with self._changed:
                self._lose(why)
        if not self.valid():
            raise LeaseLost(self.state)

    def name_worker(self, worker: Worker | None) -> None:
        """Write the worker's name into the lease; returns when it is on disk. Blocking.

        Raises LeaseLost when it cannot be written while the lease is valid: the worker must not load.
        """
        self._write_now(worker=worker)
        if worker is not None:
            crash_point("worker.named")

    def publish(self, meta: dict[str, Any]) -> None:
        """Write new meta (another endpoint) into the lease. Blocking. Raises LeaseLost."""
        self._write_now(meta=meta)

    def release(self, reason: str, wait: float, *, worker_gone: bool = True) -> bool:
        """Let go: the mark is written once and nothing is renewed after it. Call when no worker of ours is left.

        `worker_gone` false: the last owner's worker could not be ended, and the next one must look for it too.
        Waits `wait` seconds at most for the renewing thread; False when the mark is not on disk then
        (successors wait out the lease instead). Also after a loss, where it tells that all is done.
        """
        with self._changed:
            if self._releasing is None:
                self._releasing = Released(reason=reason, at=self._clock.wall())
                self._worker_gone = worker_gone
                if self._tenure.state in ("valid", "frozen"):
                    self._tenure = msgspec.structs.replace(self._tenure, state="released")
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed, timeout=wait)
            return self._release_written

    def _write_now(self, **changes: Any) -> None:
        with self._changed:
            self._wanted = msgspec.structs.replace(self._wanted, **changes)
            self._wanted_version += 1
            version = self._wanted_version
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._written_version >= version or self._tenure.state in ("lost", "released"),
                timeout=policy.validity(self._wanted.ttl) + policy.frozen_limit(self._wanted.ttl),
            )
            if self._written_version < version or not self.valid():
                raise LeaseLost(self.state)

    # --- the renewing thread ---

    def _renew_forever(self) -> None:
        while self._wait_for_work():
            self._renew()
        self._finish()

    def _wait_for_work(self) -> bool:
        """Until a renewal is due or something is to be written; False when the keeper is to let go."""
        with self._changed:
            while self._releasing is None:
                if self._tenure.state == "lost":
                    self._changed.wait()
                    continue
                pending = self._wanted_version > self._written_version and self.last_error is None
                pause = self._due - self._clock.awake()
                if pending or pause <= 0:
                    return True
                self._changed.wait(min(pause, _LONGEST_WAIT))
            return False

    def _renew(self) -> None:
        crash_point("renew.before")
        started = self._clock.awake()
        with self._changed:
            # after a sleep of the machine either thread may be the first to wake: nobody renews past a freeze unsaid
            self._move(policy.tick(self._tenure, started))
            if self._tenure.state == "lost":
                return
            version = self._wanted_version
            now = self._clock.wall()
            record = msgspec.structs.replace(
                self._wanted, sequence=self._wanted.sequence + 1, renewed=now, expires=now + self._wanted.ttl
            )
        try:
            why = self._followed()  # a frozen owner that wakes after its successor writes nothing
            if not why:
                self._folder.rewrite(record)
                crash_point("renew.written")
                why = self._followed()
        except PlaceLost as error:
            why = str(error)
        except OSError as error:
            self._failed(error)
            return
        higher = bool(why)
        with self._changed:
            self.last_error = None
            self.why = self.why or why
            self._wanted = msgspec.structs.replace(
                self._wanted, sequence=record.sequence, renewed=record.renewed, expires=record.expires
            )
            self._due = started + policy.renew_interval(record.ttl)
            self._move(policy.wrote(self._tenure, started, self._clock.awake(), higher=higher))
            if not higher:
                self._written_version = max(self._written_version, version)
            if self._tenure.state == "valid":
                self._listener("renewed")
            self._changed.notify_all()
        if not higher:
            self._folder.copy_for_people(record)

    def _failed(self, error: OSError) -> None:
        with self._changed:
            self.last_error = error
            now = self._clock.awake()
            self._due = now + self._wanted.ttl / RETRY_FRACTION
            self._move(policy.tick(self._tenure, now))

    def _lose(self, why: str) -> None:
        """With the lock held."""
        self.why = self.why or why
        self._move(msgspec.structs.replace(self._tenure, state="lost"))

    def _finish(self) -> None:
        """Write the release mark as the last thing, whatever happened before; into our own place alone."""
        released = self._releasing
        assert released is not None
        crash_point("release.before")
        worker = None if self._worker_gone else self._wanted.worker
        record = msgspec.structs.replace(
            self._wanted, sequence=self._wanted.sequence + 1, released=released, worker=worker
        )
        try:
            self._folder.rewrite(record)
            written = True
            crash_point("release.written")
            self._folder.copy_for_people(record)
        except PlaceLost:
            written = False
            self._folder.copy_outside(record)
        except OSError as error:
            written = False
            self.last_error = error
        self._folder.leave()
        with self._changed:
            self._wanted = record
            self._release_written = written
            self._closed = True
            self._changed.notify_all()

    def _followed(self) -> str:
        """Why the lease is not ours any more, "" while it is. Raises OSError."""
        mine = self._wanted.epoch
        # also outside: who was stopped between its look and its write finds no successor's file where all were deleted
        higher = max([*self._folder.epochs(), self._folder.epoch_outside()])
        if higher > mine:
            return f"another instance took it over (epoch {higher})"
        try:
            self._folder.check(mine)
        except PlaceLost as error:
            return str(error)
        return ""

    # --- the watching thread ---

    def _watch_forever(self) -> None:
        with self._changed:
            while not self._closed and self._tenure.state not in ("lost", "released"):
                wake = policy.next_wake(self._tenure)
                pause = _LONGEST_WAIT if wake is None else wake - self._clock.awake()
                if pause > 0:
                    self._changed.wait(min(pause, _LONGEST_WAIT))
                self._move(policy.tick(self._tenure, self._clock.awake()))

    # --- both ---

    def _late(self) -> str:
        error = self.last_error
        detail = f": {error.strerror or error}" if error is not None else ""
        return f"it could not be renewed in time{detail}"

    def _move(self, tenure: Tenure) -> None:
        """Take on a new tenure and tell the listener. With the lock held, so that events keep their order."""
        before, self._tenure = self._tenure, tenure
        if tenure.state in (before.state, "released"):
            return
        if tenure.state == "frozen":
            self._due = min(self._due, self._clock.awake())  # ask at once
            self._listener("freeze")
        elif tenure.state == "valid":
            self._listener("thaw")
        elif tenure.state == "lost":
            self.why = self.why or self._late()
            self._listener("lost")
        self._changed.notify_all()
