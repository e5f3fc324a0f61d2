"""`modeld status`: for people, for scripts, and live."""

from __future__ import annotations

import argparse
import functools
import sys

import anyio
import anyio.to_thread

from modeld.cli.context import Context, print_json
from modeld.cli.statustext import text
from modeld.client import Connection, absent
from shared import codes
from shared.client.locate import targets
from shared.errors import DaemonError
from shared.lease.reader import survey
from shared.protocol import api


def main(options: argparse.Namespace) -> int:
    """Raises the typed daemon errors."""
    context = Context()
    if options.all:
        return anyio.run(_all, context, options.json)
    if options.watch:
        from modeld.cli import watch

        if sys.stdout.isatty() and not options.json:
            return anyio.run(watch.screen, context)
        return anyio.run(functools.partial(watch.plain, context, as_json=options.json))
    status = context.with_daemon(lambda connection: connection.call("status", api.Fenced(), api.Status))
    _show(status, as_json=options.json)
    return codes.OK


async def _all(context: Context, as_json: bool) -> int:
    found = await anyio.to_thread.run_sync(survey, context.root)
    living = targets(found)
    if not living:
        raise absent(found)
    statuses = []
    for target in living:
        try:
            async with await Connection.open(target, context.settings) as connection:
                statuses.append(await connection.call("status", api.Fenced(), api.Status))
        except DaemonError as error:
            sys.stderr.write(f"modeld: pid {target.pid}: {error.message}\n")
    if as_json:
        print_json(statuses)
    else:
        print("\n\n".join(text(status) for status in statuses))
    return codes.OK if len(statuses) == len(living) else codes.NOT_RUNNING


def _show(status: api.Status, *, as_json: bool) -> None:
    if as_json:
        print_json(status)
    else:
        print(text(status))
