"""The slot as one value, and what must always be true of it. Pure."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from modeld.slot.core.events import Event
from shared.catalog.identity import RequestedIdentity, ResolvedIdentity

Name = Literal["Empty", "Loading", "Ready", "Busy", "Switching", "Unloading", "Failed", "ShuttingDown", "LostOwner"]
NAMES: tuple[Name, ...] = get_args(Name)


class LoadJob(msgspec.Struct, frozen=True, kw_only=True):
    """One load. `up`: its worker has imported; `sent`: the worker is loading.

    `orphaned_at` is when its last caller went, in awake seconds.
    """

    number: int
    target: RequestedIdentity
    callers: frozenset[int]
    unloads: str = ""
    up: bool = False
    sent: bool = False
    orphaned_at: float | None = None


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What holds the resident model. `since` in awake seconds."""

    lease: int
    kind: str
    holder: str
    since: float


class SlotState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the machine knows. `worker` has or is about to get the model; `closing` are ending.

    `error` is the wire form of what made the slot Failed. Times in awake seconds.
    """

    name: Name = "Empty"
    generation: int = 0
    active: ResolvedIdentity | None = None
    load: LoadJob | None = None
    operation: Operation | None = None
    worker: int | None = None
    closing: frozenset[int] = frozenset()
    error: dict[str, Any] | None = None
    used_at: float = 0.0
    orphaned_at: float | None = None
    next_worker: int = 1
    next_job: int = 1


class IllegalEvent(Exception):
    """The driver fed what cannot happen in this state; `history` is how it came to that."""

    def __init__(self, state: SlotState, event: Event, history: list[str]) -> None:
        lines = "".join(f"\n  {line}" for line in history)
        super().__init__(f"{type(event).__name__} in {state.name}{lines}")
        self.state = state
        self.event = event
        self.history = history


class InvariantBroken(AssertionError):
    """A state that must not exist: a defect of the machine."""


#: name -> (has an active model, has a load, has an operation, has a worker)
_SHAPE: dict[Name, tuple[bool, bool, bool, bool]] = {
    "Empty": (False, False, False, False),
    "Loading": (False, True, False, True),
    "Ready": (True, False, False, True),
    "Busy": (True, False, True, True),
    "Switching": (False, True, False, True),
    "Unloading": (False, False, False, False),
    "Failed": (False, False, False, False),
    "ShuttingDown": (False, False, False, False),
    "LostOwner": (False, False, False, False),
}


def validate(state: SlotState) -> None:
    """Raise InvariantBroken unless the state is sound. Run after every step in tests."""
    shape = (
        state.active is not None,
        state.load is not None,
        state.operation is not None,
        state.worker is not None,
    )
    _require(shape == _SHAPE[state.name], f"{state.name} has shape {shape}")
    _require(state.worker not in state.closing, "a worker both serves and closes")
    # One model at a time: as long as an older process lives, the next one holds nothing.
    if state.closing:
        _require(
            state.name in ("Switching", "Unloading", "ShuttingDown", "LostOwner"), f"{state.name} beside a closing"
        )
        _require(state.load is None or not state.load.sent, "a load was sent before the old worker had gone")
    _require((state.error is not None) <= (state.name in ("Failed", "Unloading")), f"{state.name} carries an error")
    _require(state.name != "Failed" or state.error is not None, "Failed without a reason")
    if state.load is not None:
        orphaned = state.load.orphaned_at is not None
        _require(orphaned == (not state.load.callers), "a load is orphaned exactly when nobody waits for it")
        _require(not state.load.sent or state.load.up, "a load was sent to a worker that is not up")


def _require(truth: bool, why: str) -> None:
    if not truth:
        raise InvariantBroken(why)
