"""A slot in this process with real worker processes: where a test must stand between the two, or fake a device."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from modeld.host.worker_host import WorkerHost
from modeld.memory.policy import Arithmetic, DeviceMemory, Footprint
from modeld.memory.probe import host_memory
from modeld.slot.caller import Client, Permission
from modeld.slot.driver import Slot
from shared.catalog.library import Library
from shared.clock import SystemClock
from shared.paths import DataRoot
from shared.protocol import api
from shared.settings import Settings


class FreeOwner:
    """Owns always."""

    async def ensure(self) -> object:
        return None

    async def confirm(self) -> object:
        return None

    async def name_worker(self, pid: int, start_token: str) -> None: ...

    async def clear_worker(self) -> None: ...

    async def hold_devices(self, names: Sequence[str], pid: int, start_token: str) -> None: ...

    async def release_devices(self) -> None: ...


class NoRecords:
    """Forgets when the process ends."""

    def __init__(self) -> None:
        self._footprints: dict[str, Footprint] = {}
        self._arithmetic: dict[str, Arithmetic] = {}
        self.configs: dict[str, api.LoadConfig] = {}
        self.audited: list[tuple[str, str, dict[str, object]]] = []

    async def footprint(self, key: str, engine: str, device: str) -> Footprint | None:
        return self._footprints.get(key)

    def remember_footprint(self, key: str, engine: str, device: str, weights_bytes: int) -> None:
        self._footprints[key] = Footprint(weights_bytes=weights_bytes)

    async def arithmetic(self, key: str) -> Arithmetic | None:
        return self._arithmetic.get(key)

    def remember_arithmetic(self, key: str, found: Arithmetic) -> None:
        self._arithmetic[key] = found

    def save_generation(self, generation: int) -> None: ...

    def hint(self, model: str) -> None: ...

    async def config(self, model: str, aliases: Sequence[str] = ()) -> api.LoadConfig:
        return self.configs.get(model, api.LoadConfig())

    def audit(self, kind: str, client: str, detail: dict[str, object]) -> None:
        self.audited.append((kind, client, detail))

    def turn_begun(self, number: int, client: str, model: str) -> None: ...

    def turn_ended(self, number: int, how: str) -> None: ...


class Inside:
    """The slot, what it wrote, and short forms of what clients do."""

    def __init__(self, slot: Slot, library: Library, records: NoRecords, log: list[str]) -> None:
        self.slot = slot
        self.library = library
        self.records = records
        self.log = log

    async def load(self, model: str, client: Client, **fields: Any) -> api.LoadResult:
        entry = await self.slot.find(model)
        params = api.LoadParams(model=model, **fields)
        return await self.slot.scheduler.submit(
            "load",
            client,
            entry,
            params.config,
            Permission(load=True, switch=params.allow_switch, consent=True, on_busy=params.on_busy),
            lambda event: None,
            lambda request: self.slot.operations.load(request, entry, params),
        )

    async def turn(
        self, model: str, client: Client, text: str, emit: Callable[[api.Event], None] = lambda event: None
    ) -> api.TurnResult:
        entry = await self.slot.find(model)
        messages = [{"role": "user", "content": text}]
        params = api.TurnParams(model=model, messages=messages, params=api.Sampling(temperature=0.0))
        return await self.slot.scheduler.submit(
            "turn",
            client,
            entry,
            params.config,
            Permission(load=True),
            emit,
            lambda request: self.slot.operations.turn(request, entry, params),
        )


@asynccontextmanager
async def inside(
    root: DataRoot,
    settings: Settings,
    *,
    backend: str = "scripted",
    read_memory: Callable[[], DeviceMemory] = host_memory,
    started: Callable[[WorkerHost], None] = lambda host: None,
) -> AsyncIterator[Inside]:
    """A running slot; `started` gets each worker before it is used."""
    records, log = NoRecords(), list[str]()
    library = Library(root, settings)

    async def start() -> WorkerHost:
        host = await WorkerHost.start(backend, settings, root.path / "worker.log", dict(os.environ))
        started(host)
        return host

    slot = Slot(
        settings,
        SystemClock(),
        backend=backend,
        lookup=library,
        owner=FreeOwner(),
        records=records,
        start_worker=start,
        read_memory=read_memory,
        log=log.append,
    )
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(slot.run)
            yield Inside(slot, library, records, log)
            await slot.close(1.0)
    finally:
        library.close()
