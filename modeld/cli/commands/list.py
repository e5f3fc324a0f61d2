"""`modeld list`: what can run now, asked of the running daemon."""

from __future__ import annotations

import argparse

from modeld.cli.commands.library import next_steps, table
from modeld.cli.context import Context, print_json
from modeld.client import Connection
from shared import codes
from shared.catalog.advertised.rows import NO_ENGINE, no_engine_text
from shared.diagnosis.remedy import called
from shared.protocol import api


def main(options: argparse.Namespace) -> int:
    """Raises the typed daemon errors: live availability is never guessed."""
    backend, result = Context().with_daemon(_asked)
    if options.json:
        print_json(result)
    elif result.rows:
        print("\n".join([table(result.rows), *next_steps(result.rows, called("modeld"))]))
    elif backend == NO_ENGINE:
        print(f"nothing can run now: {no_engine_text()}")
    else:
        print("nothing can run now: `modeld library` shows what is installed, `modeld pull starter` fetches a model")
    return codes.OK


async def _asked(connection: Connection) -> tuple[str, api.LibraryResult]:
    """What serves, and what it can run."""
    result = await connection.call("model/list", api.LibraryParams(), api.LibraryResult)
    return connection.hello.backend, result
