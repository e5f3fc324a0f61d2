"""Every deed of tests/sabotage.py to a running owner, with a standby and before a newcomer.

    python tests/soak/soak_sabotage.py [--times 5] [--beside 4] [--only WORDS] [--out docs/soak/sabotage.md]

Ends with 1 when two daemons had a worker at one moment, or when nobody worked again by itself.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path

import anyio
import anyio.abc

sys.path.insert(0, str(Path(__file__).parents[1]))
from sabotage import SABOTAGE, TTL, Outcome, commit
from spread import spread

Results = dict[str, list[Outcome]]


async def run(times: int, beside: int, only: str) -> Results:
    """Each deed `times` times, every second one with a standby, `beside` of them at once."""
    results: Results = {name: [] for name in SABOTAGE if only in name}
    room = anyio.Semaphore(beside)

    async def one(name: str, number: int) -> None:
        async with room:
            folder = Path(tempfile.mkdtemp(prefix="md-"))
            outcome = await commit(SABOTAGE[name], folder, standby=number % 2 == 1)
            shutil.rmtree(folder, ignore_errors=True)
            results[name].append(outcome)
            print(f"{outcome.seconds:5.1f} s  {name}" + "".join(f"\n  {line}" for line in outcome.problems), flush=True)

    async with anyio.create_task_group() as tasks:
        for number in range(times):
            for name in results:
                tasks.start_soon(one, name, number)
    return results


def page(results: Results, seconds: float) -> str:
    """The result page."""
    runs = [outcome for outcomes in results.values() for outcome in outcomes]
    lines = [
        "# Soak: what is done to the records of a running owner",
        "",
        (
            f"Run on {time.strftime('%Y-%m-%d', time.gmtime())}, {platform.system()} {platform.machine()}, "
            f"{os.cpu_count()} cores, Python {platform.python_version()}, ttl {TTL:.0f} s, {seconds:.0f} s in all. "
            "Made by `tests/soak/soak_sabotage.py`: every second run has a standby, the others a newcomer."
        ),
        "",
        (
            f"{len(runs)} runs, {sum(outcome.samples for outcome in runs)} samples of all daemons' workers, "
            "none with two; one owner worked again in each."
        ),
        "",
        "| done | runs | until the next good turn (s) |",
        "| --- | --- | --- |",
    ]
    for name, outcomes in results.items():
        lines.append(f"| {name} | {len(outcomes)} | {spread([outcome.seconds for outcome in outcomes])} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--beside", type=int, default=4)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs/soak/sabotage.md")
    arguments = parser.parse_args()
    began = time.monotonic()
    results = anyio.run(run, arguments.times, arguments.beside, arguments.only)
    if any(outcome.problems for outcomes in results.values() for outcome in outcomes):
        print("FAILED")
        return 1
    text = page(results, time.monotonic() - began)
    arguments.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
