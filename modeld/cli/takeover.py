"""A newer modeld takes over from an older one: it is there first, then the old one lets go between two turns."""

from __future__ import annotations

import sys

from modeld.cli.commands.stop import ENDING_SECONDS, gone
from modeld.cli.context import Context
from modeld.cli.spawn import launch
from modeld.client import Connection
from shared import codes
from shared.client.locate import Target
from shared.errors import ModeldError, ProtocolUnsupported
from shared.protocol import api
from shared.version import __version__


async def hand_over(context: Context, old: Connection, backend: str | None, patience: float | None) -> int:
    """Start ours beside the old one, then ask that one to let go. Nothing is lost where ours does not start.

    `patience`: seconds that the running turn may still take. Raises DaemonUnreachable.
    """
    running = old.hello
    chosen = backend or (None if running.backend == "none" else running.backend)
    mine = await launch(context, chosen)
    if mine is None:
        print(f"modeld: {running.version} goes on (pid {old.target.pid})", file=sys.stderr)
        return codes.FAILED
    limit = context.settings.queue_wait if patience is None else patience
    await _ask(context, old.target, limit)
    if not await gone(context, old.target, limit + ENDING_SECONDS):
        print(f"modeld: {running.version} (pid {old.target.pid}) does not let go; see `modeld logs`", file=sys.stderr)
        return codes.FAILED
    print(f"modeld {__version__} took over from {running.version} (pid {mine.pid}, backend {mine.backend})")
    return codes.OK


async def _ask(context: Context, target: Target, patience: float) -> None:
    """Between two turns where it knows how; else as every version can."""
    params = api.ShutdownParams(drain_s=patience, reason="upgrade")
    for method in ("daemon/handover", "daemon/shutdown"):
        try:
            async with await Connection.open(target, context.settings) as connection:
                await connection.call(method, params, api.Value)
                return
        except ProtocolUnsupported:
            continue
        except ModeldError as error:
            print(f"modeld: pid {target.pid}: {error.message}", file=sys.stderr)
            return
