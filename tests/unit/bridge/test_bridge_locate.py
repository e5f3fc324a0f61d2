"""From records to a state: every way modeld can be away."""

from __future__ import annotations

from typing import Any

import pytest

from shared.client.locate import CRASHED_TEXT, detect
from shared.errors import DaemonNotInstalled, DaemonNotRunning, DaemonRestarting, DaemonStale, DaemonUnreachable
from shared.lease.reader import LeaseView, PresenceView, Survey

pytestmark = pytest.mark.unit
GRACE = 60.0


def lease(standing: Any, age: float, **more: Any) -> LeaseView:
    facts = {"epoch": 1, "instance": "o", "endpoint": "unix:/o", "token_file": "t", "pid": 1, "backend": "llama"}
    return LeaseView(standing=standing, age_s=age, **{**facts, **more})


def presence(instance: str = "p", *, dead: bool = False, **more: Any) -> PresenceView:
    facts = {"endpoint": "unix:/p", "token_file": "t", "pid": 2, "start_token": "", "host": "h", "backend": "llama"}
    return PresenceView(
        instance=instance, protocol_min=1, protocol_max=1, version="1", started=0.0, dead=dead, same_boot=True,
        **{**facts, **more},
    )  # fmt: skip


def state(survey: Survey, *, installed: bool = True, noticed: dict[str, float] | None = None) -> Any:
    return detect(survey, grace=GRACE, noticed=noticed or {}, installed=installed)


def test_the_owner_is_called_first_then_the_oldest() -> None:
    view = lease("held", 1.0)
    found = state(Survey(owner=view, last=view, instances=[presence("a"), presence("o"), presence("b")]))
    assert found.state == "running"
    assert [target.instance for target in found.targets] == ["o", "a", "b"]
    assert found.targets[0].owner


def test_an_instance_that_owns_nothing_yet_is_found() -> None:
    assert state(Survey(instances=[presence()])).targets[0].instance == "p"


def test_dead_instances_are_not_called() -> None:
    found = state(Survey(instances=[presence(dead=True)]), noticed={"p": 1.0})
    assert found.targets == ()
    assert found.state == "restarting"


@pytest.mark.parametrize(
    ("survey", "noticed", "expected"),
    [
        (Survey(), {}, DaemonNotRunning),
        (Survey(last=lease("released", 1.0, released_reason="stop")), {}, DaemonNotRunning),
        (Survey(last=lease("released", 1.0, released_reason="restart")), {}, DaemonRestarting),
        (Survey(last=lease("released", 1.0, released_reason="upgrade")), {}, DaemonRestarting),
        (Survey(last=lease("released", 61.0, released_reason="restart")), {}, DaemonStale),
        (Survey(last=lease("dead", 5.0, dead=True)), {"o": 5.0}, DaemonRestarting),
        (Survey(last=lease("dead", 500.0, dead=True)), {"o": 400.0}, DaemonStale),
        (Survey(last=lease("dead", 5.0, dead=True, same_boot=False)), {"o": 5.0}, DaemonStale),
        (Survey(instances=[presence(dead=True, ended_reason="stop", ended_age_s=1.0)]), {}, DaemonNotRunning),
        (Survey(instances=[presence(dead=True, ended_reason="restart", ended_age_s=1.0)]), {}, DaemonRestarting),
        (Survey(problem="/root: Permission denied"), {}, DaemonUnreachable),
    ],
)
def test_each_state_is_a_typed_error(survey: Survey, noticed: dict[str, float], expected: type) -> None:
    error = state(survey, noticed=noticed).error()
    assert type(error) is expected
    assert error.hint  # type: ignore[attr-defined]


def test_nobody_is_said_to_restart_what_was_killed() -> None:
    killed = state(Survey(last=lease("dead", 5.0, dead=True)), noticed={"o": 5.0})
    assert (killed.state, killed.doing) == ("restarting", "ended unexpectedly")
    assert killed.error().message == CRASHED_TEXT
    assert killed.error().retryable
    asked = state(Survey(last=lease("released", 1.0, released_reason="restart")))
    assert (asked.doing, asked.error().message) == ("is restarting", DaemonRestarting().message)
    long_ago = state(Survey(last=lease("dead", 500.0, dead=True)), noticed={"o": 400.0})
    assert "without releasing" in long_ago.error().message


def test_nothing_installed() -> None:
    assert type(state(Survey(), installed=False).error()) is DaemonNotInstalled


def test_only_a_restart_may_be_retried() -> None:
    assert state(Survey(last=lease("released", 1.0, released_reason="restart"))).error().retryable
    assert not state(Survey(last=lease("released", 1.0, released_reason="stop"))).error().retryable


def test_a_stop_is_remembered_as_one() -> None:
    assert state(Survey(last=lease("released", 1.0, released_reason="stop"))).stopped


def test_a_release_written_while_it_is_looked_at_is_a_restart() -> None:
    assert state(Survey(last=lease("released", -0.002, released_reason="restart"))).state == "restarting"
    assert state(Survey(last=lease("released", -60.0, released_reason="restart"))).state == "stale"
