"""One instance of this process as others find it: id, socket, token, presence, and its hold on the lease.

A process that lost the lease goes on as a new instance: an instance never owns twice.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
import msgspec

from modeld.owner.devices import Devices
from modeld.owner.ownership import Ownership
from shared.endpoint.endpoint import listen
from shared.endpoint.faults import EndpointError
from shared.endpoint.folder import runtime_folder, user_folder
from shared.errors import ModeldError
from shared.lease import files
from shared.lease.presence import Presence
from shared.lease.process import identity
from shared.lease.record import Meta, PresenceRecord
from shared.protocol import api
from shared.version import __version__

if TYPE_CHECKING:
    from modeld.store.store import Store
    from shared.clock import Clock
    from shared.paths import DataRoot
    from shared.settings import Settings

#: How long and how often a process whose data root is in the way of itself tries to live on. Seconds.
REVIVE_SECONDS = 600.0
REVIVE_POLL = 1.0


class Instance:
    """Made listening and not yet published. Raises RootError, EndpointError, OSError."""

    def __init__(
        self,
        root: DataRoot,
        settings: Settings,
        backend: str,
        store: Store,
        clock: Clock,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        files.prepare(root)
        self._root = root
        self.id = str(uuid4())
        self._clock = clock
        self._me = identity.current()
        self._backend = backend
        self.presence = Presence(root, self.id)
        self.listener = listen(runtime_folder(root), self.id)
        try:
            self.token = self.presence.make_token()
            self.ownership = Ownership(root, settings, self.id, meta=self._meta(), store=store, clock=clock, log=log)
            self.devices = Devices(user_folder(), self.id, root, settings, clock)
        except BaseException:
            self.listener.close()
            raise

    @property
    def endpoint(self) -> str:
        """The address in force."""
        return self.listener.address

    def _meta(self) -> Meta:
        return Meta(
            endpoint=self.listener.address,
            token_file=str(self.presence.token_file),
            backend=self._backend,
            protocol_min=api.PROTOCOL_MIN,
            protocol_max=api.PROTOCOL_MAX,
            version=__version__,
        )

    def may_act(self) -> bool:
        """Whether it holds the lease, and every device that its model is on, at this moment. From any thread."""
        return self.ownership.valid() and self.devices.valid()

    def publish(self) -> None:
        """Write the presence record: from now on it can be found. Raises OSError."""
        identified = msgspec.structs.asdict(self._me)
        identified["pid"] = os.getpid()
        meta = msgspec.structs.asdict(self._meta())
        self.presence.pulse()
        self.presence.publish(PresenceRecord(instance=self.id, started=self._clock.wall(), **identified, **meta))

    async def repair(self, log: Callable[[str], None]) -> None:
        """See that the socket and the records still stand, and put them back where they do not."""
        rebound = not self.listener.intact()
        if rebound or not self.presence.intact():
            files.prepare(self._root)  # the folders may have gone with what was in them
        if rebound:
            await self.listener.rebind()
            log("the socket had gone from its folder and is bound again")
        if rebound or not self.presence.intact():
            if not self.presence.token_intact():
                self.token = self.presence.make_token()
            self.publish()
        self.presence.pulse()
        if rebound:
            await self.ownership.publish(self._meta())

    async def leave(self, reason: str) -> None:
        """Release the lease, mark the record, close the socket. After the worker was seen gone."""
        await self.devices.release(reason)
        await self.ownership.release(reason)
        self.presence.withdraw(reason, self._clock.wall())
        self.listener.close()


class Hold:
    """The hold of the instance in force on the hardware, whichever that is. Implements `modeld.slot.ports.Owner`."""

    def __init__(self, live: Callable[[], Instance]) -> None:
        self._live = live

    async def ensure(self) -> object:
        """Own the hardware. Raises NotOwner with the winner, RootError, DeviceBusy."""
        return await self._live().ownership.ensure()

    async def confirm(self) -> object:
        """Raises NotOwner, DeviceBusy."""
        live = self._live()
        epoch = await live.ownership.confirm()
        await live.devices.confirm()
        return epoch

    async def name_worker(self, pid: int, start_token: str) -> None:
        """Raises NotOwner."""
        await self._live().ownership.name_worker(pid, start_token)

    async def clear_worker(self) -> None:
        """Raises NotOwner."""
        await self._live().ownership.clear_worker()

    async def hold_devices(self, names: Sequence[str], pid: int, start_token: str) -> None:
        """Raises DeviceBusy naming the holder, RootError."""
        await self._live().devices.hold(names, pid, start_token)

    async def release_devices(self) -> None:
        """Let go of what the last model was on."""
        await self._live().devices.release()


async def another(
    make: Callable[[], Instance],
    wanted: Callable[[], bool],
    woken: Callable[[], Awaitable[None]],
    log: Callable[[str], None],
) -> Instance | None:
    """The instance that follows in this process, None once none is `wanted`.

    What stands in the place of the data root may be taken away again: it is tried for REVIVE_SECONDS. Raises RootError,
    EndpointError, OSError after that.
    """
    deadline = anyio.current_time() + REVIVE_SECONDS
    reported = ""
    while wanted():
        try:
            return make()
        except (ModeldError, EndpointError, OSError) as error:
            if anyio.current_time() > deadline:
                raise
            if str(error) != reported:
                reported = str(error)
                log(f"no instance can be made, it is tried again: {reported}")
        with anyio.move_on_after(REVIVE_POLL):
            await woken()
    return None
