"""Soak: the memory of an engine over 1,000 turns of two alternating conversations.

`python tests/soak/soak_engine.py [--turns N] [--backend llama|openvino|tiny]...` writes docs/soak/engine.md.
`tiny` is llama.cpp on a model of a few hundred kilobytes, whose memory is all overhead.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
from alternation import Alternation, Sample, growth
from modeld.host.worker_host import WorkerHost
from modeld.pipe.messages import Load
from shared.catalog.identity import RequestedIdentity
from shared.settings import Settings
from tiny_gguf import write_tiny_gguf
from weights import SMOLLM2, fetch

MIB = 1 << 20
ALLOWED = 0.03
#: A conversation of SmolLM2 takes up to 10 MiB here: one fits beside what is left of older ones, and pushes them out.
BUDGET = {"tiny": MIB, "llama": 12 * MIB, "openvino": 64 * MIB}
#: One conversation takes up to 400 tokens, of the tiny model's letters 2,200. A pool is written once from end to end
#: before it is measured: until then its pages are new, and a process grows because it is meant to.
WINDOW = {"tiny": 4096, "llama": 1024, "openvino": 1024}
WARM_UP = 100
#: Turns of few tokens, so that a thousand take minutes; conversations long enough to be parked.
WORDS, ANSWER, MOST = 14, 4, 24


class Result(NamedTuple):
    """One engine's run."""

    backend: str
    samples: list[Sample]
    seconds: float

    @property
    def failed(self) -> str:
        """What did not hold, or ""."""
        if abs(growth(self.samples)) > ALLOWED:
            return f"memory moved by {growth(self.samples):.1%}"
        if max(one.parked_bytes for one in self.samples) > BUDGET[self.backend]:
            return "the parking budget was exceeded"
        return ""


async def soak(backend: str, turns: int, folder: Path) -> Result:
    """Run one engine in a worker of its own."""
    path = write_tiny_gguf(folder / "tiny.gguf") if backend == "tiny" else fetch(SMOLLM2)
    engine = "llama" if backend == "tiny" else backend
    host = await WorkerHost.start(engine, Settings(), folder / "worker.log")
    try:
        await host.imported()
        identity = RequestedIdentity(backend=engine, name="soak", digest="soak", path=str(path))
        load = Load(
            turn=host.next_turn(),
            identity=identity,
            model={},
            num_ctx=WINDOW[backend],
            parked_bytes=BUDGET[backend],
            threads=0,
        )
        await host.load(load, lambda fraction: None)
        alternation, samples, began = Alternation(host, words=WORDS, answer=ANSWER, most=MOST), [], time.monotonic()
        for number in range(WARM_UP + turns):
            sample = await alternation.turn()
            if number >= WARM_UP:
                samples.append(sample)
            if number % 50 == 49:
                print(f"{backend}: {number + 1} turns, {sample.rss / MIB:.1f} MiB", flush=True)
        return Result(backend, samples, time.monotonic() - began)
    finally:
        await host.close(5)


def page(results: list[Result]) -> str:
    """Markdown."""
    lines = [
        "# Soak: the memory of an engine",
        "",
        (
            f"Run on {time.strftime('%Y-%m-%d', time.gmtime())}, {platform.system()} {platform.machine()}, "
            f"{os.cpu_count()} cores, Python {platform.python_version()}. Two conversations take turns, each a message "
            f"of {WORDS} words and an answer of {ANSWER} tokens, and start over after {MOST} messages. The first "
            f"{WARM_UP} turns are not counted: they write the pool ({WINDOW['llama']} tokens, tiny "
            f"{WINDOW['tiny']}) and fill the parking budget. Made by `tests/soak/soak_engine.py`; `tiny` is llama.cpp "
            "on a model of a few hundred kilobytes, the other two run SmolLM2."
        ),
        "",
        "| engine | turns | after warm-up (MiB) | at the end (MiB) | moved | most parked (MiB) of | reused | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for backend, samples, seconds in results:
        early, late = samples[len(samples) // 10].rss / MIB, samples[-1].rss / MIB
        parked, budget = max(one.parked_bytes for one in samples) / MIB, BUDGET[backend] / MIB
        reused = sum(one.reused for one in samples) / sum(one.reused + one.prefilled for one in samples)
        lines.append(
            f"| {backend} | {len(samples)} | {early:.1f} | {late:.1f} | {growth(samples):+.2%} "
            f"| {parked:.1f} of {budget:.0f} | {reused:.0%} | {seconds:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Exit 1 when something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--backend", action="append", choices=tuple(BUDGET))
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs/soak/engine.md")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="md-") as folder:
        os.environ["MODELD_DATA_ROOT"] = folder
        wanted = arguments.backend or tuple(BUDGET)
        results = [asyncio.run(soak(backend, arguments.turns, Path(folder))) for backend in wanted]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(page(results), encoding="utf-8")
    print(page(results))
    failures = [f"{one.backend}: {one.failed}" for one in results if one.failed]
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
