"""The full counts of the owner lease: 50 processes contend, 200 rounds; every interleaving of the model.

    python tests/soak/soak_lease.py [--processes 50] [--rounds 200] [--out docs/soak/lease.md]

First a few instances alone, for the times of a takeover: an owner that is killed, and one that is frozen. Then the
rounds: all contend at once, exactly one may own; it is killed (every tenth round frozen, and woken after
its successor began), and one successor must follow. Ends with 1 on the first thing that is not so.
"""

from __future__ import annotations

import argparse
import os
import platform
import queue
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))
from lease_model import Bounds, Model, explore
from lease_processes import Instance
from modeld.owner.standby import LOOKS_PER_TTL
from shared.lease import policy, reader
from shared.paths import DataRoot
from spread import spread

TTL = 1.0
FREEZE_EVERY = 10
#: A frozen owner is followed within this, counted from its last sign: ttl + margin, and one look to see that sign.
BOUND = policy.patience(TTL) + TTL / LOOKS_PER_TTL
FEW = 3
MODELS = {
    "2 contenders, 3 epochs, a crash, 2 renewals": Bounds(processes=2, epochs=3, renewals=2),
    "3 contenders, 2 epochs, a crash": Bounds(processes=3, epochs=2, whole_looks=True),
    "an owner and 2 contenders, 3 epochs": Bounds(
        processes=3, epochs=3, crashes=0, keep=4, releases=False, whole_looks=True, begun=True
    ),
}


class Counts(msgspec.Struct, kw_only=True):
    rounds: int = 0
    killed: list[float] = []
    frozen: list[float] = []
    acquired: list[float] = []


class Failed(Exception):
    """Something that must hold did not."""


class Arena:
    """All the instances, oldest first, on one data root."""

    def __init__(self, root: DataRoot, number: int) -> None:
        self.root = root
        self.instances = [Instance(root, ttl=TTL) for _ in range(number)]
        for instance in self.instances:
            instance.ready()

    def contend(self) -> tuple[Instance, float]:
        """Everybody asks at once. The one owner, and how long it took it in seconds."""
        for instance in self.instances:
            instance.send("ensure")
        answers = [(instance, instance.wait("answer", "ensure", 60.0)) for instance in self.instances]
        owners = [(instance, answer["took"]) for instance, answer in answers if "epoch" in answer]
        if len(owners) != 1:
            raise Failed(f"{len(owners)} owners: {answers}")
        return owners[0]

    def successor(self, gone: Instance) -> tuple[Instance, float]:
        """The one that steps in, and the monotonic time at which it did."""
        waiting = [instance for instance in self.instances if instance is not gone]
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            survey = reader.survey(self.root)
            for instance in waiting:
                if survey.owner is not None and survey.owner.instance == instance.name:
                    return instance, instance.wait("event", "acquired")["at"]
            time.sleep(0.005)
        raise Failed("nobody followed")

    def acting(self, but: Instance | None) -> list[Instance]:
        """Who may act now; `but` is dead and not asked."""
        return [instance for instance in self.instances if instance is not but and instance.ask("status")["valid"]]

    def replace(self, *old: Instance) -> None:
        for instance in old:
            instance.end()
            self.instances.remove(instance)
            new = Instance(self.root, ttl=TTL)
            self.instances.append(new)
            new.ready()


def few(folder: Path, rounds: int) -> Counts:
    """Takeovers with nobody else on the machine, every second one of a frozen owner."""
    counts = Counts()
    root = DataRoot(folder / "few")
    root.path.mkdir(mode=0o700)
    arena = Arena(root, FEW)
    try:
        while counts.rounds < rounds:
            one_round(arena, counts, freeze=counts.rounds % 2 == 1)
    finally:
        for instance in arena.instances:
            instance.end()
    return counts


