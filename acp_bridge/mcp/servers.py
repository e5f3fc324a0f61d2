"""Runs the MCP servers of one session: started at the first turn that can use tools, ended with the session.

The SDK takes most of a second to import, so that happens in a thread, and only when there is a server to run. A server
that fails is reported and keeps nobody: not session/new, not the turn, not the other servers.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from acp_bridge.mcp.asking import Asking
from acp_bridge.mcp.secrets import ServerSecrets, request_of
from acp_bridge.mcp.tool import McpTool, reason_of
from acp_bridge.session.face import ToolFailed
from shared.remedy import install_command
from shared.secret import SecretUnusable
from shared.shown import one_line

if TYPE_CHECKING:
    from acp_bridge.session.forms import AsksForms

#: How long the first turn waits for the servers; one that is later is there at the next turn.
READY_LIMIT_S = 10.0
#: A remote server must take the connection within this time, as a local one must start.
CONNECT_LIMIT_S = 30.0


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One server as the editor named it. `kind` is stdio (with a command), http (with an address) or sse."""

    name: str
    kind: str = "stdio"
    command: str = ""
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}


class McpServers:
    """The servers of one session. Two of one name are told apart by their place."""

    def __init__(self, specs: Sequence[ServerSpec], cwd: str, conversation: str, forms: AsksForms | None) -> None:
        self._specs = list(specs)
        self._cwd = cwd
        self._conversation = conversation
        self._forms = forms
        self._tools: dict[int, list[McpTool]] = {}
        self._settled = [anyio.Event() for _ in specs]
        self._closing = anyio.Event()
        self._started = False
        self._problems: list[str] = []

    def tools(self) -> list[McpTool]:
        """The tools of every server that is up, in the order the editor named the servers; one of each name."""
        found = [tool for place in sorted(self._tools) for tool in self._tools[place]]
        return list({tool.name: tool for tool in reversed(found)}.values())[::-1]

    async def ready(self, group: anyio.abc.TaskGroup) -> None:
        """Start them in `group`, once, and wait until each is up or has failed; bounded."""
        if not self._started:
            self._started = True
            for place, spec in enumerate(self._specs):
                group.start_soon(self._run, place, spec)
        with anyio.move_on_after(READY_LIMIT_S):
            for settled in self._settled:
                await settled.wait()

    def close(self) -> None:
        """End the processes and connections soon."""
        self._closing.set()

    def take_problems(self) -> list[str]:
        """What went wrong since the last call, one line each."""
        problems, self._problems = self._problems, []
        return problems

    async def _run(self, place: int, spec: ServerSpec) -> None:
        secrets = ServerSecrets(spec, os.environ)
        try:
            await self._serve(place, spec, secrets)
        except Exception as error:
            if not self._closing.is_set():
                reason = secrets.problem(reason_of(error))
                self._problems.append(one_line(f"The MCP server {spec.name} is not available: {reason}"))
        finally:
            self._tools.pop(place, None)
            self._settled[place].set()

    async def _serve(self, place: int, spec: ServerSpec, secrets: ServerSecrets) -> None:
        asking = None if self._forms is None else Asking(spec.name, self._conversation, self._forms, secrets.answer)
        async with _connected(spec, self._cwd, None if asking is None else asking.answer) as session:
            listed = await _every_tool(session)
            self._tools[place] = [McpTool(session, spec.name, tool, asking, secrets) for tool in listed]
            self._settled[place].set()
            await self._closing.wait()


async def _every_tool(session: Any) -> list[Any]:
    """All pages of the server's tools."""
    found: list[Any] = []
    cursor = None
    while True:
        page = await session.list_tools(**({} if cursor is None else {"cursor": cursor}))
        found += page.tools
        cursor = page.next_cursor
        if not cursor:
            return found


@asynccontextmanager
async def _connected(spec: ServerSpec, cwd: str, on_elicit: Any) -> AsyncIterator[Any]:
    """A session with the server, initialized. Raises ToolFailed with the reason in words, and the SDK's errors."""
    if spec.kind == "stdio":
        async with _stdio(spec, cwd, on_elicit) as session:
            yield session
    elif spec.kind == "http":
        async with _http(spec, on_elicit) as session:
            yield session
    else:
        raise ToolFailed(f"{spec.kind} servers are not supported")


@asynccontextmanager
async def _stdio(spec: ServerSpec, cwd: str, on_elicit: Any) -> AsyncIterator[Any]:
    from acp_bridge.mcp.stdio import stdio_server

    sdk, transport = await _load("mcp"), await _load("mcp.client.stdio")
    types = await _load("mcp_types")
    environ = {**transport.get_default_environment(), **spec.environment}
    try:
        async with stdio_server(spec.command, spec.arguments, environ, cwd, types) as server:
            try:
                async with sdk.ClientSession(server.reading, server.writing, elicitation_callback=on_elicit) as session:
                    await _initialized(session)
                    yield session
            except Exception as error:
                said = f"; it said: {server.said}" if server.said else ""
                raise ToolFailed(f"{reason_of(error)}{said}") from error
    except OSError as error:
        raise ToolFailed(f"{spec.command} cannot be run: {error.strerror or error}") from error


@asynccontextmanager
async def _http(spec: ServerSpec, on_elicit: Any) -> AsyncIterator[Any]:
    sdk, transport = await _load("mcp"), await _load("mcp.client.streamable_http")
    try:
        address, headers = request_of(spec)
    except SecretUnusable as error:
        raise ToolFailed(str(error)) from None
    async with (
        transport.create_mcp_http_client(headers=headers or None) as client,
        transport.streamable_http_client(address, http_client=client) as (reading, writing),
        sdk.ClientSession(reading, writing, elicitation_callback=on_elicit) as session,
    ):
        await _initialized(session)
        yield session


async def _initialized(session: Any) -> None:
    try:
        with anyio.fail_after(CONNECT_LIMIT_S):
            await session.initialize()
    except TimeoutError as error:
        raise ToolFailed(f"it did not answer within {CONNECT_LIMIT_S:.0f} s") from error


async def _load(module: str) -> Any:
    """Import a part of the SDK without stopping the loop. Raises ToolFailed when it is not installed."""
    try:
        return await anyio.to_thread.run_sync(importlib.import_module, module)
    except ImportError as error:
        raise ToolFailed(f"the MCP library is not installed; `{install_command('mcp')}`") from error
