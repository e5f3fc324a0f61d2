"""The full counts of the catalog: 100 restarts of modeld around five editors, the grace, new files, damaged headers.

    python tests/soak/soak_catalog.py [--restarts 100] [--headers 10000] [--rounds 5] [--out docs/soak/catalog.md]

Ends with 1 on the first thing that is not so, and says what modeld and the bridges said. Times are judged where the
machine was free when it began, else only reported.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))
from fuzz.fuzz_gguf import CORPUS_COUNT, CORPUS_SEED, corpus
from fuzz.fuzz_gguf import run as run_fuzz
from picker_world import MODELS, JsonObject, Seat, World, groups, is_live, values
from restart_loop import RestartLoop, Tally
from spread import spread
from tiny_gguf import write_tiny_gguf
from waiting import until

GRACE = 2.0
EDITORS = 5
#: Short, but longer than a machine may stand still: an owner that cannot renew gives its model up, and rightly so.
TTL = "3"
#: What the slowest picker may take. Seconds.
SOON = 1.0
FILES_SOON = 15.0


def first_start(rounds: int) -> list[float]:
    """Seconds from modeld being found until its models are in each picker; nothing is loaded."""
    took = []
    for _ in range(rounds):
        with World(MODELD_LEASE_TTL=TTL) as world:
            seats = [world.sit(f"work{number}") for number in range(EDITORS)]
            world.start()
            found = time.monotonic()
            took += [pushed(seat, is_live) - found for seat in seats]
            assert world.active() == ""
    return took


def past_the_grace(rounds: int) -> tuple[list[float], list[float]]:
    """Seconds from the end of the grace until a picker is empty, and from modeld's return until it is full again."""
    emptied, filled = [], []
    with World(MODELD_LEASE_TTL=TTL, MODELD_GRACE_WINDOW=str(GRACE)) as world:
        world.start()
        seats = [world.sit(f"work{number}") for number in range(EDITORS)]
        for seat in seats:
            seat.until(is_live, "the models are listed")
        for _ in range(rounds):
            heard = [len(seat.pushed()) for seat in seats]
            ended = time.monotonic()
            world.end("kill")
            emptied += [
                pushed(seat, lambda option: groups(option).keys() == {"unavailable"}, before) - ended - GRACE
                for seat, before in zip(seats, heard, strict=True)
            ]
            heard = [len(seat.pushed()) for seat in seats]
            world.start()
            found = time.monotonic()
            filled += [pushed(seat, is_live, before) - found for seat, before in zip(seats, heard, strict=True)]
    return emptied, filled


def files() -> list[float]:
    """Seconds until a new and a removed file are seen in open pickers."""
    took = []
    with World(MODELD_LEASE_TTL=TTL) as world:
        world.start()
        seats = [world.sit(f"work{number}") for number in range(EDITORS)]
        for seat in seats:
            seat.until(is_live, "the models are listed")
        for wanted, change in (
            ([*MODELS, "new"], lambda: write_tiny_gguf(world.models / "new.gguf", name="new", seed=9)),
            (list(MODELS), (world.models / "new.gguf").unlink),
        ):
            heard = [len(seat.pushed()) for seat in seats]
            change()
            began = time.monotonic()
            took += [listed(seat, sorted(wanted), before) - began for seat, before in zip(seats, heard, strict=True)]
    return took


def listed(seat: Seat, wanted: list[str], after: int) -> float:
    """When these models, and no others, were listed."""
    return pushed(seat, lambda option: values(option) == wanted, after)


def pushed(seat: Seat, what: Callable[[JsonObject], bool], after: int = 0) -> float:
    """When an option came by itself, after so many others, for which `what` holds."""
    until(lambda: any(what(option) for _, option in seat.pushed()[after:]), "it is pushed", 60.0)
    return time.monotonic()


