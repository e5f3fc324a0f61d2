"""What the slot needs of the rest of the daemon, as contracts; and simple stand-ins that keep nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from modeld.memory.policy import Arithmetic, DeviceMemory, Footprint
from shared.catalog.entry import ModelEntry
from shared.protocol.api import LoadConfig


class Owner(Protocol):
    """The hold on the hardware (see modeld.owner). Every method raises NotOwner."""

    async def ensure(self) -> object:
        """Own the hardware, taking the lease if nobody has it."""
        ...

    async def confirm(self) -> object:
        """Wait out a freeze, and see that nobody else owns: before each load and turn."""
        ...

    async def name_worker(self, pid: int, start_token: str) -> None:
        """Write the worker into the lease: it may load only afterwards."""
        ...

    async def clear_worker(self) -> None:
        """The worker was seen gone."""
        ...

    async def hold_devices(self, names: Sequence[str], pid: int, start_token: str) -> None:
        """Hold exactly these discrete accelerators for the worker about to load. Raises DeviceBusy, RootError."""
        ...

    async def release_devices(self) -> None:
        """The worker was seen gone: let go of them. Never raises."""
        ...


class Shelf(Protocol):
    """The library as the slot uses it. Blocking."""

    def find(self, name: str) -> ModelEntry:
        """Raises ModelNotFound."""
        ...

    def checked(self, entry: ModelEntry) -> ModelEntry:
        """The entry as its files are now. Raises ModelLoadFailed at stage `header`."""
        ...


class Records(Protocol):
    """What outlives the process. Never raises: a lost note costs an estimate, not a turn."""

    async def footprint(self, key: str, engine: str, device: str) -> Footprint | None:
        """What an earlier load of this model took; stale when it was another engine version."""
        ...

    def remember_footprint(self, key: str, engine: str, device: str, weights_bytes: int) -> None:
        """Keep what this load took, attention memory and buffers apart."""
        ...

    async def arithmetic(self, key: str) -> Arithmetic | None:
        """What this engine said of this model before."""
        ...

    def remember_arithmetic(self, key: str, found: Arithmetic) -> None:
        """Keep it: asking costs a process."""
        ...

    def save_generation(self, generation: int) -> None:
        """The slot's generation; the next owner starts above it."""
        ...

    def hint(self, model: str) -> None:
        """The last active model, for people; never trusted."""
        ...

    async def config(self, model: str) -> LoadConfig:
        """The settings kept for a model."""
        ...

    def audit(self, kind: str, client: str, detail: dict[str, object]) -> None:
        """Something one client did to another (a forced switch, a cancelled turn, a reaped lease)."""
        ...

    def turn_begun(self, number: int, client: str, model: str) -> None:
        """A turn is active; without an end it counts as abandoned at takeover."""
        ...

    def turn_ended(self, number: int, how: str) -> None:
        """It has ended."""
        ...


ReadMemory = Callable[[], DeviceMemory]


class FreeOwner:
    """Owns always: for tests, and where coordination is somebody else's."""

    async def ensure(self) -> object:
        """Nothing to do."""
        return None

    async def confirm(self) -> object:
        """Nothing to do."""
        return None

    async def name_worker(self, pid: int, start_token: str) -> None:
        """Nothing to do."""

    async def clear_worker(self) -> None:
        """Nothing to do."""

    async def hold_devices(self, names: Sequence[str], pid: int, start_token: str) -> None:
        """Nothing to do."""

    async def release_devices(self) -> None:
        """Nothing to do."""


class NoRecords:
    """Forgets when the process ends."""

    def __init__(self) -> None:
        self._footprints: dict[str, Footprint] = {}
        self._arithmetic: dict[str, Arithmetic] = {}
        self.configs: dict[str, LoadConfig] = {}
        self.audited: list[tuple[str, str, dict[str, object]]] = []

    async def footprint(self, key: str, engine: str, device: str) -> Footprint | None:
        """See Records."""
        return self._footprints.get(key)

    def remember_footprint(self, key: str, engine: str, device: str, weights_bytes: int) -> None:
        """See Records."""
        self._footprints[key] = Footprint(weights_bytes=weights_bytes)

    async def arithmetic(self, key: str) -> Arithmetic | None:
        """See Records."""
        return self._arithmetic.get(key)

    def remember_arithmetic(self, key: str, found: Arithmetic) -> None:
        """See Records."""
        self._arithmetic[key] = found

    def save_generation(self, generation: int) -> None:
        """See Records."""

    def hint(self, model: str) -> None:
        """See Records."""

    async def config(self, model: str) -> LoadConfig:
        """See Records."""
        return self.configs.get(model, LoadConfig())

    def audit(self, kind: str, client: str, detail: dict[str, object]) -> None:
        """See Records."""
        self.audited.append((kind, client, detail))

    def turn_begun(self, number: int, client: str, model: str) -> None:
        """See Records."""

    def turn_ended(self, number: int, how: str) -> None:
        """See Records."""
