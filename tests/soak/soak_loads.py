"""The soak of loads on a busy machine: none is ended for a heartbeat or a step that could not run.

`python tests/soak/soak_loads.py [--loads 50] [--busy 12] [--niceness 0]` loads and unloads SmolLM2 on each engine
beside busy programs and writes docs/soak/loads.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from converted import converted, share
from modeld_process import Modeld
from shared.errors import ModeldError
from shared.paths import DataRoot
from shared.protocol import api
from soak_page import Line, kept, page
from weights import SMOLLM2, fetch

PAGE = Path(__file__).parents[2] / "docs" / "soak" / "loads.md"
LOAD_SECONDS = 1200.0
FEW = api.Sampling(max_tokens=2, temperature=0.0)


class Row(NamedTuple):
    """One engine's loads: how many came up and answered, how long they took, and why others failed."""

    engine: str
    loads: int
    seconds: list[float]
    failed: list[str]


async def soak(engine: str, source: Path, loads: int) -> Row:
    """Load, ask, unload, so many times."""
    row = Row(engine, loads, [], [])
    with tempfile.TemporaryDirectory(prefix="md-") as name:
        root = DataRoot(Path(name) / "data")
        root.path.mkdir(mode=0o700)
        root.models.mkdir()
        shutil.copy(source, root.models / "smol.gguf")
        if engine == "openvino":
            share(converted(source), root.path)
        async with Modeld(root, engine, MODELD_DATA_ROOT=str(root.path)) as modeld, modeld.client() as client:
            for _ in range(loads):
                began = time.monotonic()
                try:
                    await client.call("model/load", api.LoadParams(model="smol"), api.LoadResult, LOAD_SECONDS)
                    row.seconds.append(time.monotonic() - began)
                    await client.turn("smol", "hello", params=FEW).end(LOAD_SECONDS)
                    await client.unload()
                except ModeldError as error:
                    row.failed.append(error.message)
    return row


def line(row: Row, busy: int) -> Line:
    """One row of the page."""
    took = f"median {median(row.seconds):.1f} s, longest {max(row.seconds):.1f} s" if row.seconds else ""
    failed = f"; failed: {'; '.join(sorted(set(row.failed)))}" if row.failed else ""
    return Line(
        f"{row.engine}: SmolLM2 loaded, asked, unloaded beside {busy} busy programs",
        f"{len(row.seconds)} of {row.loads} came up, {took}{failed}",
    )


def main() -> int:
    """0 when every load came up."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--loads", type=int, default=50)
    options.add_argument("--engine", action="append", choices=["openvino", "llama"])
    options.add_argument("--busy", type=int, default=12)
    options.add_argument("--niceness", type=int, default=0, help="of all of it, where others need the machine")
    given = options.parse_args()
    os.nice(given.niceness)
    source = fetch(SMOLLM2)
    began = time.monotonic()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.busy)]
    try:
        rows = [anyio.run(soak, engine, source, given.loads) for engine in given.engine or ["openvino", "llama"]]
        lines = [line(row, given.busy) for row in rows]
        text = page([*kept(PAGE, lines), *lines], time.monotonic() - began, "loads on a busy machine", "soak_loads.py")
    finally:
        for one in busy:
            one.kill()
            one.wait()
    PAGE.write_text(text, encoding="utf-8")
    return 1 if any(row.failed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
