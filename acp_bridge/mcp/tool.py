"""One tool of an MCP server as a tool of the bridge."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from typing import TYPE_CHECKING, Any

import anyio

from acp_bridge.conversations.events import TextItem
from acp_bridge.conversations.face import ToolFailed
from acp_bridge.tools.base import Outcome, Plan, ShowItems
from acp_bridge.tools.consent.grants import tool_grant
from shared.text.nesting import too_deep

if TYPE_CHECKING:
    from acp_bridge.mcp.elicitation import Asking
    from acp_bridge.mcp.secrets import ServerSecrets
    from acp_bridge.tools.workspace import Workspace

CALL_LIMIT_S = 120.0


class McpTool:
    """It always asks permission: what a server says of its own tool (that it only reads) is its word alone.

    `server` is how people tell it from the others, `place` which of the session's servers it is, `tool` what the server
    calls it; `name` is the model's.
    """

    changes = True

    def __init__(
        self, session: Any, server: str, place: int, tool: Any, asking: Asking | None, secrets: ServerSecrets
    ) -> None:
        self._session = session
        self._asking = asking
        self._secrets = secrets
        clean = secrets.answer.value
        self.server = server
        self.tool: str = tool.name
        self.name: str = clean(tool.name)
        self.description: str = clean(tool.description or tool.name)
        # what nests too deeply for templates and grammars costs its description, not the turn
        schema = {"type": "object"} if too_deep(tool.input_schema) else tool.input_schema
        self.parameters: dict[str, Any] = clean(schema)
        self._title = f"{server}: {self.name}"
        self._grant = tool_grant(f"{place} {tool.name}", self.name, server)

    def named(self, name: str) -> McpTool:
        """The same tool under the name that the model calls it by."""
        named = copy(self)
        named.name = name
        return named

    async def plan(self, arguments: dict[str, Any], workspace: Workspace) -> Plan:
        """See acp_bridge.tools.base.Tool."""

        async def effect(show: ShowItems) -> Outcome:
            return await self._call(arguments, workspace)

        return Plan(
            title=self._title,
            kind="other",
            details=[TextItem(text=json.dumps(arguments, indent=1, ensure_ascii=False))] if arguments else [],
            effect=effect,
            grant=self._grant,
        )

    def _asked_within(self, limit: anyio.CancelScope) -> AbstractContextManager[None]:
        return nullcontext() if self._asking is None else self._asking.during(limit)

    async def _call(self, arguments: dict[str, Any], workspace: Workspace) -> Outcome:
        try:
            with anyio.fail_after(CALL_LIMIT_S) as limit, self._asked_within(limit):
                result = await self._session.call_tool(self.tool, arguments)
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
