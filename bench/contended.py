"""Turns beside other busy programs: the engine's own number of threads against each fixed one, first turns of a load.

The other programs compute and do nothing else; some at normal priority, some at low. Each turn is the first of a model
that was just loaded, and the orders alternate. Where this process may make control groups (cgroup v1, root), the same
within a quota of processor time.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from bench.bare import Bare
from bench.table import Table
from clients.wire import user
from modeld.engine.contract import DecodeOptions
from modeld.engine.processors.topology import engine_threads
from modeld.host.worker_host import BARRIER_SPINS

ROUNDS = int(os.environ.get("BENCH_PAIRS", "5"))
BUSY = "while True: pass"
LOADS = ((0, 0), (1, 0), (2, 0), (3, 0), (1, 19), (2, 19), (3, 19))
QUOTAS = (0.5, 1.5)
TOKENS = 100
#: Of the best fixed number of threads.
SHARE = 0.9
KINDS = {
    "sampled": DecodeOptions(max_tokens=TOKENS, temperature=0.8),
    "greedy": DecodeOptions(max_tokens=TOKENS),
    "seeded": DecodeOptions(max_tokens=TOKENS, temperature=0.8, seed=7),
}
PROMPT = user("The lighthouse keeper looked at the sea and wrote down the weather of the day in his book. " * 26)
_CGROUP = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 100_000


def measure(table: Table, model: Path) -> None:
    """Rows for each number and priority of other programs, then for each quota."""
    os.environ.setdefault("GOMP_SPINCOUNT", BARRIER_SPINS)  # threads wait as a worker's do
    full = engine_threads()
    fixed = sorted({full, *(1 << bit for bit in range(full.bit_length()))})
    for busy, nice in LOADS:
        with others(busy, nice):
            _rows(
                table, model, fixed, f"{model.stem}, {busy} busy programs beside" + (" at low priority" if nice else "")
            )
    for quota in QUOTAS:
        with limited(quota) as there:
            if there:
                _rows(table, model, fixed, f"{model.stem}, a quota of {quota:g} processors")


def _rows(table: Table, model: Path, fixed: list[int], where: str) -> None:
    prefills: list[float] = []
    for kind, options in KINDS.items():
        prefill: dict[int, list[float]] = defaultdict(list)
        decode: dict[int, list[float]] = defaultdict(list)
        for number in range(ROUNDS):
            for threads in (0, *fixed) if number % 2 else (*reversed(fixed), 0):
                read, wrote = _turn(model, threads, options)
                prefill[threads].append(read)
                decode[threads].append(wrote)
        prefills += _of_the_best(prefill)
        table.at_least(f"{where}: decode, {kind}, of the best fixed number's", _of_the_best(decode), SHARE, "")
    table.at_least(f"{where}: prefill, of the best fixed number's", prefills, SHARE, "")


def _of_the_best(rates: dict[int, list[float]]) -> list[float]:
    """The own number's rates (0) by those of the fixed number with the best median, pair by pair."""
    own = rates.pop(0)
    return [mine / best for mine, best in zip(own, max(rates.values(), key=statistics.median), strict=True)]


def _turn(model: Path, threads: int, options: DecodeOptions) -> tuple[float, float]:
    """Tokens a second of prefill and decode in the first turn of a load."""
    with Bare(model, threads=threads) as engine:
        turn = engine.turn(engine.tokens(PROMPT), options)
    return turn.prefilled / turn.prefill_s, turn.rate


@contextlib.contextmanager
def others(count: int, nice: int) -> Iterator[None]:
    """So many programs that compute."""
    command = [sys.executable, "-S", "-c", f"import os\nos.nice({nice})\n{BUSY}"]
    programs = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


@contextlib.contextmanager
def limited(processors: float) -> Iterator[bool]:
    """This process within a quota; whether that can be."""
    group = _CGROUP / f"modeld-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        yield False
        return
    try:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(int(processors * _PERIOD_US)))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield True
    finally:
        (_CGROUP / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()
