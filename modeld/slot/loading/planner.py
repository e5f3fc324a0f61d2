"""Estimates a load's memory: measured before, else by the engine, else by a formula over the header."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec

from modeld.engine.backends import installed_version
from modeld.engine.dry_run import Question, Sizes
from modeld.host.load_plan import COUNTING, NoAnswer, ask_engine
from modeld.memory import policy
from modeld.pipe.messages import Loaded
from modeld.slot.loading.projectors import signature
from modeld.slot.ports import ReadMemory
from modeld.slot.request import footprint_key
from shared.catalog.advertised import fit
from shared.catalog.identity import AUTO
from shared.diagnosis.threads import in_thread
from shared.errors import UnsupportedFeature
from shared.protocol import api
from shared.system.foreign import ask

if TYPE_CHECKING:
    from modeld.slot.loop import Loop
    from modeld.slot.ports import Records
    from modeld.turn.lease import LeaseTable
    from shared.catalog.entry import ModelEntry
    from shared.catalog.identity import RequestedIdentity
    from shared.settings import Settings

AskEngine = Callable[[Question], Awaitable[list[Sizes] | None]]
#: What was measured is kept again where it grew by so much.
_WORTH_KEEPING = 1.01


class Planner:
    """Reads free memory again for each plan; remembers what engines said and what loads took."""

    def __init__(
        self,
        loop: Loop,
        settings: Settings,
        records: Records,
        leases: LeaseTable,
        read_memory: ReadMemory,
        given_back: Callable[[], int],
        given_back_there: Callable[[], int] = lambda: 0,
        ask: AskEngine = ask_engine,
    ) -> None:
        """`given_back`: bytes that the end of the resident model frees of main memory; `..._there`: of its devices."""
        self._loop = loop
        self._settings = settings
        self._records = records
        self._leases = leases
        self._read_memory = read_memory
        self._given_back = given_back
        self._given_back_there = given_back_there
        self._ask = ask
        #: key of a model and how it is loaded -> what its engine said; None: nothing stands against it, no numbers.
        self._asked: dict[str, policy.Arithmetic | None] = {}
        self._one_at_a_time = anyio.Lock()
        self.runtime_digest = ""
        self._latest: tuple[ModelEntry, RequestedIdentity, str, Loaded] | None = None

    async def plan(
        self, entry: ModelEntry, target: RequestedIdentity, devices: Sequence[api.Accelerator] = ()
    ) -> api.MemoryPlan:
        """The arithmetic of loading `target` in place of what is resident, on `devices` that were asked just now, where
        these tell their memory; else in main memory.

        Raises UnsupportedFeature, and ModelLoadFailed where the engine's own arithmetic fails as the load would.
        """
        adapters = await in_thread(_sizes_of, target.adapters) if target.adapters else 0
        engine: policy.Arithmetic | None = None
        if target.backend in COUNTING:
            try:
                engine = await self.dry_run(entry, target)
            except NoAnswer as error:
                self._loop.log(f"a dry run of {entry.name} told nothing: {error.reason}")
        beside = entry.projector and target.projector  # a folder's graph is counted with the folder
        projector = await in_thread(_sizes_of, (beside,)) if beside else 0
        there = policy.of_accelerators(devices)
        memory = there or self._read_memory()  # last, since asking takes its time
        back = self._given_back() if there is None else self._given_back_there()
        free = min(memory.free + back, memory.total)
        seen = policy.DeviceMemory(device=memory.device, total=memory.total, free=free)
        footprint = await self._records.footprint(footprint_key(target), self.runtime_digest, memory.device)
        return policy.plan(entry, target, seen, self._settings, footprint, engine, adapters, projector)

    async def dry_run(self, entry: ModelEntry, target: RequestedIdentity) -> policy.Arithmetic | None:
        """Try the load in a process to throw away, once for each model, way to load it and version of the engine.

        None: it has no numbers to tell. Raises what the load would (ModelLoadFailed, UnsupportedFeature), and NoAnswer.
        """
        key = await in_thread(dry_run_key, entry, target)
        async with self._one_at_a_time:
            if key not in self._asked:
                records = self._records
                found = await records.arithmetic(key)
                if found is None:
                    found = await self._from_engine(entry, target)
                    records.remember_arithmetic(key, found)
                self._asked[key] = found if found.weights else None
            return self._asked[key]

    async def _from_engine(self, entry: ModelEntry, target: RequestedIdentity) -> policy.Arithmetic:
        # Two contexts that the model decides and no request does: a line through them is exact wherever the
        # windows of its layers are full, and too high below.
        settings = self._settings
        most = max(entry.context_train, 2 * fit.STEP)
        contexts = (min(settings.least_context, most // 2), most)
        question = Question(
            identity=target, contexts=contexts, model=entry.facts(), template_deadline=settings.template_deadline
        )
        with self._leases.job("plan", entry.name, self._loop.now()):
            sizes = await self._ask(question)
        if not sizes:
            return policy.NO_ARITHMETIC
        low, high = sizes
        return policy.Arithmetic(
            weights=high.weights,
            kv=_line(contexts, low.kv, high.kv),
            compute=_line(contexts, low.compute, high.compute),
        )

    async def remember(self, entry: ModelEntry, target: RequestedIdentity, device: str, loaded: Loaded) -> None:
        """Keep what this load took, attention memory and buffers apart."""
        self._latest = (entry, target, device, loaded)
        identity = loaded.identity
        kv_type = identity.kv_type if identity.kv_type in fit.KV_TYPES else policy.USUAL_KV
        key = footprint_key(target)
        asked = await in_thread(dry_run_key, entry, target)
        cost = policy.Cost(entry, identity.backend, kv_type, None, self._asked.get(asked))
        beside = cost.kv(identity.num_ctx) + cost.compute(identity.num_ctx)
        self._records.remember_footprint(key, self.runtime_digest, device, max(loaded.measured_bytes - beside, 0))

    async def grew(self, measured_bytes: int) -> None:
        """The load that was remembered last takes this much by now, further conversations apart."""
        if self._latest is None:
            return
        entry, target, device, loaded = self._latest
        if measured_bytes > loaded.measured_bytes * _WORTH_KEEPING:
            await self.remember(entry, target, device, msgspec.structs.replace(loaded, measured_bytes=measured_bytes))


def dry_run_key(entry: ModelEntry, target: RequestedIdentity) -> str:
    """What a dry run depends on: the engine, the model and its template, how it is loaded, the files beside it.

    Blocking: it looks at those files.
    """
    beside = [signature(path) for path in (*target.adapters, entry.projector) if path]
    split = [] if target.tensor_split == AUTO else target.tensor_split
    facts = [footprint_key(target), entry.template_digest, target.device, split, beside]
    return f"{installed_version(target.backend)} dry run {msgspec.json.encode(facts).decode()}"


def _line(contexts: tuple[int, int], low: int, high: int) -> policy.Line:
    per_token = (high - low) / (contexts[1] - contexts[0])
    return policy.Line(fixed=low - per_token * contexts[0], per_token=per_token)


def _sizes_of(paths: Sequence[str]) -> int:
    for path in paths:
        if not os.path.isabs(path):
            raise UnsupportedFeature(feature=f"a path that begins nowhere ({path}): give the whole path")
    try:
        return sum(ask(path, Path(path).stat).st_size for path in paths)
    except OSError as error:
        raise UnsupportedFeature(feature=f"a file that is not there ({error.filename})") from error
