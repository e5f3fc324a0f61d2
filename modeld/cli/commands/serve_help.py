"""`modeld serve` reached through the parser: only its help does."""

from __future__ import annotations

import argparse

from modeld.cli.commands.serve import USAGE


def main(options: argparse.Namespace) -> int:
    """Print the usage."""
    print(USAGE)
    return 0
