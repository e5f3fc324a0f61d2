"""From the records under the data root to one answer: where modeld is, or why it cannot be called.

Pure over a survey of the records. Each state but `running` is a typed error of the table with its own next step, and
`running` means only that somebody should answer: dialling proves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from shared.catalog.advertised.capability import RACE_S
from shared.errors import (
    DaemonError,
    DaemonNotInstalled,
    DaemonNotRunning,
    DaemonRestarting,
    DaemonStale,
    DaemonUnreachable,
)
from shared.lease.reader import LeaseView, PresenceView, Survey
from shared.text.words import START_MODELD

State = Literal["running", "not_running", "restarting", "stale", "unreachable", "not_installed"]
#: Reasons of a release after which the next owner is on its way.
COMES_BACK = frozenset({"restart", "upgrade", "lost", "withdrawn"})
#: How a process ended that said nothing: nobody knows whether anybody starts it again.
CRASH = "crash"
CRASHED_TEXT = f"modeld ended unexpectedly; if it does not come back by itself, {START_MODELD}"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One instance that may be dialled. `token_file` holds the secret of the handshake.

    `pid` and `start_token` together name its process, "" where that cannot be distinguished from another of this pid.
    """

    instance: str
    address: str
    token_file: str
    pid: int
    owner: bool
    start_token: str = ""


class Detection(msgspec.Struct, frozen=True, kw_only=True):
    """`targets` in the order to try: the owner first, then the oldest live instance. Empty unless running.

    `crashed`: restarting, or stale, after an end that nobody meant.
    """

    state: State
    targets: tuple[Target, ...] = ()
    last_seen: float | None = None
    stopped: bool = False
    crashed: bool = False
    hint: str = ""

    @property
    def doing(self) -> str:
        """What is waited for, after "modeld, which"."""
        return "ended unexpectedly" if self.crashed else "is restarting"

    def error(self, hint: str = "") -> DaemonError:
        """The typed error of this state. `hint` is added where the kind takes one."""
        kinds: dict[State, type[DaemonError]] = {
            "running": DaemonUnreachable,
            "not_running": DaemonNotRunning,
            "restarting": DaemonRestarting,
            "stale": DaemonStale,
            "unreachable": DaemonUnreachable,
            "not_installed": DaemonNotInstalled,
        }
        default = "install it with `pip install modeld`" if self.state == "not_installed" else START_MODELD
        crash_text = (CRASHED_TEXT,) if self.crashed and self.state == "restarting" else ()
        return kinds[self.state](
            *crash_text,
            hint=hint or self.hint or default,
            last_seen=self.last_seen,
            retryable=self.state in ("restarting", "running"),
        )


def detect(survey: Survey, *, grace: float, noticed: Mapping[str, float], installed: bool) -> Detection:
    """What the records say. `grace` in seconds; `noticed` gives for each instance seen dead how long ago that was."""
    found = targets(survey)
    if found:
        return Detection(state="running", targets=found)
    if survey.problem:
        return Detection(state="unreachable", hint=survey.problem)
    last, age = _last_end(survey, noticed)
    if last == "":
        return Detection(state="not_running" if installed else "not_installed")
    if last in COMES_BACK or last == CRASH:
        recent = age is not None and -RACE_S <= age <= grace
        return Detection(state="restarting" if recent else "stale", last_seen=age, crashed=last == CRASH)
    return Detection(state="not_running", last_seen=age, stopped=True)


def targets(survey: Survey) -> tuple[Target, ...]:
    """Who may be dialled, in the order to try: the owner first, then the oldest that lives."""
    found: list[Target] = []
    owner = survey.owner
    if owner is not None and owner.standing == "held" and owner.endpoint:
        found.append(target_of(owner, owner=True))
    known = {target.instance for target in found}
    found += [target_of(view) for view in survey.living if view.instance not in known]
    return tuple(found)


def target_of(view: LeaseView | PresenceView, *, owner: bool = False) -> Target:
    """The instance that a record names."""
    return Target(
        instance=view.instance,
        address=view.endpoint,
        token_file=view.token_file,
        pid=view.pid,
        owner=owner,
        start_token=view.start_token,
    )


def _last_end(survey: Survey, noticed: Mapping[str, float]) -> tuple[str, float | None]:
    """How the last instance ended: its reason or CRASH, "" when there never was one; and how long ago."""
    ends: list[tuple[float, str]] = []
    last = survey.last
    if last is not None and last.same_boot:
        if last.standing == "released":
            ends.append((last.age_s, last.released_reason))
        elif last.dead:
            ends.append((min(last.age_s, noticed.get(last.instance, last.age_s)), CRASH))
    for view in survey.instances:
        if view.ended_age_s is not None:
            ends.append((view.ended_age_s, view.ended_reason))
        elif view.dead and view.same_boot and view.instance in noticed:
            ends.append((noticed[view.instance], CRASH))
    if not ends:
        return (CRASH, None) if last is not None else ("", None)
    age, reason = min(ends)
    return reason, age
