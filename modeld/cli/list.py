"""`modeld list`: what can run now, asked of the running daemon."""

from __future__ import annotations

import argparse

from modeld.cli import codes
from modeld.cli.context import Context, print_json
from modeld.cli.library import next_steps, table
from shared.protocol import api


def main(options: argparse.Namespace) -> int:
    """Raises the typed daemon errors: live availability is never guessed."""
    result = Context().with_daemon(
        lambda connection: connection.call("model/list", api.LibraryParams(), api.LibraryResult)
    )
    if options.json:
        print_json(result)
    elif result.rows:
        print("\n".join([table(result.rows), *next_steps(result.rows)]))
    else:
        print("nothing can run now: `modeld library` shows what is installed, `modeld pull starter` fetches a model")
    return codes.OK
