"""What the database holds, as values."""

from __future__ import annotations

from typing import Any

import msgspec


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What a new owner finds. `generation` is the last one used: the next is above it.

    `abandoned` counts the turns that the last owner did not end; `notice` is for people, or "".
    """

    generation: int
    abandoned: int
    backends: dict[str, dict[str, Any]]
    hint_model: str | None = None
    notice: str = ""


class WorkspaceLease(msgspec.Struct, frozen=True, kw_only=True):
    """A client's exclusive claim. `remaining_s` in seconds."""

    workspace: str
    holder: str
    remaining_s: float


class TurnRow(msgspec.Struct, frozen=True, kw_only=True):
    """One turn. `state` is active, ended or abandoned; `outcome` the finish reason or error kind."""

    id: int
    instance: str
    epoch: int
    client: str
    model: str
    conversation: str
    state: str
    outcome: str
    began: float
    ended: float | None


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what to whom, such as a switch that ended another editor's turn."""

    at: float
    instance: str
    action: str
    who: str
    detail: dict[str, Any]


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """Measured bytes of a resident model. `exact` is false for another engine version: it still informs."""

    bytes: int
    exact: bool
    measured: float
