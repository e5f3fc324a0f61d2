"""`modeld restart`: stop, then start."""

from __future__ import annotations

import argparse
import sys

import anyio
import anyio.to_thread

from modeld.cli.commands.start import DOOR_SECONDS, start
from modeld.cli.commands.stop import ENDING_SECONDS, gone, stop
from modeld.cli.context import Context
from modeld.cli.spawn import READY_SECONDS
from modeld.cli.takeover import hand_over
from modeld.client import Connection
from modeld.engine.backends import choose
from shared import codes
from shared.client.locate import Target, targets
from shared.diagnosis.version_order import is_older
from shared.errors import DaemonError, DaemonUnreachable
from shared.lease.process import identity
from shared.lease.reader import survey
from shared.protocol import api

_POLL = 0.02


def main(options: argparse.Namespace) -> int:
    """Without another backend the same process starts again, so that pickers say `restarting` meanwhile.

    An older version than this is replaced by this one. Raises BackendUnavailable before anything is stopped.
    """
    return anyio.run(restart, Context(), options.backend, options.drain)


async def restart(context: Context, backend: str | None, drain: float | None) -> int:
    """See `main`."""
    found = await anyio.to_thread.run_sync(survey, context.root)
    living = targets(found)
    if not living:
        return await start(context, backend)
    if backend is not None:
        choose(backend)  # raises BackendUnavailable while the one that runs is still there
        await stop(context, drain)
        return await start(context, backend)
    asked = False
    try:
        async with await Connection.open(living[0], context.settings) as connection:
            if is_older(connection.hello.version):
                return await hand_over(context, connection, None, drain)
            await connection.call("daemon/restart", api.ShutdownParams(reason="restart", drain_s=drain), api.Value)
            asked = True
    except DaemonError:
        # another command ends it at this moment; or it hangs, and there is no other way than by force
        if not await gone(context, living[0], DOOR_SECONDS):
            print(f"modeld: pid {living[0].pid} does not answer; it is ended by force", file=sys.stderr)
            code = await stop(context, 0.0)
            return code if code != codes.OK else await start(context, backend)
    limit = (context.settings.shutdown_drain if drain is None else drain) + ENDING_SECONDS + READY_SECONDS
    with anyio.move_on_after(limit):
        return await _until_back(context, living[0], asked=asked)
    raise DaemonUnreachable(hint=f"it did not come back within {limit:.0f} s; see `modeld logs`", retryable=True)


async def _until_back(context: Context, before: Target, *, asked: bool) -> int:
    """Until another instance answers. Who was not `asked` starts one where none comes back."""
    while True:
        alive = identity.same_process(before.pid, before.start_token)
        found = await anyio.to_thread.run_sync(survey, context.root)
        others = [target for target in targets(found) if target.instance != before.instance]
        for target in others:
            try:
                async with await Connection.open(target, context.settings) as connection:
                    if not connection.hello.ending:
                        print(f"modeld is running (pid {target.pid}, backend {connection.hello.backend})")
                        return codes.OK
            except DaemonError:
                continue
        if not alive and not others:
            if not asked:
                return await start(context, None)
            print("modeld was stopped by another command meanwhile", file=sys.stderr)
            return codes.FAILED
        await anyio.sleep(_POLL)
