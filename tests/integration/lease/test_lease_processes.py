"""Real processes that start, die, freeze and wake: one owner, and a successor without a human."""

from __future__ import annotations

import concurrent.futures
import functools
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from lease_processes import Instance
from shared.lease import reader
from shared.lease.process import identity
from shared.paths import DataRoot
from waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]
Start = Callable[..., Instance]
TTL = 1.0
MARGIN = 0.25


def test_single_owner(data_root: DataRoot, start: Start) -> None:
    """single_owner: N instances contend at once; exactly one acquires, everybody else learns who."""
    instances = [start(wait=False) for _ in range(8)]
    for instance in instances:
        instance.ready()
    for instance in instances:
        instance.send("ensure")
    answers = [instance.wait("answer", "ensure") for instance in instances]
    owners = [one for one, answer in zip(instances, answers, strict=True) if "epoch" in answer]
    assert len(owners) == 1
    reported = {answer["data"]["owner"]["instance"] for answer in answers if answer.get("error") == "not_owner"}
    assert reported == {owners[0].name}
    survey = reader.survey(data_root)
    assert survey.owner is not None
    assert survey.owner.instance == owners[0].name
    assert [one.ask("status")["role"] for one in instances].count("owner") == 1


def test_takeover_after_crash(data_root: DataRoot, start: Start) -> None:
    """takeover_after_crash: kill the owner; the oldest standby owns under its own, fresh id, within a second."""
    owner = start()
    first = owner.ask("ensure")["epoch"]
    standby, younger = start(), start()
    took = []
    for _ in range(3):
        for one in (standby, younger):
            until(functools.partial(_is_standby, one), "it stands by")
        began = time.monotonic()
        owner.kill()
        message = standby.wait("event", "acquired")
        took.append(message["at"] - began)
        survey = reader.survey(data_root)
        assert survey.owner is not None
        assert survey.owner.instance == standby.name
        assert survey.owner.epoch > first
        first = survey.owner.epoch
        owner, standby, younger = standby, younger, start()
    print(f"takeover after a proven death: median {statistics.median(took):.3f} s")
    assert statistics.median(took) < 1.0


def test_self_fence_on_renew_failure(start: Start) -> None:
    """self_fence_on_renew_failure: the renewing write hangs; the owner stops by its own clock, freezing first."""
    owner = start()
    owner.ask("ensure")
    assert owner.ask("status")["valid"]
    owner.ask("stall")
    frozen = owner.wait("event", "freeze")
    assert not owner.ask("status")["valid"]
    lost = owner.wait("event", "lost")
    assert lost["at"] > frozen["at"]
    acts = owner.ask("status")["acts"]
    _let_pass(TTL)
    assert owner.ask("status")["acts"] == acts
    assert owner.ask("confirm")["error"] == "not_owner"


def test_a_stalled_owner_has_stopped_before_its_successor_begins(data_root: DataRoot, start: Start) -> None:
    owner = start()
    owner.ask("ensure")
    standby = start()
    until(lambda: _is_standby(standby), "the other one stands by")
    owner.ask("stall")
    frozen = owner.wait("event", "freeze")
    acquired = standby.wait("event", "acquired")
    assert frozen["at"] < acquired["at"]  # one machine, one monotonic clock


def test_a_frozen_owner_is_followed_and_does_nothing_on_waking(data_root: DataRoot, start: Start) -> None:
    owner = start()
    epoch = owner.ask("ensure")["epoch"]
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        owner.ask(f"worker {worker.pid}")
        standby = start()
        until(lambda: _is_standby(standby), "the other one stands by")
        acts = owner.ask("status")["acts"]
        stopped = time.monotonic()
        owner.signal(signal.SIGSTOP)
        acquired = standby.wait("event", "acquired")
        took = acquired["at"] - stopped
        print(f"takeover from a frozen owner: {took:.2f} s")
        assert took > TTL
        assert worker.wait(5) == -signal.SIGKILL  # gone before the new owner may load
        written = (data_root.owner / f"{epoch}.lease").read_bytes()
        owner.signal(signal.SIGCONT)
        owner.wait("event", "lost")
        after = owner.ask("status")
        assert not after["valid"]
        assert after["acts"] - acts <= 1  # at most the step it was stopped in
        assert (data_root.owner / f"{epoch}.lease").read_bytes() == written
        assert standby.ask("status")["valid"]
    finally:
        worker.kill()
        worker.wait()


