"""`modeld status`: for people, for scripts, and live."""

from __future__ import annotations

import argparse
import sys

import anyio
import anyio.to_thread

from modeld.cli import codes
from modeld.cli.client import Connection, absent, targets
from modeld.cli.context import Context, complete, print_json, size_text
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


def text(status: api.Status) -> str:
    """The status for people."""
    up = _age(status.uptime_s)
    lines = [
        f"modeld {status.version}  {status.role}  pid {status.pid}  backend {status.backend}  up {up}",
        f"instance   {status.instance}",
        f"endpoint   {status.endpoint}",
        f"slot       {status.state}, generation {status.generation}",
    ]
    active = status.active
    if active is not None:
        lines.append(f"model      {active.name}, context {active.num_ctx}, KV {active.kv_type}, on {active.device}")
    elif status.hint_model:
        lines.append(f"model      none (last: {status.hint_model})")
    if status.busy is not None:
        busy = status.busy
        detail = ", ".join(f"{name} {value}" for name, value in busy.detail.items() if value != "")
        stage = f", {busy.stage}" + (f" ({detail})" if detail else "")
        lines.append(f"busy       {busy.operation}{stage}, for {busy.holder or 'nobody'} since {_age(busy.age_s)}")
    for place, waiting in enumerate(status.queue, start=1):
        lines.append(f"queue {place:>2}   {waiting.client} wants {waiting.model}, waits {_age(waiting.waited_s)}")
    memory = status.memory
    if memory.free_bytes is not None:
        used = f", model {size_text(memory.measured_bytes)}" if memory.measured_bytes is not None else ""
        lines.append(f"memory     {size_text(memory.free_bytes)} free, {size_text(memory.reserve_bytes)} kept{used}")
    if memory.pressure:
        lines.append("           memory is short: `modeld unload` gives back what the model holds")
    if status.pending_reload:
        lines.append("           changed settings wait for the next load: `modeld load MODEL --switch`")
    lines.append(f"clients    {status.clients} connected, {status.sessions} sessions")
    if status.last_turn is not None:
        lines.append(f"last turn  {_turn(status.last_turn)}")
    if status.last_error is not None:
        lines.append(f"last error {status.last_error.get('message', '')}")
    return "\n".join(lines)


def _turn(turn: api.TurnResult) -> str:
    usage = turn.usage
    counts = f"{usage.reused} tokens reused, {usage.prefilled} prefilled, {usage.generated} generated"
    return f"{turn.finish_reason}: {counts}, {turn.timings.tokens_per_s:.1f} tokens/s"


def _age(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