class Times:
    """What the pickers took; `judged` says whether more than allowed is a failure."""

    def __init__(self, *, judged: bool) -> None:
        self.judged = judged
        self.rows: list[tuple[str, str]] = []

    def add(self, what: str, seconds: list[float], limit: float) -> None:
        """One row, printed at once. Raises AssertionError."""
        self.rows.append((f"{what} (s, at most {limit:g})", f"{spread(seconds)} (n={len(seconds)})"))
        print(": ".join(self.rows[-1]), flush=True)
        assert not self.judged or max(seconds) <= limit, f"{what}: {max(seconds):.2f} s"


def measure(rounds: int, *, judged: bool) -> list[tuple[str, str]]:
    """The times of pickers, on the page's rows."""
    times = Times(judged=judged)
    times.add("modeld found -> its models in each picker, nothing loaded", first_start(rounds), SOON)
    emptied, filled = past_the_grace(rounds)
    times.add("end of the grace -> each picker is empty, pushed", emptied, SOON)
    times.add("modeld found again -> each picker is full, pushed", filled, SOON)
    times.add("a file came or went -> each open picker", files(), FILES_SOON)
    return times.rows


def damaged_headers(count: int) -> tuple[str, str]:
    """Every case ends as a case may."""
    outcomes, crashes = run_fuzz(count, CORPUS_SEED, keep=True, known=corpus())
    assert not crashes, crashes
    kinds = ", ".join(f"{number} {name}" for name, number in outcomes.most_common())
    return f"{count:,} damaged headers, each within 2 s and 64 MiB", kinds


def restarts(count: int) -> Tally:
    """All of them around the same five editors."""
    with World(MODELD_LEASE_TTL=TTL) as world:
        loop = RestartLoop(world)
        while loop.cycles < count:
            loop.run(min(10, count - loop.cycles))
            print(f"{loop.cycles} restarts, {loop.tally.prompts}", flush=True)
    return loop.tally


def table(tally: Tally, rows: list[tuple[str, str]], seconds: float, load: float) -> str:
    """The result page."""
    count = sum(tally.gaps.values())
    by_kind = ", ".join(f"{how} {number}" for how, number in tally.gaps.items())
    lines = [
        "# Soak: the catalog",
        "",
        (
            f"Run on {time.strftime('%Y-%m-%d', time.gmtime())}, {platform.system()} {platform.machine()}, "
            f"{os.cpu_count()} cores, load {load:.0f}, Python {platform.python_version()}, ttl {TTL} s, {seconds:.0f} "
            "s in all. Made by `tests/soak/soak_catalog.py`."
        ),
        "",
        "| what | result |",
        "| --- | --- |",
        f"| restarts of modeld around {EDITORS} editors | {count} ({by_kind}) |",
        f"| looks at a picker, all with the same ids, names, groups, order and current value | {tally.polls} |",
        f"| pushed pickers in and after the gaps, all the same too | {tally.pushes} |",
        f"| bridges born in a gap, the same from their first answer on | {tally.born} |",
        f"| picks in a gap, all kept | {tally.picks} |",
    ]
    lines += [f"| prompts in a gap: {how}, never another model | {count} |" for how, count in tally.prompts.items()]
    lines += [
        f"| a prompt after a stop is refused (s) | {spread(tally.refused_after_stop)} |",
        f"| a prompt that is not served ends (s) | {spread(tally.retryable)} |",
        f"| a prompt in the gap is answered (s) | {spread(tally.served)} |",
        f"| length of the gaps (s) | {spread(tally.gap_lengths)} |",
    ]
    return "\n".join([*lines, *(f"| {what} | {result} |" for what, result in rows)]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restarts", type=int, default=100)
    parser.add_argument("--headers", type=int, default=CORPUS_COUNT)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs/soak/catalog.md")
    arguments = parser.parse_args()
    began = time.monotonic()
    load = os.getloadavg()[0]
    try:
        rows = measure(arguments.rounds, judged=load <= (os.cpu_count() or 1))
        rows.append(damaged_headers(arguments.headers))
        tally = restarts(arguments.restarts)
    except AssertionError:
        traceback.print_exc()
        return 1
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(table(tally, rows, time.monotonic() - began, load), encoding="utf-8")
    print(arguments.out.read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
