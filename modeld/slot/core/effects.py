"""What the machine wants done. The driver maps each effect to work whose outcome is another event. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.catalog.identity import ResolvedIdentity


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all effects."""


class StartWorker(Effect, frozen=True, kw_only=True):
    """Spawn a worker; answered by WorkerUp or WorkerGone."""

    worker: int


class CloseWorker(Effect, frozen=True, kw_only=True):
    """End a worker and prove it gone; answered by WorkerGone. `kill`: do not ask first."""

    worker: int
    kill: bool


class CheckMemory(Effect, frozen=True, kw_only=True):
    """Wait, bounded, for the last memory to come back, read what is free; answered by MemoryChecked or LoadRefused."""

    job: int


class SendLoad(Effect, frozen=True, kw_only=True):
    """Give the load to the worker; answered by LoadDone or LoadRefused."""

    worker: int
    job: int


class SaveGeneration(Effect, frozen=True, kw_only=True):
    """Remember the generation for the next owner."""

    generation: int


class FinishLoad(Effect, frozen=True, kw_only=True):
    """Tell everybody who waits for `job`: the identity, or a wire error object."""

    job: int
    identity: ResolvedIdentity | None = None
    error: dict[str, Any] | None = None


class FailOperation(Effect, frozen=True, kw_only=True):
    """End the running operation with a wire error object."""

    lease: int
    error: dict[str, Any]


class Announce(Effect, frozen=True, kw_only=True):
    """The status changed in a way that people see."""
