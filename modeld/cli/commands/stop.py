"""`modeld stop`: every instance of this data root, standbys first, each bounded in time."""

from __future__ import annotations

import argparse
import os
import signal
import sys

import anyio
import anyio.to_thread

from modeld.cli.context import Context
from modeld.client import Connection
from shared import codes
from shared.client.locate import Target, targets
from shared.errors import DaemonError, ModeldError
from shared.lease.process import identity
from shared.lease.reader import survey
from shared.protocol import api

#: Beyond the drain: cancel, close of the worker, release.
ENDING_SECONDS = 15.0
_POLL = 0.02


def main(options: argparse.Namespace) -> int:
    """Idempotent."""
    return anyio.run(stop, Context(), options.drain)


async def stop(context: Context, drain: float | None) -> int:
    """Ask each to end; one that does not is ended by force once it is proven to be the same process."""
    found = await anyio.to_thread.run_sync(survey, context.root)
    living = list(reversed(targets(found)))
    if not living:
        print("modeld is not running")
        return codes.OK
    limit = (context.settings.shutdown_drain if drain is None else drain) + ENDING_SECONDS
    failed = 0
    elsewhere = {view.instance for view in found.living if not view.provable}
    for target in living:
        asked = await _ask(context, target, drain)
        if target.instance in elsewhere:
            failed += not await _left(context, target, limit if asked else 1.0)
        elif await gone(context, target, limit if asked else 1.0) or await _force(context, target):
            again = "; another command has started it again" if _same(target) else ""
            print(f"modeld stopped (pid {target.pid}){again}")
        else:
            print(f"modeld: pid {target.pid} does not end; see `modeld logs`", file=sys.stderr)
            failed += 1
    return codes.FAILED if failed else codes.OK


async def _left(context: Context, target: Target, limit: float) -> bool:
    """As `gone`, of a process that cannot be seen from here: its own record says that it has ended, nothing else does.

    Says what came of it. Its pid is another process's here, so it is neither looked for nor ended by force.
    """
    with anyio.move_on_after(limit):
        while True:
            if not await anyio.to_thread.run_sync(_lives, context, target, abandon_on_cancel=True):
                print(f"modeld stopped (pid {target.pid} of another container or machine)")
                return True
            await anyio.sleep(_POLL)
    where = "it runs in another container or on another machine and cannot be ended by force from here"
    print(f"modeld: pid {target.pid} does not end: {where}; run `modeld stop` there", file=sys.stderr)
    return False


def _lives(context: Context, target: Target) -> bool:
    return any(view.instance == target.instance for view in survey(context.root).living)


async def _ask(context: Context, target: Target, drain: float | None) -> bool:
    try:
        async with await Connection.open(target, context.settings) as connection:
            await connection.call("daemon/shutdown", api.ShutdownParams(drain_s=drain, reason="stop"), api.Value)
    except DaemonError:
        return False
    except ModeldError as error:
        print(f"modeld: pid {target.pid} refused: {error.message}", file=sys.stderr)
        return False
    return True


async def gone(context: Context, target: Target, limit: float) -> bool:
    """Whether that instance ends within `limit` seconds: with its process, or by that becoming a fresh one."""
    with anyio.move_on_after(limit):
        while _same(target):
            if await anyio.to_thread.run_sync(_became_another, context, target, abandon_on_cancel=True):
                return True
            await anyio.sleep(_POLL)
        return True
    return False


def _became_another(context: Context, target: Target) -> bool:
    mine = (view for view in survey(context.root).instances if view.instance == target.instance)
    return any(view.ended_reason in ("restart", "upgrade") for view in mine)


def _same(target: Target) -> bool:
    return identity.same_process(target.pid, target.start_token)


async def _force(context: Context, target: Target) -> bool:
    """Only a process that is proven the one in the record is ended: a pid alone may be anybody's."""
    if not target.start_token or not _same(target):
        return not _same(target)
    numbers = [signal.SIGTERM]
    if sys.platform != "win32":
        numbers.append(signal.SIGKILL)
    for number in numbers:
        if _same(target):
            os.kill(target.pid, number)
        if await gone(context, target, 2.0):
            return True
    return False
