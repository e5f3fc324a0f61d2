"""Runs the MCP servers of one session: started at the first turn that can use tools, ended with the session.

The SDK takes most of a second to import, so that happens in a thread, and only when there is a server to run. A server
that fails is reported and keeps nobody: not session/new, not the turn, not the other servers.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from acp_bridge.conversations.face import ToolFailed
from acp_bridge.mcp.elicitation import Asking
from acp_bridge.mcp.names import server_names, tool_names
from acp_bridge.mcp.secrets import ServerSecrets, request_of
from acp_bridge.mcp.tool import McpTool, reason_of
from shared.diagnosis.remedy import install_command
from shared.text.secret import SecretUnusable
from shared.text.shown import one_line

if TYPE_CHECKING:
    from acp_bridge.conversations.forms import AsksForms

#: How long turns wait for the servers, all together; one that is later is there at the next turn.
READY_LIMIT_S = 10.0
#: A wait shorter than this is not worth a card.
SHOWN_AFTER_S = 1.0
#: What one server may offer. Models take fewer; a server that lists for ever must come to an end.
MOST_TOOLS = 256
MOST_PAGES = 64
#: A remote server must take the connection within this time, as a local one must start.
CONNECT_LIMIT_S = 30.0
#: Characters of why a server is not available.
REASON_LENGTH = 500


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
    """The servers of one session. Two of one name are distinguished by their place."""

    def __init__(self, specs: Sequence[ServerSpec], cwd: str, conversation: str, forms: AsksForms | None) -> None:
        self._specs = list(specs)
        self._cwd = cwd
        self._conversation = conversation
        self._forms = forms
        self._shown = server_names([spec.name for spec in specs])
        self._tools: dict[int, list[McpTool]] = {}
        self._names: dict[tuple[int, str], str] = {}
        self._waits_until: float | None = None
        self._settled = [anyio.Event() for _ in specs]
        self._closing = anyio.Event()
        self._problems: list[str] = []

    @property
    def specs(self) -> list[ServerSpec]:
        """The servers as the editor named them."""
        return self._specs

    def tools(self, taken: Collection[str]) -> list[McpTool]:
        """The tools of every server that is up, in the order the editor named the servers, under names of their own.

        None is called as in `taken`; a tool keeps the name that it once had.
        """
        found = [((place, tool.tool), tool) for place in sorted(self._tools) for tool in self._tools[place]]
        fresh = {key: (self._specs[key[0]].name, tool.name) for key, tool in found if key not in self._names}
        named = tool_names(list(fresh.values()), {*taken, *self._names.values()})
        self._names.update(zip(fresh, named, strict=True))
        return [tool.named(self._names[key]) for key, tool in found]

    async def ready(self, group: anyio.abc.TaskGroup, show: Callable[[str], None]) -> None:
        """Start them in `group`, once, and wait until each is up or has failed: READY_LIMIT_S over all turns.

        `show` gets what a longer wait is for.
        """
        now = anyio.current_time()
        if self._waits_until is None:
            self._waits_until = now + READY_LIMIT_S
            for place, spec in enumerate(self._specs):
                group.start_soon(self._run, place, spec)
        if now >= self._waits_until:
            return
        await self._settle(min(now + SHOWN_AFTER_S, self._waits_until))
        if late := self._late():
            show(f"Waiting for the MCP server{'s' * (len(late) > 1)} {', '.join(late)}")
            await self._settle(self._waits_until)
        self._problems += [
            f"The MCP server {name} has not answered within {READY_LIMIT_S:.0f} s. This goes on without it; its tools "
            "are there once it has."
            for name in self._late()
        ]

    async def _settle(self, until: float) -> None:
        with anyio.CancelScope(deadline=until):
            for settled in self._settled:
                await settled.wait()

    def _late(self) -> list[str]:
        names = zip(self._shown, self._settled, strict=True)
        return [one_line(name) for name, settled in names if not settled.is_set()]

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
                reason = one_line(secrets.problem(reason_of(error)), REASON_LENGTH)
                self._problems.append(f"The MCP server {one_line(self._shown[place])} is not available: {reason}")
        finally:
            self._tools.pop(place, None)
            self._settled[place].set()

    async def _serve(self, place: int, spec: ServerSpec, secrets: ServerSecrets) -> None:
        shown = self._shown[place]
        asking = None if self._forms is None else Asking(shown, self._conversation, self._forms, secrets.answer)
        async with _connected(spec, self._cwd, None if asking is None else asking.answer) as (session, ended):
            with anyio.fail_after(CONNECT_LIMIT_S):
                listed, more = await _every_tool(session)
            if more:
                self._problems.append(f"The MCP server {one_line(shown)} {more}; the tools before that are used.")
            self._tools[place] = [McpTool(session, shown, place, tool, asking, secrets) for tool in listed]
            self._settled[place].set()
            await self._over(ended)

    async def _over(self, ended: anyio.Event) -> None:
        """Until the session is closed. Raises ToolFailed when the server ends by itself."""
        async with anyio.create_task_group() as group:

            async def closing() -> None:
                await self._closing.wait()
                group.cancel_scope.cancel()

            group.start_soon(closing)
            await ended.wait()
            if not self._closing.is_set():
                raise ToolFailed("it has ended; its tools are gone until the session is opened again")


async def _every_tool(session: Any) -> tuple[list[Any], str]:
    """The server's tools from all of its pages, each name once, and what was wrong with the list ("": nothing)."""
    types = await _load("mcp.types")
    found: dict[str, Any] = {}
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
        for tool in page.tools:
            found.setdefault(tool.name, tool)
        if len(found) > MOST_TOOLS:
            return list(found.values())[:MOST_TOOLS], f"lists more than {MOST_TOOLS} tools"
        cursor = page.next_cursor
        if not cursor:
            return list(found.values()), ""
        if cursor in seen:
            return list(found.values()), "lists its tools in a circle"
        seen.add(cursor)
    return list(found.values()), f"lists its tools on more than {MOST_PAGES} pages"


@asynccontextmanager
async def _connected(spec: ServerSpec, cwd: str, on_elicit: Any) -> AsyncIterator[tuple[Any, anyio.Event]]:
    """A session with the server, initialized, and its end as far as that can be seen.

    Raises ToolFailed with the reason in words, and the SDK's errors.
    """
    if spec.kind == "stdio":
        async with _stdio(spec, cwd, on_elicit) as (session, ended):
            yield session, ended
    elif spec.kind == "http":
        async with _http(spec, on_elicit) as session:
            yield session, anyio.Event()
    else:
        raise ToolFailed(f"{spec.kind} servers are not supported")


@asynccontextmanager
async def _stdio(spec: ServerSpec, cwd: str, on_elicit: Any) -> AsyncIterator[tuple[Any, anyio.Event]]:
    from acp_bridge.mcp.stdio import stdio_server

    sdk, transport = await _load("mcp"), await _load("mcp.client.stdio")
    types = await _load("mcp_types")
    environ = {**transport.get_default_environment(), **spec.environment}
    try:
        async with stdio_server(spec.command, spec.arguments, environ, cwd, types) as server:
            try:
                async with sdk.ClientSession(server.reading, server.writing, elicitation_callback=on_elicit) as session:
                    await _initialized(session)
                    yield session, server.ended
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
