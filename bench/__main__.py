"""`python -m bench [--only PART...] [--report] [--peers]`: the table of budgets on this machine."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import signal
import sys
from pathlib import Path

from bench import (
    beside,
    contended,
    conversations,
    editor,
    http_face,
    installed,
    library,
    loops,
    overhead,
    page,
    peers,
    speculation,
    startup,
    turns,
    window,
)
from bench.table import Table, machine
from weights import GEMMA3, SMOLLM2, fetch

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
TITLE = "# Measured performance\n\n"
PARTS = (
    "startup",
    "installed",
    "conversations",
    "window",
    "editor",
    "llama",
    "openvino",
    "library",
    "overhead",
    "speculation",
    "loops",
    "contended",
)
ADVICE = "Ratios count, absolute numbers drift with the machine; median (quartiles, number of samples)."
MADE = 'Made by `make bench REPORT=1`; with `ARGS="--only ..."` the rows of other parts stay as they were measured.'
PEERS = "Beside other servers"
HTTP = "Programs over HTTP"
REPEAT = 'Repeat it with `make bench ARGS="--only {part}" REPORT=1`, which builds and fetches the peers.'


def main() -> int:
    """Exit 0 when every budget was met, 3 when one was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=(*PARTS, "peers", "http"), default=PARTS)
    parser.add_argument("--peers", action="store_true", help="also measure llama.cpp's own servers, built and fetched")
    parser.add_argument("--report", action="store_true", help="write docs/performance.md")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what was started is ended too
    table, others, faces = Table(), Table(), Table()
    _budgets(table, arguments.only)
    if arguments.peers or "peers" in arguments.only:
        peers.measure(others, fetch(SMOLLM2))
        beside.measure(others, fetch(SMOLLM2))
    if arguments.peers or "http" in arguments.only:
        http_face.measure(faces, fetch(SMOLLM2))
    if arguments.report or os.environ.get("REPORT"):
        notes, day = [machine(), ADVICE], f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
        head = TITLE + table.markdown([*notes, MADE], day) if table.rows else None
        beside_us = ((PEERS, others, "peers"), (HTTP, faces, "http"))
        sections = {
            name: rows.markdown([*notes, REPEAT.format(part=part)], day) for name, rows, part in beside_us if rows.rows
        }
        page.write(PAGE, head, sections, whole=set(PARTS) <= set(arguments.only))
    missed = [*table.missed, *others.missed, *faces.missed]
    for row in missed:
        print(f"MISSED: {row.what}: {row.measured}, target {row.target}")
    return 3 if missed else 0


def _budgets(table: Table, only: tuple[str, ...]) -> None:
    small, other = fetch(SMOLLM2), fetch(GEMMA3)
    assert small.parent == other.parent
    models = str(small.parent)
    if "startup" in only:
        startup.measure(table, models)
    if "installed" in only:
        installed.measure(table)
    if "conversations" in only:
        conversations.measure(table)
    if "window" in only:
        window.measure(table)
    if "editor" in only:
        editor.measure(table)
    if "library" in only:
        library.measure(table)
    for backend in ("llama", "openvino"):
        if backend in only:
            turns.measure(table, models, backend)
    if "overhead" in only:
        overhead.measure(table, small)
    if "speculation" in only:
        speculation.measure(table, small)
    if "loops" in only:
        loops.measure(table, small)
    if "contended" in only:
        for model in (small, other):
            contended.measure(table, model)


if __name__ == "__main__":
    sys.exit(main())
