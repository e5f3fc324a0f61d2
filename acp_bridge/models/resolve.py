"""From a name to what will answer: strict, healed once on a miss, never another model. Pure except `resolve_healed`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from acp_bridge.models.picker import NOTHING, RemoteModel, is_remote, nothing_reason, row_called
from shared.errors import ModelNotFound, NoAvailableModel, NoSatisfactoryModel, RemoteNotPicked, ResolutionMiss
from shared.protocol.api import LibraryRow
from shared.text.words import NOT_IN_LIBRARY

T = TypeVar("T")


def resolve(
    wanted: str, pick: str, rows: Sequence[LibraryRow], remotes: Sequence[RemoteModel], reason: str
) -> LibraryRow | RemoteModel:
    """The model that answers as `wanted`. `pick` is what a person picked, "" when nothing; `reason` says why local
    models are missing, if they are.

    Raises NoAvailableModel when nothing is wanted, since nothing is there; NoSatisfactoryModel when what is wanted is
    not among the models; RemoteNotPicked for a model of another machine that is not the pick, whoever named it.
    """
    for remote in remotes:
        if remote.id == wanted:
            if wanted != pick:
                raise RemoteNotPicked(model=wanted, provider=remote.provider)
            return remote
    row = row_called(wanted, rows)
    if row is not None:
        if row.state in ("not servable", "rejected"):
            raise NoSatisfactoryModel(wanted=wanted, reason=row.reason or row.state)
        return row
    if wanted in ("", NOTHING):
        raise NoAvailableModel(reason=nothing_reason(reason, remotes), wanted=wanted)
    raise NoSatisfactoryModel(wanted=wanted, reason=reason or NOT_IN_LIBRARY)


def checked_pick(
    value: object,
    offered: Sequence[str],
    rows: Sequence[LibraryRow] = (),
    missing: Callable[[str], str] = lambda name: "no provider lists it",
) -> str:
    """A value that an editor wants to set, under its name of now: a name that one of the `rows` had before means that
    one. `missing` says why a remote model is not offered.

    Raises ModelNotFound with near names, or for what is no name.
    """
    if isinstance(value, str):
        row = row_called(value, rows)
        name = value if row is None else row.name
        if name in offered:
            return name
    from shared.catalog.names import nearest  # only for a mistake

    near = nearest(str(value), offered)
    if isinstance(value, str) and is_remote(value) and not near:
        raise ModelNotFound(f"no model named {value}: {missing(value)}", requested=value, near=[])
    raise ModelNotFound(requested=str(value), near=near)


class HealDebounce:
    """One reconcile for all misses within `window` seconds; a change of the lease opens it again. Pure."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._last: float | None = None
        self._lease: object = None

    def forget(self) -> None:
        """The last one did not come to its end."""
        self._last = None

    def due(self, now: float, lease: object) -> bool:
        """Whether a miss at `now` reconciles. `lease` names the state of the records."""
        if self._last is not None and now - self._last < self._window and lease == self._lease:
            return False
        self._last = now
        self._lease = lease
        return True


async def resolve_healed(attempt: Callable[[], T], reconcile: Callable[[], Awaitable[None]]) -> T:
    """`attempt` once, and once more after a reconcile when it missed. Other errors pass through."""
    try:
        return attempt()
    except ResolutionMiss:
        await reconcile()
    return attempt()
