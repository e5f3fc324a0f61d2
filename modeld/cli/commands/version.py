"""`modeld version`."""

from __future__ import annotations

import argparse

from modeld.cli.context import print_json
from shared.protocol import api
from shared.version import __version__


def main(options: argparse.Namespace) -> int:
    """Of this installation; a running daemon tells its own in `modeld status`."""
    if options.json:
        print_json({"version": __version__, "protocol": api.PROTOCOL})
    else:
        print(f"modeld {__version__} (protocol {api.PROTOCOL})")
    return 0
