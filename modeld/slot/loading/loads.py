"""Loading: from a granted request to a resident model, with its checks in the order that keeps memory safe."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from modeld.engine.dry_run import PROJECTOR
from modeld.host.load_plan import NoAnswer
from modeld.memory import policy
from modeld.memory.probe import private_bytes
from modeld.pipe.messages import Load
from modeld.slot.core import effects as fx
from modeld.slot.core import events as ev
from modeld.slot.loading.planner import Planner
from modeld.slot.loading.projectors import Projectors
from modeld.slot.loading.rejections import Rejections
from modeld.slot.ports import ReadMemory
from modeld.slot.request import active_model, identity_of, merged, require_servable
from modeld.slot.scheduled_request import ScheduledRequest, Stopped
from modeld.turn.queue import fits
from shared.diagnosis.threads import in_thread
from shared.errors import InsufficientMemory, ModeldError, ModelLoadFailed, from_wire
from shared.lease.crashpoint import crash_point
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.pipe.messages import Done, Loaded
    from modeld.slot.loop import Loop, Notes
    from modeld.slot.ports import ModelLookup, Owner, Records
    from modeld.slot.worker_supervisor import WorkerSupervisor
    from modeld.turn.lease import LeaseTable
    from shared.catalog.entry import ModelEntry
    from shared.catalog.identity import RequestedIdentity
    from shared.settings import Settings

_RECOVERY_POLL = 0.05
#: What a resident worker may take to ask its devices; then the plan is about main memory. Seconds.
DEVICE_SECONDS = 1.0


class Loads:
    """Carries out the machine's load effects, and keeps what is known of the resident model."""

    def __init__(
        self,
        loop: Loop,
        settings: Settings,
        *,
        backend: str,
        owner: Owner,
        lookup: ModelLookup,
        records: Records,
        leases: LeaseTable,
        workers: WorkerSupervisor,
        read_memory: ReadMemory,
        notes: Notes,
    ) -> None:
        self._loop = loop
        self._settings = settings
        self.backend = backend
        self._owner = owner
        self._lookup = lookup
        self._records = records
        self._leases = leases
        self._workers = workers
        self._notes = notes
        self.read_memory = read_memory
        self.planner = Planner(loop, settings, records, leases, read_memory, self.given_back, self._given_back_there)
        #: Of the resident model, as they were before its load.
        self.devices: tuple[api.Accelerator, ...] = ()
        self.seconds: dict[str, float] = {}
        self.capabilities: dict[str, Any] = {}
        self.measured: int | None = None
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.plan: api.MemoryPlan | None = None
        self.entry: ModelEntry | None = None
        self.fraction = 0.0
        self.rejections = Rejections()
        self.projectors = Projectors()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._listeners: dict[int, list[ScheduledRequest]] = {}
        self._entries: dict[int, tuple[ModelEntry, api.MemoryPlan | None]] = {}
        self._targets: dict[int, RequestedIdentity] = {}
        self._worker_of: dict[int, int] = {}
        self._named: int | None = None
        self._naming = anyio.Lock()

    # --- towards works -------------------------------------------------------------------------

    def active(self) -> api.ActiveModel | None:
        """The resident model as the wire tells it."""
        identity = self._loop.state.active
        return active_model(identity, self.capabilities, self.measured) if identity is not None else None

    async def ensure(self, request: ScheduledRequest, entry: ModelEntry, config: api.LoadConfig) -> bool:
        """Make the model resident for `work`; whether a load was needed.

        Raises Stopped, ModelLoadFailed, InsufficientMemory, BackendMismatch, NotOwner.
        """
        wanted = request.ticket.wanted
        assert wanted is not None
        await self._owner.ensure()
        await self._owner.confirm()
        crash_point("load.asked")
        state = self._loop.state
        if state.active is not None and fits(state.active, wanted):
            return False
        require_servable(entry, self.backend)
        joining = state.load is not None and fits(state.load.target, wanted)
        if not joining:
            # The new model is proven loadable before the old one is closed for it.
            # A drive that hangs is left to itself: whoever waits for it must be able to give up.
            named = entry
            entry = await request.unless_stopped(lambda: in_thread(self._lookup.checked, named, abandon_on_cancel=True))
        kept = await self.config(entry)
        target = identity_of(entry, merged(config, kept), self.backend)
        state = self._loop.state
        if joining and state.load is not None:
            target = state.load.target
        else:
            found = entry
            await request.unless_stopped(lambda: self._validate(found, target))
        if request.stopped.is_set():
            raise Stopped
        began = self._loop.now()
        active = self._loop.state.active
        if active is not None and not fits(active, wanted):
            self._note_switch(request, active.name)
        self._loop.feed(ev.LoadAsked(target=target, caller=request.ticket.number, allow_switch=request.allow_switch))
        job = self._loop.state.load
        if job is None:
            return False
        self._entries.setdefault(job.number, (entry, None))
        self._targets[job.number] = job.target
        try:
            await self._wait(request, job.number, job.unloads)
        finally:
            request.load_s = self._loop.now() - began
        return True

    async def config(self, entry: ModelEntry) -> api.LoadConfig:
        """The settings kept for a model."""
        return await self._records.config(entry.name, entry.aliases)

    def _note_switch(self, request: ScheduledRequest, active: str) -> None:
        client = request.ticket.client_name
        self._loop.log(f"switching from {active} to {request.ticket.model} for {client}")
        self._records.audit("switch", client, {"from": active, "to": request.ticket.model})

    async def _validate(self, entry: ModelEntry, target: RequestedIdentity) -> None:
        """Whatever is known before a load that would end it, and the memory plan; the resident model stays.

        What a switch would give back counts as free. Where a dry run itself came to no answer, the load may show it
        as long as nothing is resident that it could cost.
        """
        try:
            plan = await self.planner.plan(entry, target, await self.devices_now(target))
            if self._loop.state.active is not None:
                await self.planner.dry_run(entry, target)
        except NoAnswer as error:
            raise self._untried(entry, target, error) from error
        except ModelLoadFailed as error:
            self.rejections.note(target, error.to_wire())
            raise
        policy.require(plan)

    def _untried(self, entry: ModelEntry, target: RequestedIdentity, error: NoAnswer) -> ModelLoadFailed:
        """Why a load is not begun whose dry run ended without an answer."""
        active = self._loop.state.active
        reason = f"tried beside {active.name if active else 'nothing'}, which is still loaded: {error.reason}"
        if error.step == PROJECTOR and entry.projector:
            reason = f"{reason}; {self.projectors.note(target.path, entry.projector, error.reason)}"
        return ModelLoadFailed(model=entry.name, stage="worker", reason=reason)

    async def devices_now(self, target: RequestedIdentity) -> tuple[api.Accelerator, ...]:
        """As `devices_of`, or () where a worker that is stuck or gone cannot say: no load waits for it."""
        with anyio.move_on_after(DEVICE_SECONDS), suppress(ModeldError):
            return await self.devices_of(target)
        return ()

    async def devices_of(self, target: RequestedIdentity) -> tuple[api.Accelerator, ...]:
        """The accelerators that a load would use, asked now of the worker that is there; () where none can say yet.

        Raises EngineFailed, ModelLoadFailed.
        """
        host = self._workers.host(self._loop.state.worker)
        if target.device == "CPU" or host is None or host.exited.is_set():
            return ()
        await self._workers.imported(host)
        return await self._workers.devices(host, target)

    def _given_back_there(self) -> int:
        return self.plan.required_bytes if self.plan is not None and self.devices and self._is_resident else 0

    @property
    def _is_resident(self) -> bool:
        return self._loop.state.active is not None

    def given_back(self) -> int:
        """Bytes that the end of the resident model would free."""
        # Mapped weights count as free already; what the process holds alone is what its end gives back.
        state = self._loop.state
        if state.active is None:
            return 0
        host = self._workers.host(state.worker)
        return (private_bytes(host.pid) or 0) if host is not None else 0

    async def _wait(self, request: ScheduledRequest, job: int, unloads: str) -> None:
        """Until the load has ended, or the work is stopped (the load may go on without it)."""
        future = self._waiting.get(job)
        if future is None:
            future = self._waiting[job] = asyncio.get_running_loop().create_future()
        listeners = self._listeners.setdefault(job, [])
        listeners.append(request)
        request.emit(
            api.Loading(
                fraction=self.fraction if len(listeners) > 1 else 0.0, model=request.ticket.model, unloads=unloads
            )
        )
        stopped = asyncio.ensure_future(request.stopped.wait())
        try:
            await asyncio.wait({future, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            listeners.remove(request)
        if future.done():
            error = future.result()
            if error is not None:
                raise from_wire(error)
            if request.stopped.is_set():
                raise Stopped
            return
        self._loop.feed(ev.CallerGone(caller=request.ticket.number))
        raise Stopped

    def finish(self, effect: fx.FinishLoad) -> None:
        """The machine ended a load."""
        future = self._waiting.pop(effect.job, None)
        target = self._targets.pop(effect.job, None)
        worker = self._worker_of.pop(effect.job, None)
        known = self._entries.pop(effect.job, None)
        # a folder's graph is read by every load of the folder: to leave it out helps over an image alone
        projector = known[0].projector if known is not None else ""
        error = effect.error
        if target is not None:
            self.rejections.note(target, error)
            if error is not None and projector and worker in self._workers.crashed:
                reason = str(error.get("data", {}).get("reason") or "it crashed")
                explained = f"{reason}; {self.projectors.note(target.path, projector, reason)}"
                error = ModelLoadFailed(model=target.name, stage="worker", reason=explained).to_wire()
        self._listeners.pop(effect.job, None)
        self.fraction = 0.0
        if error is not None:
            self._notes.last_error = error
        if future is not None and not future.done():
            future.set_result(error)

    def entry_in_use(self) -> ModelEntry | None:
        """The model whose files the slot stands on, loading included."""
        state = self._loop.state
        if state.load is not None and state.load.number in self._entries:
            return self._entries[state.load.number][0]
        return self.entry if state.active is not None or state.closing else None

    # --- effects -------------------------------------------------------------------------------

    async def clear_name(self, worker: int) -> None:
        """The worker named in the lease is gone: a successor need not look for it. A newer name is left alone."""
        async with self._naming:
            if self._named != worker:
                return
            self._named = None
            await self._owner.release_devices()
            try:
                await self._owner.clear_worker()
            except ModeldError:
                return  # the lease has gone too, and says by its release or its successor what is left

    def refused(self, worker: int, error: ModeldError) -> None:
        """A worker did not come up for a reason that has a type of its own."""
        state = self._loop.state
        if state.load is None or state.worker != worker:
            return
        if isinstance(error, ModelLoadFailed) and not error.model:  # a worker that is no further knows no model
            error = ModelLoadFailed(model=state.load.target.name, stage=error.stage, reason=error.reason)
        self._loop.feed(ev.LoadRefused(job=state.load.number, error=error.to_wire()))

    async def check_memory(self, job: int) -> None:
        """Wait, bounded, for what was just closed to come back; then decide on what is really free."""
        deadline = self._loop.now() + self._settings.memory_recovery_wait
        while True:
            state = self._loop.state
            if state.load is None or state.load.number != job:
                return
            entry, _ = self._entries[job]
            try:
                plan = policy.require(await self.planner.plan(entry, state.load.target))
            except InsufficientMemory as error:
                if self._loop.now() < deadline and state.load.unloads:
                    await anyio.sleep(_RECOVERY_POLL)
                    continue
                self._loop.feed(ev.LoadRefused(job=job, error=error.to_wire()))
                return
            self._entries[job] = (entry, plan)
            self._loop.feed(ev.MemoryChecked(job=job))
            return

    async def send(self, worker: int, job: int) -> None:
        """Name the worker in the lease, then let it load."""
        load = self._loop.state.load
        host = self._workers.host(worker)
        if load is None or load.number != job or host is None:
            return
        entry, plan = self._entries[job]
        assert plan is not None
        self._worker_of[job] = worker
        lease = self._leases.begin("load", entry.name, self._loop.now(), "loading")
        lease.process(host.pid, host.start_token)
        message = Load(
            turn=host.next_turn(),
            identity=load.target,
            model=entry.facts(),
            num_ctx=plan.num_ctx,
            threads=self._settings.threads,
            parked_bytes=self._parked_bytes(plan),
            template_deadline=self._settings.template_deadline,
            disk_cache_bytes=self._settings.parked_disk_bytes,
            speculation=self._settings.speculation,
        )
        lease.pin(message.turn, self._loop.now())

        def moved(fraction: float) -> None:
            crash_point("load.running")
            lease.stage("loading", self._loop.now(), fraction=fraction)
            self._moved(job, entry.name, load.unloads, fraction)

        try:
            async with self._naming:
                self._named = worker
                await self._owner.name_worker(host.pid, host.start_token)
            await self._owner.confirm()
            imported = await host.imported()
            self.planner.runtime_digest = imported.runtime_digest
            devices = await self.devices_of(load.target)
            if policy.of_accelerators(devices) is not None:
                plan = policy.require(await self.planner.plan(entry, load.target, devices))
                message = msgspec.structs.replace(message, num_ctx=plan.num_ctx, parked_bytes=self._parked_bytes(plan))
            await self._owner.hold_devices([one.name for one in devices], host.pid, host.start_token)
            crash_point("load.allowed")
            loaded = await self._workers.load(worker, message, moved)
            crash_point("load.loaded")
        except ModeldError as error:
            self._loop.log(f"load of {entry.name} failed: {error.kind}")
            self._workers.note_exit(worker)  # a crash is reported as a crash
            self._loop.feed(ev.LoadRefused(job=job, error=error.to_wire()))
            return
        finally:
            lease.end()
        self._take(entry, plan, loaded)
        self.devices = devices
        self.seconds[entry.name] = loaded.seconds
        await self.planner.remember(entry, load.target, plan.device, loaded)
        self._records.hint(entry.name)
        self._loop.log(f"loaded {entry.name} in {loaded.seconds:.2f} s, context {loaded.identity.num_ctx}")
        self._loop.feed(ev.LoadDone(job=job, identity=loaded.identity))
        crash_point("load.ready")

    def _take(self, entry: ModelEntry, plan: api.MemoryPlan, loaded: Loaded) -> None:
        self.entry = entry
        self.plan = plan
        self.measured = loaded.measured_bytes
        self.capabilities = loaded.capabilities
        stretched = policy.stretched(entry, loaded.identity.num_ctx)
        self.warnings = [*([stretched] if stretched else []), *loaded.warnings, *self.projectors.warnings(entry)]
        self.notes = loaded.notes

    def note_measured(self, done: Done) -> None:
        """After a turn: what the resident model takes by now, where memory comes only as it is used."""
        if done.measured_bytes:
            self.measured = done.measured_bytes + done.parked_bytes
            self._loop.spawn(self.planner.grew(done.measured_bytes))

    def _parked_bytes(self, plan: api.MemoryPlan) -> int:
        left = plan.free_bytes - plan.reserve_bytes - plan.required_bytes
        return max(int(left * self._settings.parked_fraction), 0)

    def _moved(self, job: int, model: str, unloads: str, fraction: float) -> None:
        self.fraction = fraction
        for request in self._listeners.get(job, []):
            request.emit(api.Loading(fraction=fraction, model=model, unloads=unloads))
