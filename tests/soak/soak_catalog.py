"""The full counts of the catalog: 100 restarts of modeld around five editors, the grace, new files, damaged headers.

    python tests/soak/soak_catalog.py [--restarts 100] [--headers 10000] [--limit 3600] [--out docs/soak/catalog.md]

Ends with 1 on the first thing that is not so. Times are told, not judged: the machine may be busy.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))
from fuzz.fuzz_gguf import CORPUS_COUNT, CORPUS_SEED, corpus
from fuzz.fuzz_gguf import run as run_fuzz
from picker_world import MODELS, JsonObject, Seat, World, groups, is_live, until, values
from restart_loop import RestartLoop, Tally
from tiny_gguf import write_tiny_gguf

GRACE = 2.0
EDITORS = 5
ROUNDS = 5


def first_start() -> list[float]:
    """Seconds from modeld being found until its models are in each picker; nothing is loaded."""
    took = []
    for _ in range(ROUNDS):
        with World(MODELD_LEASE_TTL="1") as world:
            seats = [world.sit(f"work{number}") for number in range(EDITORS)]
            world.start()
            found = time.monotonic()
            took += [pushed(seat, is_live) - found for seat in seats]
            assert world.active() == ""
    return took


def past_the_grace() -> tuple[list[float], list[float]]:
    """Seconds from the end of the grace until a picker is empty, and from modeld's return until it is full again."""
    emptied, filled = [], []
    with World(MODELD_LEASE_TTL="1", MODELD_GRACE_WINDOW=str(GRACE)) as world:
        world.start()
        seats = [world.sit(f"work{number}") for number in range(EDITORS)]
        for seat in seats:
            seat.until(is_live, "the models are listed")
        for _ in range(ROUNDS):
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
    with World(MODELD_LEASE_TTL="1") as world:
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


def spread(seconds: list[float]) -> str:
    """For the page."""
    if not seconds:
        return "-"
    ordered = sorted(seconds)
    return (
        f"median {statistics.median(ordered):.2f}, p95 {ordered[int(len(ordered) * 0.95)]:.2f}, most {ordered[-1]:.2f}"
        f" (n={len(ordered)})"
    )


def table(tally: Tally, rows: list[tuple[str, str]], seconds: float) -> str:
    """The result page."""
    restarts = sum(tally.gaps.values())
    by_kind = ", ".join(f"{how} {count}" for how, count in tally.gaps.items())
    lines = [
        "# Soak: the catalog",
        "",
        (
            f"Run on {time.strftime('%Y-%m-%d', time.gmtime())}, {platform.system()} {platform.machine()}, "
            f"{os.cpu_count()} cores, Python {platform.python_version()}, ttl 1 s, {seconds:.0f} s in all. "
            "Made by `tests/soak/soak_catalog.py`."
        ),
        "",
        "| what | result |",
        "| --- | --- |",
        f"| restarts of modeld around {EDITORS} editors | {restarts} ({by_kind}) |",
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
    parser.add_argument("--limit", type=float, default=3600.0, help="begin no restart after so many seconds")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs/soak/catalog.md")
    arguments = parser.parse_args()
    began = time.monotonic()
    rows = []
    try:
        rows.append(("modeld found -> its models in each picker, nothing loaded (s)", spread(first_start())))
        emptied, filled = past_the_grace()
        rows.append(("end of the grace -> each picker is empty, pushed (s)", spread(emptied)))
        rows.append(("modeld found again -> each picker is full, pushed (s)", spread(filled)))
        rows.append(("a file came or went -> each open picker (s)", spread(files())))
        print("\n".join(": ".join(row) for row in rows), flush=True)
        outcomes, crashes = run_fuzz(arguments.headers, CORPUS_SEED, keep=True, known=corpus())
        assert not crashes, crashes
        kinds = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
        rows.append((f"{arguments.headers:,} damaged headers, each within 2 s and 64 MiB", kinds))
        with World(MODELD_LEASE_TTL="1") as world:
            loop = RestartLoop(world)
            while loop.cycles < arguments.restarts and time.monotonic() - began < arguments.limit:
                loop.run(1)
                if loop.cycles % 10 == 0:
                    print(f"{loop.cycles} restarts, {loop.tally.prompts}", flush=True)
    except AssertionError:
        traceback.print_exc()
        return 1
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(table(loop.tally, rows, time.monotonic() - began), encoding="utf-8")
    print(arguments.out.read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
