"""Estimates a load's memory: measured before, else by the engine, else by a formula over the header."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from modeld.engine.backends import installed_version
from modeld.engine.dry_run import Sizes
from modeld.host.load_plan import ask_engine
from modeld.memory import policy
from modeld.pipe.messages import Loaded
from modeld.slot.ports import ReadMemory
from modeld.slot.request import footprint_key
from shared.catalog.advertised import fit
from shared.diagnosis.threads import in_thread
from shared.errors import UnsupportedFeature
from shared.protocol import api
from shared.system.foreign import ask

if TYPE_CHECKING:
    from modeld.slot.driver import Slot
    from shared.catalog.entry import ModelEntry
    from shared.catalog.identity import RequestedIdentity

AskEngine = Callable[["RequestedIdentity", Sequence[int]], Awaitable[list[Sizes] | None]]


class Planner:
    """Reads free memory again for each plan; remembers what engines said and what loads took."""

    def __init__(
        self, slot: Slot, read_memory: ReadMemory, given_back: Callable[[], int], ask: AskEngine = ask_engine
    ) -> None:
        self._slot = slot
        self._read_memory = read_memory
        self._given_back = given_back
        self._ask = ask
        #: key of a model and how it is loaded -> what its engine said; None: it had nothing to say.
        self._asked: dict[str, policy.Arithmetic | None] = {}
        self._one_at_a_time = anyio.Lock()
        self.runtime_digest = ""

    async def plan(self, entry: ModelEntry, target: RequestedIdentity) -> api.MemoryPlan:
        """The arithmetic of loading `target` in place of what is resident. Raises UnsupportedFeature."""
        engine = await self._arithmetic(entry, target)
        adapters = await in_thread(_sizes_of, target.adapters) if target.adapters else 0
        beside = entry.projector and target.projector  # a folder's graph is counted with the folder
        projector = await in_thread(_sizes_of, (beside,)) if beside else 0
        memory = self._read_memory()  # last, since asking takes its time
        free = min(memory.free + self._given_back(), memory.total)
        seen = policy.DeviceMemory(device=memory.device, total=memory.total, free=free)
        footprint = await self._slot.records.footprint(footprint_key(target), self.runtime_digest, memory.device)
        return policy.plan(entry, target, seen, self._slot.settings, footprint, engine, adapters, projector)

    async def _arithmetic(self, entry: ModelEntry, target: RequestedIdentity) -> policy.Arithmetic | None:
        """Asked once for each model and way to load it, in a process to throw away."""
        key = footprint_key(target)
        async with self._one_at_a_time:
            if key in self._asked:
                return self._asked[key]
            records = self._slot.records
            name = f"{installed_version(target.backend)} {key}"
            found = await records.arithmetic(name)
            if found is None:
                found = await self._from_engine(entry, target)
                if found is not None:
                    records.remember_arithmetic(name, found)
            self._asked[key] = found
            return found

    async def _from_engine(self, entry: ModelEntry, target: RequestedIdentity) -> policy.Arithmetic | None:
        # Two contexts that the model decides and no request does: a line through them is exact wherever the
        # windows of its layers are full, and too high below.
        most = max(entry.context_train, 2 * fit.STEP)
        contexts = (min(self._slot.settings.least_context, most // 2), most)
        with self._slot.leases.job("plan", entry.name, self._slot.now()):
            sizes = await self._ask(target, contexts)
        if sizes is None:
            return None
        low, high = sizes
        return policy.Arithmetic(
            weights=high.weights,
            kv=_line(contexts, low.kv, high.kv),
            compute=_line(contexts, low.compute, high.compute),
        )

    def remember(self, entry: ModelEntry, target: RequestedIdentity, device: str, loaded: Loaded) -> None:
        """Keep what this load took, attention memory and buffers apart."""
        identity = loaded.identity
        kv_type = identity.kv_type if identity.kv_type in fit.KV_TYPES else policy.USUAL_KV
        key = footprint_key(target)
        cost = policy.Cost(entry, identity.backend, kv_type, None, self._asked.get(key))
        beside = cost.kv(identity.num_ctx) + cost.compute(identity.num_ctx)
        self._slot.records.remember_footprint(key, self.runtime_digest, device, max(loaded.measured_bytes - beside, 0))


def _line(contexts: tuple[int, int], low: int, high: int) -> policy.Line:
    per_token = (high - low) / (contexts[1] - contexts[0])
    return policy.Line(fixed=low - per_token * contexts[0], per_token=per_token)


def _sizes_of(paths: Sequence[str]) -> int:
    try:
        return sum(ask(path, Path(path).stat).st_size for path in paths)
    except OSError as error:
        raise UnsupportedFeature(feature=f"a file that is not there ({error.filename})") from error
