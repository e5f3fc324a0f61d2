"""`modeld logs`: the end of the daemon's log, or of what the engine printed."""

from __future__ import annotations

import argparse
import sys

from modeld.cli import codes
from modeld.cli.context import Context


def main(options: argparse.Namespace) -> int:
    """Works with the daemon stopped."""
    path = Context().root.logs / ("worker.log" if options.worker else "modeld.log")
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        print(f"modeld: no log yet at {path}", file=sys.stderr)
        return codes.OK
    for line in lines[-options.n :] if options.n > 0 else lines:
        print(line)
    return codes.OK
