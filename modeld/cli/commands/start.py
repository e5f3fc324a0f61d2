"""`modeld start`: a daemon in the background, at most one by this command, ready when it returns."""

from __future__ import annotations

import argparse
import sys
import time

import anyio
import anyio.to_thread

from modeld.cli.commands.stop import ENDING_SECONDS, gone
from modeld.cli.context import Context
from modeld.cli.spawn import READY_SECONDS, launch
from modeld.cli.takeover import hand_over
from modeld.client import Connection
from shared import codes
from shared.client.locate import Target, target_of, targets
from shared.diagnosis.remedy import called, install_command
from shared.diagnosis.version_order import is_older
from shared.errors import BackendUnavailable, DaemonError, DaemonUnreachable, ModeldError
from shared.lease import presence
from shared.lease.process import identity
from shared.lease.pulse import PULSE_SECONDS
from shared.lease.reader import PresenceView, Survey, survey
from shared.protocol import api
from shared.version import __version__

#: Beyond the time between two looks of a living instance at its own records.
_MEND_GRACE = 2.0
_MEND_POLL = 0.1
#: How long one that closed a connection unanswered may still take to be gone. Seconds.
DOOR_SECONDS = 2.0


def main(options: argparse.Namespace) -> int:
    """Idempotent: a living modeld is reported and kept, unless it is an older version than this.

    Raises DaemonUnreachable with what the daemon said.
    """
    context = Context()
    require_backend(context, options.backend)
    return anyio.run(start, context, options.backend)


def require_backend(context: Context, backend: str | None) -> None:
    """Raises SettingInvalid for an engine that is configured wrongly: another one than was meant must not serve."""
    for problem in context.problems:
        if problem.name == "backend" and backend is None:
            raise problem


async def start(context: Context, backend: str | None) -> int:
    """See `main`."""
    running = await _running(context) or await _mended(context)
    if running is not None:
        if is_older(running.hello.version):
            return await hand_over(context, running, backend, None)
        return _report(running, "is running already", backend)
    mine = await launch(context, backend)
    return codes.FAILED if mine is None else await _settle(context, mine)


async def _running(context: Context) -> Connection | None:
    """A greeted connection to a modeld that lives and goes on. One that is ending is waited for; one that lives and
    does not answer is not started over.
    """
    deadline = anyio.current_time() + context.settings.shutdown_drain + ENDING_SECONDS + READY_SECONDS
    reported = False
    while True:
        found = await anyio.to_thread.run_sync(survey, context.root)
        ending: Target | None = None
        failure: tuple[Target, DaemonError] | None = None
        for target in targets(found):
            try:
                async with await Connection.open(target, context.settings) as connection:
                    if not connection.hello.ending:
                        return connection
                    ending = ending or target
            except DaemonUnreachable as error:
                failure = failure or (target, error)
            except DaemonError:
                continue  # proven: nobody listens there
        left = deadline - anyio.current_time()
        if ending is not None and left > 0:
            if not reported:
                reported = True
                print(f"modeld: pid {ending.pid} is ending; waiting for it", file=sys.stderr)
            if await gone(context, ending, left):
                await _back(context, ending)
                continue
        if ending is not None:
            hint = f"pid {ending.pid} was asked to end and does not; `{called('modeld')} stop` ends it by force"
            raise DaemonUnreachable(hint=hint, retryable=True)
        between = _between_instances(found)
        if failure is None and between is not None and left > 0:
            await _back(context, between)
            continue
        if failure is None:
            return None
        # one that closed the door was at its very end
        if left <= 0 or not await gone(context, failure[0], DOOR_SECONDS):
            raise failure[1]
        await _back(context, failure[0])


def _between_instances(found: Survey) -> Target | None:
    """A process whose instance has ended and that is about to be found as a fresh one."""
    for view in found.instances:
        if view.ended_reason in ("restart", "upgrade") and identity.same_process(view.pid, view.start_token):
            return target_of(view)
    return None


async def _back(context: Context, ended: Target) -> None:
    """A process that becomes a fresh one at its end is given the time to say so."""
    with anyio.move_on_after(READY_SECONDS):
        while identity.same_process(ended.pid, ended.start_token):
            found = await anyio.to_thread.run_sync(survey, context.root)
            if any(view.instance != ended.instance for view in found.living):
                return
            await anyio.sleep(_MEND_POLL)


async def _mended(context: Context) -> Connection | None:
    """Somebody who lives behind a record that cannot be read: it is waited for until it has rewritten it."""
    deadline = anyio.current_time() + PULSE_SECONDS + _MEND_GRACE
    reported = False
    while anyio.current_time() < deadline:
        try:
            names = await anyio.to_thread.run_sync(presence.illegible, context.root, time.time(), PULSE_SECONDS * 2)
        except OSError:
            return None  # the start itself says what is wrong with the root
        if not names:
            return await _running(context) if reported else None
        if not reported:
            reported = True
            print("modeld: a record is damaged; waiting for its modeld to rewrite it", file=sys.stderr)
        await anyio.sleep(_MEND_POLL)
    return await _running(context)


def _report(connection: Connection, what: str, backend: str | None) -> int:
    hello = connection.hello
    version = "" if hello.version == __version__ else f", version {hello.version}, newer than this command"
    print(f"modeld {what} (pid {connection.target.pid}, backend {hello.backend}{version})")
    missing = _missing(backend) if hello.backend != backend else ""
    if missing:
        print(f"It serves {hello.backend}, not {backend}: {missing}")
    elif backend not in (None, "auto", hello.backend):
        print(
            f"It serves {hello.backend}, not {backend}: `{called('modeld')} restart --backend {backend}` changes that."
        )
    if hello.backend == "none" and backend != "none" and not missing:
        print(_engine_advice())
    return codes.OK if backend in (None, "auto", hello.backend) else codes.FAILED


def _missing(backend: str | None) -> str:
    """Why that engine cannot serve here, "" where it can."""
    from modeld.engine.backends import choose

    try:
        choose(backend or "auto")
    except BackendUnavailable as error:
        return error.message
    return ""


def _engine_advice() -> str:
    """For a modeld that runs without an engine: whether one is there to be used, or none is installed."""
    from modeld.engine.backends import available

    backend = next((one.backend for one in available() if one.importable), None)
    if backend is not None:
        return f"It runs without an engine: `{called('modeld')} restart --backend {backend}` changes that."
    return f"No engine is installed: `{install_command('openvino')}`, then `{called('modeld')} restart`."


async def _settle(context: Context, mine: PresenceView) -> int:
    """Ours answers. Of starters that raced, the earliest instance stays."""
    async with await Connection.open(target_of(mine), context.settings) as connection:
        found = await anyio.to_thread.run_sync(survey, context.root)
        earlier = [view for view in found.living if (view.started, view.instance) < (mine.started, mine.instance)]
        for view in earlier:
            try:
                async with await Connection.open(target_of(view), context.settings) as winner:
                    await connection.call("daemon/shutdown", api.ShutdownParams(reason="duplicate"), api.Value)
                    return _report(winner, "was started at the same moment by another command", None)
            except ModeldError:
                continue  # it does not answer: ours stays
        return _report(connection, "is running", None)