def test_a_suspend_of_everybody_leaves_the_owner_in_place(data_root: DataRoot, start: Start) -> None:
    owner = start()
    epoch = owner.ask("ensure")["epoch"]
    standby = start()
    until(lambda: _is_standby(standby), "the other one stands by")
    for one in (owner, standby):
        one.signal(signal.SIGSTOP)
    _let_pass(3 * TTL)
    standby.signal(signal.SIGCONT)  # the contender wakes first
    owner.signal(signal.SIGCONT)
    _let_pass(2 * TTL)
    assert owner.ask("status")["valid"]
    assert owner.ask("confirm")["epoch"] == epoch
    assert owner.events() == ["acquired", "freeze", "thaw"]
    assert standby.ask("status")["role"] == "standby"
    assert standby.events() == []


@pytest.mark.parametrize("shift", [3600, -3600])
def test_a_wall_clock_that_jumps_changes_nothing(data_root: DataRoot, start: Start, shift: int) -> None:
    owner = start()
    epoch = owner.ask("ensure")["epoch"]
    standby = start(TEST_WALL_SHIFT=str(shift))
    owner.ask(f"shift {shift}")
    _let_pass(2.5 * TTL)
    standby.ask("shift 0")
    _let_pass(TTL)
    assert owner.ask("confirm")["epoch"] == epoch
    assert standby.ask("ensure")["error"] == "not_owner"
    owner.ask("stall")  # and nobody lives past the lease either
    owner.wait("event", "lost")
    assert not owner.ask("status")["valid"]


def test_processes_of_two_time_zones_agree(data_root: DataRoot, start: Start) -> None:
    owner = start(TZ="Pacific/Auckland")
    epoch = owner.ask("ensure")["epoch"]
    contender = start(TZ="America/Los_Angeles")
    _let_pass(2.5 * TTL)
    assert contender.ask("ensure")["error"] == "not_owner"
    assert owner.ask("confirm")["epoch"] == epoch
    survey = reader.survey(data_root)
    assert survey.owner is not None
    assert 0 <= survey.owner.age_s < 60


def test_no_standby_acts_after_a_stop(data_root: DataRoot, start: Start) -> None:
    owner = start()
    owner.ask("ensure")
    standby = start()
    until(lambda: _is_standby(standby), "the other one stands by")
    assert owner.ask("release stop")["written"]
    owner.end()
    until(lambda: standby.ask("status")["role"] == "idle", "it stands by no more")
    _let_pass(2 * TTL)
    assert standby.events() == []
    survey = reader.survey(data_root)
    assert survey.owner is None
    assert survey.released == "stop"
    assert "epoch" in standby.ask("ensure")  # but whoever is asked serves


def test_a_fresh_instance_beside_the_record_of_a_crash_stays_lazy(data_root: DataRoot, start: Start) -> None:
    owner = start()
    owner.ask("ensure")
    owner.kill()
    fresh = start()
    _let_pass(TTL)
    assert fresh.ask("status")["role"] == "idle"
    assert fresh.ask("ensure")["took"] < 1.0


def test_coordination_survives_takeover(data_root: DataRoot, start: Start) -> None:
    """coordination_survives_takeover: registered backends and the cut turn are there for the successor."""
    owner = start()
    owner.ask("ensure")
    owner.ask("register vllm http://localhost:9")
    owner.ask("turn")
    standby = start()
    until(lambda: _is_standby(standby), "the other one stands by")
    assert standby.ask("backends")["backends"] == {"vllm": {"url": "http://localhost:9"}}  # followers read
    assert standby.ask("register x y")["error"] == "not_owner"  # and do not write
    owner.kill()
    standby.wait("event", "acquired")
    recovered = standby.ask("recovered")
    assert recovered["backends"] == {"vllm": {"url": "http://localhost:9"}}
    assert recovered["abandoned"] == 1


def test_an_owner_stopped_inside_a_transaction_does_not_lock_its_successor_out(start: Start) -> None:
    owner = start()
    owner.ask("ensure")
    standby = start()
    until(lambda: _is_standby(standby), "the other one stands by")
    owner.send("lock")
    until(lambda: _stopped(owner.pid), "it is stopped")
    standby.wait("event", "acquired", patience=30.0)
    assert owner.process.wait(5) == -signal.SIGKILL
    assert standby.ask("turn")["turn"] == 1


