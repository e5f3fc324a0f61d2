"""One accelerator, one modeld: the same lease in the user's runtime folder, for two data roots on one GPU.

Taken before a model goes to a discrete accelerator and let go after its worker is gone. Blocking; run in
a thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from shared.clock import Clock, SystemClock
from shared.errors import DeviceBusy
from shared.lease import disk, files, identity
from shared.lease.contender import Contender
from shared.lease.keeper import Keeper, KeeperEvent
from shared.lease.record import LeaseRecord
from shared.paths import DataRoot

RELEASE_WAIT = 2.0


class DeviceLease:
    """The claim of one device by one instance. `folder` is private to the user.

    `on_lost` is called from a thread when the device is not ours any more: end the worker.
    """

    def __init__(
        self,
        folder: Path,
        device: str,
        instance: str,
        *,
        ttl: float,
        root: DataRoot,
        on_lost: Callable[[], None],
        clock: Clock | None = None,
    ) -> None:
        self.device = device
        self._place = DataRoot(folder / "devices" / re.sub(r"[^A-Za-z0-9.-]", "_", device))
        self._instance = instance
        self._ttl = ttl
        self._meta = {"data_root": str(root.path)}
        self._on_lost = on_lost
        self._clock = clock if clock is not None else SystemClock()
        self._contender = Contender(files.LeaseFolder(self._place, instance), identity.current(), self._clock, ttl)
        self._keeper: Keeper | None = None

    def take(self) -> None:
        """Hold the device. Does nothing when it is held already. Raises DeviceBusy, RootError."""
        if self._keeper is not None and self._keeper.valid():
            return
        files.prepare(self._place)
        try:
            look = self._contender.look()
            taken = self._contender.take(look, self._instance, ttl=self._ttl, meta=dict(self._meta))
            if taken is None:
                raise DeviceBusy(holder=_holder(self._contender.look().record))
        except OSError as error:
            disk.explain(error, self._place.path)
        keeper = Keeper(self._contender.folder, taken, self._clock, self._heard)
        keeper.start()
        self._keeper = keeper

    def valid(self) -> bool:
        """Whether the device is ours at this moment."""
        return self._keeper is not None and self._keeper.valid()

    def release(self, reason: str) -> None:
        """Let go, after the worker was seen gone."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.release(reason, RELEASE_WAIT)

    def _heard(self, event: KeeperEvent) -> None:
        if event == "lost":
            self._on_lost()


def _holder(record: LeaseRecord | None) -> str:
    if record is None:
        return "another modeld"
    root = msgspec.convert(record.meta, dict[str, object]).get("data_root", "an unknown data root")
    return f"modeld (pid {record.pid} on {record.host}) with data root {root}"