def one_round(arena: Arena, counts: Counts, *, freeze: bool) -> None:
    owner, took = arena.contend()
    counts.acquired.append(took)
    for instance in arena.instances:  # everybody has seen who owns, or there would be no standby
        deadline = time.monotonic() + 10
        while instance is not owner and instance.ask("status")["role"] != "standby":
            if time.monotonic() > deadline:
                raise Failed("no standby")
    before = time.monotonic()
    owner.signal(signal.SIGSTOP if freeze else signal.SIGKILL)
    following, at = arena.successor(owner)
    (counts.frozen if freeze else counts.killed).append(at - before)
    if freeze:
        owner.signal(signal.SIGCONT)
    acting = arena.acting(but=None if freeze else owner)
    if acting != [following]:
        raise Failed(f"{len(acting)} act after the takeover")
    following.ask("release stop")
    arena.replace(owner, following)
    counts.rounds += 1


def table(counts: Counts, alone: Counts, processes: int, models: list[tuple[str, int, float]], seconds: float) -> str:
    """The result page."""
    lines = [
        "# Soak: the owner lease",
        "",
        (
            f"Run on {time.strftime('%Y-%m-%d', time.gmtime())}, {platform.system()} {platform.machine()}, "
            f"{os.cpu_count()} cores, Python {platform.python_version()}, ttl {TTL:.0f} s, {seconds:.0f} s in all. "
            "Made by `tests/soak/soak_lease.py`."
        ),
        "",
        "| what | result |",
        "| --- | --- |",
        f"| {FEW} processes: owner killed -> successor owns (s), {len(alone.killed)} times | {spread(alone.killed)} |",
        f"| {FEW} processes: owner frozen -> successor owns (s), {len(alone.frozen)} times | {spread(alone.frozen)} |",
        f"| of these within ttl + margin + one look ({BOUND:.2f} s) | {within(alone.frozen)} |",
        f"| processes contending at once, rounds | {processes}, {counts.rounds} |",
        f"| owners in each round | 1 ({counts.rounds} of {counts.rounds} rounds) |",
        f"| who may act after a takeover | 1 ({counts.rounds} of {counts.rounds} rounds) |",
        f"| asking until owning, with everybody asking (s) | {spread(counts.acquired)} |",
        f"| owner killed -> successor owns (s), {len(counts.killed)} times | {spread(counts.killed)} |",
        f"| owner frozen -> successor owns (s), {len(counts.frozen)} times | {spread(counts.frozen)} |",
        f"| of these within ttl + margin + one look ({BOUND:.2f} s) | {within(counts.frozen)} |",
    ]
    lines += [f"| model: {name} | {states:,} states, no two owners ({took:.0f} s) |" for name, states, took in models]
    return "\n".join(lines) + "\n"


def within(seconds: list[float]) -> str:
    return f"{sum(one <= BOUND for one in seconds)} of {len(seconds)}"


def check_models() -> list[tuple[str, int, float]]:
    found = []
    for name, bounds in MODELS.items():
        began = time.monotonic()
        states, story = explore(Model(bounds), most=3_000_000)
        if story is not None:
            raise Failed("two owners: " + "; ".join(story))
        found.append((name, states, time.monotonic() - began))
        print(f"model: {name}: {states} states", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs/soak/lease.md")
    parser.add_argument("--no-model", action="store_true")
    arguments = parser.parse_args()
    began, counts = time.monotonic(), Counts()
    models = [] if arguments.no_model else check_models()
    with tempfile.TemporaryDirectory(prefix="md-") as folder:
        try:
            alone = few(Path(folder), 20)
        except (Failed, queue.Empty) as failed:
            print(f"FAILED among {FEW}: {type(failed).__name__} {failed}")
            return 1
        print(f"{FEW} processes: killed {spread(alone.killed)}; frozen {spread(alone.frozen)}", flush=True)
        root = DataRoot(Path(folder) / "data")
        root.path.mkdir(mode=0o700)
        arena = Arena(root, arguments.processes)
        try:
            while counts.rounds < arguments.rounds:
                one_round(arena, counts, freeze=counts.rounds % FREEZE_EVERY == FREEZE_EVERY - 1)
                if counts.rounds % 10 == 0:
                    print(f"round {counts.rounds}: killed {spread(counts.killed)}", flush=True)
        except (Failed, queue.Empty) as failed:
            print(f"FAILED in round {counts.rounds + 1}: {type(failed).__name__} {failed}")
            return 1
        finally:
            for instance in arena.instances:
                instance.end()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    text = table(counts, alone, arguments.processes, models, time.monotonic() - began)
    arguments.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
