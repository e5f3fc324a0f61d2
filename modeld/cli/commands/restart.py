"""`modeld restart`: stop, then start."""

from __future__ import annotations

import argparse

import anyio
import anyio.to_thread

from modeld.cli.commands.start import start
from modeld.cli.commands.stop import ENDING_SECONDS, stop
from modeld.cli.context import Context
from modeld.cli.spawn import READY_SECONDS
from modeld.cli.takeover import hand_over
from modeld.client import Connection
from modeld.engine.backends import choose
from shared.client.locate import targets
from shared.diagnosis.version_order import is_older
from shared.errors import DaemonError, DaemonUnreachable
from shared.lease.reader import survey
from shared.protocol import api


def main(options: argparse.Namespace) -> int:
    """Without another backend the same process starts anew, so that pickers say `restarting` meanwhile.

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
    async with await Connection.open(living[0], context.settings) as connection:
        before = connection.hello.instance
        if is_older(connection.hello.version):
            return await hand_over(context, connection, None, drain)
        await connection.call("daemon/restart", api.ShutdownParams(reason="restart", drain_s=drain), api.Value)
    limit = (context.settings.shutdown_drain if drain is None else drain) + ENDING_SECONDS + READY_SECONDS
    with anyio.move_on_after(limit):
        while True:
            found = await anyio.to_thread.run_sync(survey, context.root)
            for target in targets(found):
                if target.instance == before:
                    continue
                try:
                    async with await Connection.open(target, context.settings) as connection:
                        print(f"modeld is running (pid {target.pid}, backend {connection.hello.backend})")
                        return 0
                except DaemonError:
                    continue
            await anyio.sleep(0.02)
    raise DaemonUnreachable(hint=f"it did not come back within {limit:.0f} s; see `modeld logs`", retryable=True)
