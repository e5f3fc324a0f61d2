"""The life of `acp-bridge http`: what it listens on, and its end."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import uvicorn
from uvicorn.server import ServerState

from acp_bridge.faces.http.connection import KEEP_ALIVE_S, MOST_CONNECTIONS, Connection
from shared.errors import RootUnusable, SettingInvalid

if TYPE_CHECKING:
    from starlette.types import ASGIApp

LOOPBACK = "127.0.0.1"
#: A head past this is answered with 400 and closed: of all that programs send the key is the longest.
MOST_HEAD_BYTES = 32 * 1024
#: After a stop the running answers end by their cancel; what has not by then is closed.
END_S = 3.0


def open_port(port: int) -> socket.socket:
    """A socket on the loopback interface; 0 lets the system choose. Raises SettingInvalid when it is taken."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if sys.platform == "win32":
        made.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)  # else another program could bind it too
    else:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((LOOPBACK, port))
    except OSError as error:
        made.close()
        raise SettingInvalid(name="port", source="flag --port", reason=error.strerror or str(error)) from error
    return made


def open_socket(path: Path) -> socket.socket:
    """A Unix socket of mode 0600. One that nobody listens to any more is replaced; anything else there stays.

    Raises SettingInvalid, RootUnusable.
    """
    if sys.platform == "win32":
        raise SettingInvalid(name="socket", source="flag --socket", reason="Windows has none that Python can serve on")
    _remove_dead(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # no moment between bind and chmod
    try:
        made.bind(str(path))
    except OSError as error:
        made.close()
        raise SettingInvalid(name="socket", source="flag --socket", reason=error.strerror or str(error)) from error
    finally:
        os.umask(before)
    return made


def _remove_dead(path: Path) -> None:
    if sys.platform == "win32":
        return
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    hint = "something else stands there: name another path"
    if stat.S_ISSOCK(facts.st_mode) and facts.st_uid == os.geteuid():
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            probe.settimeout(1.0)
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            hint = error.strerror or str(error)
        else:
            hint = "another server listens there"
        finally:
            probe.close()
    raise RootUnusable(path=str(path), uid=facts.st_uid, mode=oct(stat.S_IMODE(facts.st_mode)), hint=hint)


@asynccontextmanager
async def serving(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    """Answers on `listener` within the block. Not by uvicorn's own loop, which wakes an idle process ten times a
    second.
    """
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=int(KEEP_ALIVE_S) + 1,
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
    )
    config.load()
    state = ServerState()
    waiting: dict[Connection, None] = {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Connection(config, state, waiting), sock=listener, backlog=MOST_CONNECTIONS
    )
    try:
        yield
    finally:
        server.close()
        with anyio.CancelScope(shield=True):
            await _end(state)


async def _end(state: ServerState) -> None:
    """What runs has been asked to end: its last bytes go out, then the connections close."""
    for connection in list(state.connections):
        connection.shutdown()
    if state.tasks:
        await asyncio.wait(list(state.tasks), timeout=END_S)
    for task in list(state.tasks):
        task.cancel()
    for connection in list(state.connections):
        if connection.transport is not None:
            connection.transport.abort()
