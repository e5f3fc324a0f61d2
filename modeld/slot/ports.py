"""The interfaces through which the slot uses the rest of the daemon."""

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


class ModelLookup(Protocol):
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

    async def config(self, model: str, aliases: Sequence[str] = ()) -> LoadConfig:
        """The settings kept for a model, else those kept under another of its names."""
        ...

    def audit(self, kind: str, client: str, detail: dict[str, object]) -> None:
        """Something one client did to another (a forced switch, a cancelled turn, a reaped lease)."""
        ...

    def turn_begun(self, number: int, client: str, model: str) -> None:
        """A turn is active; without an end it counts as abandoned at takeover."""
        ...

    def turn_ended(self, number: int, how: str) -> None:
        """Note how the turn ended."""
        ...


ReadMemory = Callable[[], DeviceMemory]
