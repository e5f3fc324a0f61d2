"""The accelerators that one instance holds, all of them together, on the event loop.

Only discrete ones are held: memory that the host shares is planned like any other memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio

from modeld.owner.device import DeviceEvent, DeviceLease, named_worker
from shared.clock import Clock
from shared.diagnosis.threads import in_thread, poster, somehow
from shared.endpoint.faults import FolderUnusable
from shared.endpoint.folder import make_private
from shared.errors import DeviceBusy, RootUnusable
from shared.lease import policy
from shared.lease.record import LONGEST_TTL
from shared.paths import DataRoot
from shared.settings import Settings


class Devices:
    """`hold` before a load, `confirm` before each turn, `release` once the worker is gone."""

    def __init__(
        self,
        folder: Path,
        instance: str,
        root: DataRoot,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._instance = instance
        self._root = root
        self._ttl = min(settings.lease_ttl, LONGEST_TTL)
        self._clock = clock
        self._doubt: Callable[[bool], None] = lambda doubtful: None
        self._lost: Callable[[DeviceBusy], None] = lambda error: None
        self._held: dict[str, DeviceLease] = {}

    def on_event(self, doubt: Callable[[bool], None], lost: Callable[[DeviceBusy], None]) -> None:
        """Called on the loop: `doubt(True)` when nothing may run on a device until `doubt(False)`, `lost` when it is
        not ours any more: its model must go.
        """
        self._doubt, self._lost = doubt, lost

    @property
    def held(self) -> tuple[str, ...]:
        """Names of the devices held."""
        return tuple(sorted(self._held))

    def valid(self) -> bool:
        """Whether every device held is ours at this moment; true without any. Cheap, from any thread."""
        return all(lease.valid() for lease in tuple(self._held.values()))

    async def hold(self, names: Sequence[str], pid: int, start_token: str) -> None:
        """Hold exactly these, for the worker that is about to load. Raises DeviceBusy naming the holder, RootError."""
        await self._let_go([name for name in self._held if name not in names], "unload")
        worker = named_worker(pid, start_token)
        for name in sorted(names):  # in one order everywhere: two roots that want two devices each do not block
            lease = self._held.get(name) or self._lease(name)
            try:
                with anyio.CancelScope(shield=True):
                    await in_thread(lease.take, worker)
            finally:
                if lease.taken:
                    self._held[name] = lease

    async def confirm(self) -> None:
        """Raises DeviceBusy when a device is not ours any more."""
        for lease in tuple(self._held.values()):
            try:
                with anyio.fail_after(policy.validity(self._ttl)):
                    await in_thread(lease.confirm, abandon_on_cancel=True)
            except TimeoutError as error:
                raise lease.busy() from error

    async def release(self, reason: str = "unload") -> None:
        """Let go of all, after the worker was seen gone."""
        await self._let_go(list(self._held), reason)

    async def _let_go(self, names: list[str], reason: str) -> None:
        for name in names:
            lease = self._held.pop(name, None)
            if lease is not None:
                with anyio.CancelScope(shield=True):
                    await somehow(lease.release, reason)

    def _lease(self, name: str) -> DeviceLease:
        try:
            make_private(self._folder)
        except FolderUnusable as error:
            raise RootUnusable(path=str(self._folder), hint=str(error)) from error
        post = poster()

        def heard(event: DeviceEvent) -> None:
            post(self._heard, lease, event)

        lease = DeviceLease(
            self._folder, name, self._instance, ttl=self._ttl, root=self._root, heard=heard, clock=self._clock
        )
        return lease

    def _heard(self, lease: DeviceLease, event: DeviceEvent) -> None:
        if self._held.get(lease.device) is not lease:
            return  # let go of meanwhile
        if event == "lost":
            self._lost(lease.busy())
        else:
            self._doubt(event == "freeze")