def test_an_owner_in_another_pid_namespace_is_not_taken_for_dead(data_root: DataRoot, start: Start) -> None:
    wrap = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    if subprocess.run([*wrap, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("NOT PROVEN HERE: this machine does not permit unshare --pid")
    owner = start(wrap=wrap)
    epoch = owner.ask("ensure")["epoch"]
    assert owner.pid < 20  # its pid means nothing out here
    contender = start()
    _let_pass(2.5 * TTL)
    assert contender.ask("ensure")["error"] == "not_owner"
    assert owner.ask("confirm")["epoch"] == epoch
    survey = reader.survey(data_root)
    assert survey.owner is not None
    assert not survey.owner.dead
    owner.kill()
    contender.wait("event", "acquired")  # by the sequence


def test_a_contender_in_another_pid_namespace_takes_no_living_owner_for_dead(start: Start) -> None:
    wrap = ("unshare", "--pid", "--fork", "--kill-child")  # with the old /proc: its pids are not ours
    if subprocess.run([*wrap, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("NOT PROVEN HERE: this machine does not permit unshare --pid")
    owner = start()
    epoch = owner.ask("ensure")["epoch"]
    contender = start(wrap=wrap)
    _let_pass(2.5 * TTL)
    assert contender.ask("ensure")["error"] == "not_owner"
    assert owner.ask("confirm")["epoch"] == epoch


def test_a_contender_on_another_host_name_takes_no_living_owner_for_dead(start: Start) -> None:
    wrap = ("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
            'hostname elsewhere && exec "$@"', "sh")  # fmt: skip
    if subprocess.run([*wrap, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("NOT PROVEN HERE: this machine does not permit unshare --uts")
    owner = start()
    epoch = owner.ask("ensure")["epoch"]
    contender = start(wrap=wrap)
    _let_pass(2.5 * TTL)
    assert contender.ask("ensure")["error"] == "not_owner"
    assert owner.ask("confirm")["epoch"] == epoch


@pytest.mark.parametrize("also", [(), ("owner.lease",), ("owner.lease", "local.db", "local.db-wal", "local.db-shm")])
def test_an_owner_whose_folder_is_deleted_gives_up_before_another_owns(
    data_root: DataRoot, start: Start, also: tuple[str, ...]
) -> None:
    owner = start()
    epoch = owner.ask("ensure")["epoch"]
    contender = start()
    for path in [*data_root.owner.iterdir(), *(data_root.path / name for name in also)]:
        path.unlink(missing_ok=True)
    data_root.owner.rmdir()
    began = time.monotonic()
    while "epoch" not in (answer := contender.ask("ensure")):
        assert answer["error"] == "not_owner"
        if not owner.ask("status")["valid"]:
            owner.ask("release lost")
        assert time.monotonic() - began < 20
    assert not owner.ask("status")["valid"]
    assert answer["epoch"] > epoch


POINTS = [
    "acquire.judged", "acquire.created", "acquire.confirmed", "worker.named", "renew.before", "renew.written",
    "release.before", "release.written",
]  # fmt: skip


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["kill", "stop", "term"])
def test_a_process_that_ends_or_freezes_at_any_point_is_followed(data_root: DataRoot, how: str) -> None:
    """Each point on a data root of its own, a few at a time: most of it is waiting."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        ran = {point: pool.submit(_is_followed, DataRoot(data_root.path / point), point, how) for point in POINTS}
    for future in ran.values():
        future.result()


def _is_followed(root: DataRoot, point: str, how: str) -> None:
    root.path.mkdir(mode=0o700)
    running = [Instance(root, MODELD_CRASH_POINT=f"{point}:{how}")]
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    try:
        victim = running[0]
        victim.ready()
        _go_to(point, victim, worker.pid)
        if how == "stop":
            until(lambda: _stopped(victim.pid), "it is stopped")
        else:
            victim.process.wait(10)
        successor = Instance(root)
        running.append(successor)
        successor.ready()
        until(lambda: "epoch" in successor.ask("ensure"), "the successor owns")
        if point == "worker.named":
            assert worker.wait(5) == -signal.SIGKILL
        if how == "stop":
            victim.signal(signal.SIGCONT)
            _let_pass(TTL)
            assert _ended_or_idle(victim)
        assert successor.ask("status")["valid"], point
        assert successor.ask("turn")["turn"] >= 1
    finally:
        worker.kill()
        worker.wait()
        for instance in running:
            instance.end()


def _go_to(point: str, victim: Instance, worker: int) -> None:
    victim.send("ensure")
    if point.startswith(("worker", "release")):
        victim.wait("answer", "ensure")
        victim.send(f"worker {worker}" if point.startswith("worker") else "release stop")


def _is_standby(one: Instance) -> bool:
    return bool(one.ask("status")["role"] == "standby")


def _ended_or_idle(victim: Instance) -> bool:
    """It woke and does nothing, or it was ended because it was stopped inside a transaction."""
    try:
        return bool(not victim.ask("status")["valid"])
    except (EOFError, BrokenPipeError):
        return bool(victim.process.wait(5) == -signal.SIGKILL)


def _stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def _let_pass(seconds: float) -> None:
    """Time itself is what is tested: nothing may happen during it."""
    time.sleep(seconds)


def test_our_own_identity_is_ours() -> None:
    me = identity.current()
    assert identity.same_process(me.pid, me.start_token)
    assert not identity.same_process(me.pid, me.start_token + "1")
