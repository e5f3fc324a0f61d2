"""One tool of an MCP server as a tool of the bridge."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import anyio

from acp_bridge.session.events import TextItem
from acp_bridge.session.face import ToolFailed
from acp_bridge.tools.base import Outcome, Plan, ShowItems
from shared.nesting import too_deep

if TYPE_CHECKING:
    from acp_bridge.mcp.asking import Asking
    from acp_bridge.mcp.secrets import ServerSecrets
    from acp_bridge.tools.workspace import Workspace

CALL_LIMIT_S = 120.0
#: Names of tools as models and templates take them.
PLAIN = re.compile(r"[^A-Za-z0-9_-]")
NAME_LENGTH = 64


class McpTool:
    """It asks permission unless the server says that it only reads."""

    def __init__(self, session: Any, server: str, tool: Any, asking: Asking | None, secrets: ServerSecrets) -> None:
        self._session = session
        self._server = server
        self._tool = tool.name
        self._asking = asking
        self._secrets = secrets
        clean = secrets.answer.value
        self._shown = clean(tool.name)
        self.name = PLAIN.sub("_", f"{server}_{self._shown}")[:NAME_LENGTH]
        self.description = clean(tool.description or tool.name)
        # what nests too deeply for templates and grammars costs its description, not the turn
        schema = {"type": "object"} if too_deep(tool.input_schema) else tool.input_schema
        self.parameters: dict[str, Any] = clean(schema)
        self.changes = not (tool.annotations is not None and tool.annotations.read_only_hint)

    async def plan(self, arguments: dict[str, Any], workspace: Workspace) -> Plan:
        """See acp_bridge.tools.base.Tool."""

        async def effect(show: ShowItems) -> Outcome:
            return await self._call(arguments, workspace)

        title = f"{self._server}: {self._shown}"
        return Plan(title=title, kind="other", effect=effect, grant=f"mcp {self._server} {self._shown}")

    def _asked_within(self, limit: anyio.CancelScope) -> AbstractContextManager[None]:
        return nullcontext() if self._asking is None else self._asking.during(limit)

    async def _call(self, arguments: dict[str, Any], workspace: Workspace) -> Outcome:
        try:
            with anyio.fail_after(CALL_LIMIT_S) as limit, self._asked_within(limit):
                result = await self._session.call_tool(self._tool, arguments)
        except TimeoutError as error:
            raise ToolFailed(f"it did not answer within {CALL_LIMIT_S:.0f} s") from error
        except Exception as error:
            raise ToolFailed(self._secrets.problem(reason_of(error))) from error
        said = "\n".join(_text(part) for part in result.content)
        text = workspace.cut(self._secrets.problem(said) if result.is_error else self._secrets.answer.known(said))
        if result.is_error:
            raise ToolFailed(text or "the tool failed")
        return Outcome(text=text, items=[TextItem(text=text)])


def _text(part: Any) -> str:
    resource = getattr(part, "resource", None)
    text = getattr(part, "text", None) or getattr(resource, "text", None)
    return text if isinstance(text, str) else f"[{part.type}]"


def reason_of(error: BaseException) -> str:
    """The first of nested exceptions, in words."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return str(error) or type(error).__name__
