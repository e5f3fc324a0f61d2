"""`modeld status --watch`: a live view on a terminal, plain lines when piped; through restarts."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator

import anyio
import msgspec

from modeld.cli.context import Context, complete
from modeld.cli.statustext import text
from modeld.cli.statusview import View
from modeld.client import reach
from shared.errors import DaemonError
from shared.protocol import api
from shared.text.console import draw

#: The live view is redrawn this often, for the seconds in it. Seconds.
TICK_SECONDS = 1.0
#: While modeld is away it is looked for this often. Seconds.
AWAY_SECONDS = 0.5


async def statuses(context: Context) -> AsyncIterator[api.Status | None]:
    """Every status as it changes, None when modeld has gone; it is waited for. Raises the typed errors at first."""
    first = True
    while True:
        try:
            async with await reach(context.root, context.settings) as connection:
                yield await connection.call("status/watch", api.WatchParams(), api.Status)
                first = False
                while True:
                    yield await connection.pushes()
        except DaemonError:
            if first:
                raise
        yield None
        await anyio.sleep(AWAY_SECONDS)


async def plain(context: Context, *, as_json: bool) -> int:
    """For a pipe: nothing but lines. Ends when modeld does not come back is up to the reader."""
    gone = False
    async for status in statuses(context):
        if status is None:
            if not gone and not as_json:
                print("modeld stopped; waiting for it to come back", flush=True)
            gone = True
            continue
        gone = False
        if as_json:
            print(msgspec.json.encode(complete(status)).decode("utf-8"), flush=True)
        else:
            print(text(status), flush=True)
    return 0


async def screen(context: Context) -> int:
    """For a terminal: on a screen of its own, which gives the old one back at the end."""
    view = View()
    shown: list[api.Status | None] = []
    changed = [anyio.Event()]

    async def read() -> None:
        async for status in statuses(context):
            shown.append(status)
            changed[0].set()

    draw("\x1b[?1049h\x1b[?25l")
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await _draw(view, shown, changed)
    finally:
        draw("\x1b[?25h\x1b[?1049l")
    return 0


async def _draw(view: View, shown: list[api.Status | None], changed: list[anyio.Event]) -> None:
    latest: api.Status | None = None
    came, away = anyio.current_time(), ""
    while True:
        with anyio.move_on_after(TICK_SECONDS):
            await changed[0].wait()
        changed[0] = anyio.Event()
        for status in shown:
            away = "stopped; waiting for it to come back" if status is None else ""
            if status is not None:
                latest, came = status, anyio.current_time()
                view.note(status)
        shown.clear()
        if latest is None:
            continue
        size = shutil.get_terminal_size()
        since = 0.0 if away else anyio.current_time() - came
        lines = view.lines(latest, width=size.columns, since=since, away=away)[: size.lines - 1]
        # home, each line cleared behind its end, the rest cleared: no flicker
        draw("\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in lines) + "\x1b[J")
