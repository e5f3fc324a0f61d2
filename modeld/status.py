"""The status of this instance: read from what is known already, touching no engine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from shared.protocol import api
from shared.version import __version__

if TYPE_CHECKING:
    from modeld.slot.driver import Slot
    from shared.settings import Settings


class Counts(Protocol):
    """Who is connected."""

    @property
    def sessions(self) -> int:
        """Open handles."""
        ...

    @property
    def editors(self) -> int:
        """Greeted connections that are no commands of a moment."""
        ...


class Reported(Protocol):
    """What a status is built from."""

    slot: Slot
    settings: Settings
    backend: str
    abandoned_turns: int
    hint_model: str | None

    @property
    def server(self) -> Counts:
        """The connections."""
        ...

    @property
    def instance(self) -> str:
        """The fence of every call."""
        ...

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        ...

    @property
    def role(self) -> api.Role:
        """`owner`, `standby` or `idle`."""
        ...

    @property
    def ends_for(self) -> str:
        """Why it is ending; "" while it goes on."""
        ...

    @property
    def uptime(self) -> float:
        """Awake seconds since its start."""
        ...


def build(daemon: Reported) -> api.Status:
    """`status`, as DESIGN names its parts."""
    slot = daemon.slot
    state = slot.state
    active = slot.loads.active()
    return api.Status(
        instance=daemon.instance,
        role=daemon.role,
        pid=os.getpid(),
        backend=daemon.backend,
        state=state.name,
        generation=state.generation,
        active=active,
        version=__version__,
        ending=daemon.ends_for,
        endpoint=daemon.endpoint,
        busy=busy_of(slot),
        queue=_queue(slot),
        jobs=_jobs(slot),
        sessions=daemon.server.sessions,
        clients=daemon.server.editors,
        effective_context=active.num_ctx if active is not None else None,
        memory=_memory(slot, daemon.settings),
        pending_reload=slot.notes.pending_reload,
        last_error=slot.notes.last_error,
        uptime_s=round(daemon.uptime, 3),
        last_turn=slot.notes.last_turn,
        abandoned_turns=daemon.abandoned_turns,
        hint_model=daemon.hint_model,
        worker_pid=_worker_pid(slot),
        rejected=slot.loads.rejections.rows(),
    )


def busy_of(slot: Slot) -> api.BusyOperation | None:
    """What holds the slot, with its stage; a load names its model in `detail`."""
    state, now = slot.state, slot.now()
    if state.operation is not None:
        view = slot.leases.view(state.operation.lease)
        return api.BusyOperation(
            operation=state.operation.kind,
            stage=view.stage if view is not None else "",
            holder=state.operation.holder,
            age_s=round(now - state.operation.since, 3),
            detail=dict(view.detail) if view is not None else {},
        )
    if state.load is not None:
        current = slot.scheduler.current
        return api.BusyOperation(
            operation="switch" if state.load.unloads else "load",
            stage="loading" if state.name == "Loading" else "unloading",
            holder=current.ticket.client_name if current is not None else "",
            age_s=round(now - current.granted_at, 3) if current is not None else 0.0,
            detail={
                "model": state.load.target.name,
                "unloads": state.load.unloads,
                "fraction": round(slot.loads.fraction, 3),
            },
        )
    return None


def _queue(slot: Slot) -> list[api.Waiting]:
    now = slot.now()
    return [
        api.Waiting(client=ticket.client_name, model=ticket.model, waited_s=round(now - ticket.arrived, 3))
        for ticket in slot.scheduler.positions()
    ]


def _jobs(slot: Slot) -> list[api.BusyOperation]:
    now = slot.now()
    return [
        api.BusyOperation(
            operation=view.operation,
            stage=view.stage,
            holder=view.holder,
            age_s=round(now - view.started, 3),
            detail=dict(view.detail),
        )
        for view in slot.leases.views()
        if not view.on_engine
    ]


def _memory(slot: Slot, settings: Settings) -> api.MemoryStatus:
    from modeld.memory import policy

    plan = slot.loads.plan if slot.state.active is not None else None
    try:
        memory = slot.loads.read_memory()
    except OSError:
        return api.MemoryStatus()
    return api.MemoryStatus(
        required_bytes=plan.required_bytes if plan is not None else None,
        free_bytes=memory.free,
        reserve_bytes=policy.reserve_bytes(memory.total, settings),
        measured_bytes=slot.loads.measured if plan is not None else None,
        pressure=slot.notes.pressure,
        devices=list(slot.loads.devices) if plan is not None else [],
    )


def _worker_pid(slot: Slot) -> int | None:
    host = slot.worker()
    return host.pid if host is not None else None
