"""The process of `acp-bridge http`: it listens, says where, and ends at a signal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec

from acp_bridge.faces.http import key, server
from acp_bridge.faces.http.app import make_app
from acp_bridge.process.process_exit import stop_at_signals
from shared.diagnosis.defect import DefectHandler

if TYPE_CHECKING:
    import socket

    from acp_bridge.faces.http.gateway import Gateway
    from acp_bridge.faces.http.options import HttpOptions
    from shared.paths import DataRoot


class HttpProcess:
    """One run. Raises the typed errors of the start; afterwards an error costs one request."""

    def __init__(self, gateway: Gateway, options: HttpOptions, root: DataRoot) -> None:
        self._gateway = gateway
        self._options = options
        self._folder = root.path / "http"

    async def run(self) -> None:
        """Until a signal."""
        DefectHandler("acp-bridge").stand()
        options = self._options
        listener = server.open_port(options.port) if options.socket is None else server.open_socket(options.socket)
        try:
            used = self._key(listener)
            try:
                await self._serve(listener, used)
            finally:
                used.remove()
        finally:
            listener.close()
            if options.socket is not None:
                options.socket.unlink(missing_ok=True)

    async def _serve(self, listener: socket.socket, used: key.Key) -> None:
        app = make_app(self._gateway, used.data)
        ended = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(stop_at_signals, ended.set)
            group.start_soon(self._gateway.run)
            async with server.serving(app, listener):
                self._say(listener, used)
                await ended.wait()
                self._gateway.stop()
            group.cancel_scope.cancel()

    def _key(self, listener: socket.socket) -> key.Key:
        options = self._options
        if options.key_env is not None:
            return key.of_environment(options.key_env, os.environ)
        if options.key_file is not None:
            return key.of_file(options.key_file)
        if options.socket is not None:
            return key.of_run(options.socket.with_name(f"{options.socket.name}.key"))
        return key.of_run(self._folder / f"{listener.getsockname()[1]}.key")

    def _say(self, listener: socket.socket, used: key.Key) -> None:
        """Where, and where the key is: never the key."""
        path = self._options.socket
        url = f"http://{server.LOOPBACK}:{listener.getsockname()[1]}/v1" if path is None else "http://localhost/v1"
        if self._options.json:
            where = {"url": url, "socket": _text(path), "key_file": _text(used.file), "pid": os.getpid()}
            line = msgspec.json.encode(where).decode()
        else:
            at = url if path is None else f"{path} ({url})"
            kept = (
                f"the key is in {used.file}" if used.file is not None else f"the key is that of {self._options.key_env}"
            )
            line = f"serving {at}; {kept}; stop with Ctrl-C"
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
