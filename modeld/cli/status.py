"""`modeld status`: for people, for scripts, and live."""

from __future__ import annotations

import argparse
import sys

import anyio
import anyio.to_thread

from modeld.cli import codes
from modeld.cli.client import Connection, absent, targets
from modeld.cli.context import Context, complete, print_json
from modeld.cli.statustext import text
from shared.errors import DaemonError
from shared.lease.reader import survey
from shared.protocol import api


def main(options: argparse.Namespace) -> int:
    """Raises the typed daemon errors."""
    context = Context()
    if options.all:
        return anyio.run(_all, context, options.json)
    if options.watch:
        return context.with_daemon(lambda connection: _watch(connection, as_json=options.json))
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


async def _watch(connection: Connection, *, as_json: bool) -> int:
    status = await connection.call("status/watch", api.WatchParams(), api.Status)
    while True:
        if as_json:
            import msgspec

            print(msgspec.json.encode(complete(status)).decode("utf-8"), flush=True)
        else:
            clear = "\x1b[H\x1b[2J" if sys.stdout.isatty() else ""
            print(clear + text(status), flush=True)
        status = await connection.pushes()


def _show(status: api.Status, *, as_json: bool) -> None:
    if as_json:
        print_json(status)
    else:
        print(text(status))
