"""Runs the MCP servers of one session: started at the first turn that can use tools, ended with the session.

The SDK takes most of a second to import, so that happens in a thread, and only when there is a server to run. A server
that fails is reported and keeps nobody: not session/new, not the turn, not the other servers.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from acp_bridge.session.events import TextItem
from acp_bridge.session.face import ToolFailed
from acp_bridge.tools.base import Outcome, Plan, ShowItems

if TYPE_CHECKING:
    from acp_bridge.tools.workspace import Workspace

#: How long the first turn waits for the servers; one that is later is there at the next turn.
READY_LIMIT_S = 10.0
CALL_LIMIT_S = 120.0
#: Names of tools as models and templates take them.
PLAIN = re.compile(r"[^A-Za-z0-9_-]")
NAME_LENGTH = 64


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One server as the editor named it. `kind` is stdio, http or sse."""

    name: str
    kind: str = "stdio"
    command: str = ""
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}


class McpServers:
    """The servers of one session. `problems` holds what has not been reported yet, by name."""

    def __init__(self, specs: Sequence[ServerSpec], cwd: str) -> None:
        self._specs = list(specs)
        self._cwd = cwd
        self._tools: dict[str, list[McpTool]] = {}
        self._settled = {spec.name: anyio.Event() for spec in specs}
        self._closing = anyio.Event()
        self._started = False
        self.problems: dict[str, str] = {}

    def tools(self) -> list[McpTool]:
        """The tools of every server that is up, in the order the editor named the servers."""
        return [tool for spec in self._specs for tool in self._tools.get(spec.name, [])]

    async def ready(self, group: anyio.abc.TaskGroup) -> None:
        """Start them in `group`, once, and wait until each is up or has failed; bounded."""
        if not self._started:
            self._started = True
            for spec in self._specs:
                group.start_soon(self._run, spec)
        with anyio.move_on_after(READY_LIMIT_S):
            for settled in self._settled.values():
                await settled.wait()

    def close(self) -> None:
        """End the processes soon."""
        self._closing.set()

    def take_problems(self) -> list[str]:
        """What went wrong since the last call, one line each."""
        lines = [f"The MCP server {name} is not available: {reason}" for name, reason in self.problems.items()]
        self.problems.clear()
        return lines

    async def _run(self, spec: ServerSpec) -> None:
        try:
            if spec.kind != "stdio":
                raise ToolFailed(f"{spec.kind} servers are not supported")
            await self._serve(spec)
        except ToolFailed as error:
            self.problems[spec.name] = str(error)
        except Exception as error:
            self.problems[spec.name] = _reason(error)
        finally:
            self._tools.pop(spec.name, None)
            self._settled[spec.name].set()

    async def _serve(self, spec: ServerSpec) -> None:
        try:
            sdk = await anyio.to_thread.run_sync(importlib.import_module, "mcp")
            stdio = await anyio.to_thread.run_sync(importlib.import_module, "mcp.client.stdio")
        except ImportError as error:
            raise ToolFailed("the MCP library is not installed; `pip install 'modeld[mcp]'`") from error
        parameters = sdk.StdioServerParameters(
            command=spec.command, args=list(spec.arguments), env=spec.environment or None, cwd=self._cwd
        )
        async with stdio.stdio_client(parameters) as (reading, writing), sdk.ClientSession(reading, writing) as session:
            await session.initialize()
            listed = await session.list_tools()
            self._tools[spec.name] = [McpTool(session, spec.name, tool) for tool in listed.tools]
            self._settled[spec.name].set()
            await self._closing.wait()


class McpTool:
    """One tool of a server. It asks permission unless the server says that it only reads."""

    def __init__(self, session: Any, server: str, tool: Any) -> None:
        self._session = session
        self._server = server
        self._tool = tool.name
        self.name = PLAIN.sub("_", f"{server}_{tool.name}")[:NAME_LENGTH]
        self.description = tool.description or tool.name
        self.parameters: dict[str, Any] = tool.input_schema
        self.changes = not (tool.annotations is not None and tool.annotations.read_only_hint)

    async def plan(self, arguments: dict[str, Any], workspace: Workspace) -> Plan:
        """See acp_bridge.tools.base.Tool."""

        async def effect(show: ShowItems) -> Outcome:
            return await self._call(arguments, workspace)

        title = f"{self._server}: {self._tool}"
        return Plan(title=title, kind="other", effect=effect, grant=f"mcp {self._server} {self._tool}")

    async def _call(self, arguments: dict[str, Any], workspace: Workspace) -> Outcome:
        try:
            with anyio.fail_after(CALL_LIMIT_S):
                result = await self._session.call_tool(self._tool, arguments)
        except TimeoutError as error:
            raise ToolFailed(f"it did not answer within {CALL_LIMIT_S:.0f} s") from error
        except Exception as error:
            raise ToolFailed(_reason(error)) from error
        text = workspace.cut("\n".join(getattr(part, "text", f"[{part.type}]") for part in result.content))
        if result.is_error:
            raise ToolFailed(text or "the tool failed")
        return Outcome(text=text, items=[TextItem(text=text)])


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return str(error) or type(error).__name__
