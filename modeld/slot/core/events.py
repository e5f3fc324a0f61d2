"""What can happen to the slot. Each event is a value; the machine decides, the driver feeds. Pure.

`job` numbers a load, `worker` a worker process, `lease` an operation: all rise within one instance,
so that a late event of an older one is recognised and changes nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shared.catalog.identity import RequestedIdentity, ResolvedIdentity


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events."""


class LoadAsked(Event, frozen=True, kw_only=True):
    """Make `target` resident for `caller`. The target has been validated already (header, memory plan)."""

    target: RequestedIdentity
    caller: int
    allow_switch: bool = False


class CallerGone(Event, frozen=True, kw_only=True):
    """A caller of the running load does not want it any more."""

    caller: int


class LoadAbandoned(Event, frozen=True, kw_only=True):
    """Somebody with the right to it ends the running load, whoever waits for it."""

    job: int
    error: dict[str, Any]


class UnloadAsked(Event, frozen=True, kw_only=True):
    """Empty the slot. Nothing to do where it is empty."""

    reason: str


class WorkerUp(Event, frozen=True, kw_only=True):
    """The worker has imported its engine and could take a load."""

    worker: int


class WorkerGone(Event, frozen=True, kw_only=True):
    """The process is proven gone. `reason` says why, for people; `by_template`: a chat template was too slow."""

    worker: int
    reason: str
    by_template: bool = False


class MemoryChecked(Event, frozen=True, kw_only=True):
    """Free memory, read right now, is enough for the load."""

    job: int


class LoadRefused(Event, frozen=True, kw_only=True):
    """The load cannot go on. `error` is a wire error object."""

    job: int
    error: dict[str, Any]


class LoadDone(Event, frozen=True, kw_only=True):
    """The model is resident, with the values really used."""

    job: int
    identity: ResolvedIdentity


class OperationStarted(Event, frozen=True, kw_only=True):
    """A protected operation takes the slot: turn, warm, fill, embed."""

    lease: int
    operation: str
    holder: str


class OperationEnded(Event, frozen=True, kw_only=True):
    """It is over. `state_valid` false: the engine could not prove its state good."""

    lease: int
    state_valid: bool = True
    counts_as_use: bool = True


class OperationStuck(Event, frozen=True, kw_only=True):
    """It did not stop within its limit, or its lease was reaped: its worker must die."""

    lease: int
    reason: str


class Ticked(Event, frozen=True, kw_only=True):
    """Time passed. `idle_ttl` in seconds, or None while somebody waits for or holds the model."""

    idle_ttl: float | None


class OwnerLost(Event, frozen=True, kw_only=True):
    """Another instance may own the hardware from now on."""


class DeviceLost(Event, frozen=True, kw_only=True):
    """The accelerator is another modeld's from now on. `error` is a wire error object that names it."""

    error: dict[str, Any]


class OwnerRenewed(Event, frozen=True, kw_only=True):
    """The process goes on under a new instance id, owning nothing. `floor`: generations start above it."""

    floor: int


class GenerationFloor(Event, frozen=True, kw_only=True):
    """The stored generation of earlier owners: ours go on above it."""

    floor: int


class ShutdownAsked(Event, frozen=True, kw_only=True):
    """The process is about to end."""


ALL: tuple[type[Event], ...] = (
    LoadAsked,
    CallerGone,
    LoadAbandoned,
    UnloadAsked,
    WorkerUp,
    WorkerGone,
    MemoryChecked,
    LoadRefused,
    LoadDone,
    OperationStarted,
    OperationEnded,
    OperationStuck,
    Ticked,
    OwnerLost,
    DeviceLost,
    OwnerRenewed,
    GenerationFloor,
    ShutdownAsked,
)
