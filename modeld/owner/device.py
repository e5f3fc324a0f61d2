"""One accelerator, one modeld: the same lease in the user's runtime folder, for two data roots on one GPU.

Taken before a model goes to a discrete accelerator and let go after its worker is gone. Blocking; run in
a thread. `modeld.owner.devices` holds those of one instance.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from modeld.owner import previous_worker
from shared.clock import Clock, SystemClock
from shared.errors import DeviceBusy
from shared.lease import disk, files, policy
from shared.lease.contender import Contender, Look, Taken
from shared.lease.keeper import Keeper, KeeperEvent, LeaseLost
from shared.lease.process import identity
from shared.lease.record import LeaseRecord, Worker
from shared.paths import DataRoot

RELEASE_WAIT = 2.0
#: Looks in one ttl at a holder that may have died: less than the contender's longest step, ttl/4.
LOOKS_PER_TTL = 8
DeviceEvent = Literal["freeze", "thaw", "lost"]


class DeviceLease:
    """The claim of one device by one instance. `folder` is private to the user.

    `heard` is called from a thread: on `freeze` nothing may run on the device until `thaw`; on `lost` the
    device is not ours any more: end the worker.
    """

    def __init__(
        self,
        folder: Path,
        device: str,
        instance: str,
        *,
        ttl: float,
        root: DataRoot,
        heard: Callable[[DeviceEvent], None],
        clock: Clock | None = None,
    ) -> None:
        self.device = device
        self._place = DataRoot(folder / "devices" / re.sub(r"[^A-Za-z0-9.-]", "_", device))
        self._instance = instance
        self._ttl = ttl
        self._meta = {"data_root": str(root.path), "device": device}
        self._tell = heard
        self._clock = clock if clock is not None else SystemClock()
        self._me = identity.current()
        self._contender = Contender(files.LeaseFolder(self._place, instance), self._me, self._clock, ttl)
        self._keeper: Keeper | None = None
        self._left: Worker | None = None
        self._left_at = 0.0

    @property
    def taken(self) -> bool:
        """Whether there is something to release."""
        return self._keeper is not None

    def take(self, worker: Worker) -> None:
        """Hold the device for `worker`, and see the worker of its last holder gone. Again: another worker is named.

        A holder whose record is fresh is refused at once; one that looks old is watched until its lease moves
        or has stood still long enough: nobody keeps a device by having been killed or frozen. Raises
        DeviceBusy naming the holder, RootError.
        """
        if self._keeper is not None and self._keeper.state == "lost":
            self.release("lost")
        keeper = self._keeper if self._keeper is not None else self._begin()
        if self._left is not None:
            previous_worker.clear(self._left, self._me, policy.validity(self._ttl), self._left_at)
            self._left = None
        try:
            keeper.name_worker(worker)
        except LeaseLost as error:
            raise self.busy() from error

    def _begin(self) -> Keeper:
        files.prepare(self._place)
        try:
            taken = self._take()
        except OSError as error:
            disk.explain(error, self._place.path)
        keeper = self._keeper = Keeper(self._contender.folder, taken, self._clock, self._heard)
        self._left = taken.record.worker
        self._left_at = taken.before.renewed if taken.before is not None else 0.0
        keeper.start()
        return keeper

    def _take(self) -> Taken:
        """Raises DeviceBusy, OSError."""
        look = self._contender.look()
        first = look.sighting.mark if look.sighting is not None else None
        while look.standing == "held" and not self._fresh(look) and look.sighting is not None:
            time.sleep(self._ttl / LOOKS_PER_TTL)
            look = self._contender.look()
            if look.sighting is not None and look.sighting.mark != first:
                break
        taken = self._contender.take(look, self._instance, ttl=self._ttl, meta=dict(self._meta))
        if taken is None:
            raise self.busy()
        return taken

    def _fresh(self, look: Look) -> bool:
        """Whether the record says itself that it was renewed lately: enough to wait no longer, never to take it."""
        record = look.record
        return record is not None and 0 <= self._clock.wall() - record.renewed <= record.ttl

    def busy(self) -> DeviceBusy:
        """The refusal, naming whoever holds the device now."""
        try:
            record = self._contender.look().record
        except OSError:
            record = None
        return DeviceBusy(holder=_holder(self.device, record))

    def valid(self) -> bool:
        """Whether the device is ours at this moment."""
        return self._keeper is not None and self._keeper.valid()

    def confirm(self) -> None:
        """Before each turn: the device is ours, and no higher epoch exists. Raises DeviceBusy."""
        keeper = self._keeper
        try:
            if keeper is not None:
                keeper.confirm()
                return
        except (LeaseLost, OSError) as error:
            raise self.busy() from error
        raise self.busy()

    def release(self, reason: str) -> None:
        """Let go, after the worker was seen gone."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.release(reason, RELEASE_WAIT, worker_gone=self._left is None)

    def _heard(self, event: KeeperEvent) -> None:
        if event != "renewed":
            self._tell(event)


def _holder(device: str, record: LeaseRecord | None) -> str:
    if record is None or record.released is not None:
        return f"another modeld (device {device})"
    root = record.meta.get("data_root", "an unknown data root")
    return f"modeld (pid {record.pid} on {record.host}) with data root {root}, which has a model on {device}"


def named_worker(pid: int, start_token: str) -> Worker:
    """A worker of this process as the records name it."""
    return Worker(**{**msgspec.structs.asdict(identity.current()), "pid": pid, "start_token": start_token})
