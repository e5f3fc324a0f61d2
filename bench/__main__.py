"""`python -m bench [--only PART...] [--report] [--peers]`: the table of budgets on this machine."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import signal
import sys
from pathlib import Path

from bench import beside, conversations, editor, installed, library, peers, startup, turns, window
from bench.table import Table, machine
from weights import GEMMA3, SMOLLM2, fetch

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
PARTS = ("startup", "installed", "conversations", "window", "editor", "llama", "openvino", "library")
BUDGETS_ADVICE = "Ratios count, absolute numbers drift with the machine; median (quartiles, number of samples)."


def main() -> int:
    """Exit 0 when every budget was met, 3 when one was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--peers", action="store_true", help="also build and run llama.cpp's own tools")
    parser.add_argument("--report", action="store_true", help="write docs/performance.md")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what was started is ended too
    small, other = fetch(SMOLLM2), fetch(GEMMA3)
    assert small.parent == other.parent
    models = str(small.parent)
    table = Table()
    if "startup" in arguments.only:
        startup.measure(table, models)
    if "installed" in arguments.only:
        installed.measure(table)
    if "conversations" in arguments.only:
        conversations.measure(table)
    if "window" in arguments.only:
        window.measure(table)
    if "editor" in arguments.only:
        editor.measure(table)
    if "library" in arguments.only:
        library.measure(table)
    for backend in ("llama", "openvino"):
        if backend in arguments.only:
            turns.measure(table, models, backend)
    if arguments.peers:
        peers.measure(table, small)
        beside.measure(table, small)
    if arguments.report or os.environ.get("REPORT"):
        notes = [f"{machine()}, {dt.datetime.now(dt.UTC):%Y-%m-%d}", BUDGETS_ADVICE, "Made by `make bench REPORT=1`."]
        PAGE.write_text(table.markdown("Measured performance", notes), encoding="utf-8")
    for row in table.missed:
        print(f"MISSED: {row.what}: {row.measured}, target {row.target}")
    return 3 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
