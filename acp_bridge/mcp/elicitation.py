"""What a server asks the user in the middle of a tool call (MCP and ACP call it elicitation), by the editor's forms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from acp_bridge.conversations.forms import Form

if TYPE_CHECKING:
    from acp_bridge.conversations.forms import AsksForms
    from shared.text.secret import Cleaner


class Asking:
    """The questions of one server. A person takes their time: while they are asked, the call's limit stands still;
    when the call ends, so do its questions.
    """

    def __init__(self, server: str, conversation: str, forms: AsksForms, clean: Cleaner) -> None:
        self._clean = clean
        self._server = server
        self._conversation = conversation
        self._forms = forms
        self._limit: anyio.CancelScope | None = None
        self._open: set[anyio.CancelScope] = set()

    @contextmanager
    def during(self, limit: anyio.CancelScope) -> Iterator[None]:
        """While a tool call runs that is bounded by `limit`."""
        self._limit = limit
        try:
            yield
        finally:
            self._limit = None
            for question in self._open:
                question.cancel()

    async def answer(self, context: Any, asked: Any) -> Any:
        """The SDK's callback. Only forms are shown, and only while a call of ours runs."""
        from mcp.types import ElicitResult

        del context
        limit = self._limit
        if getattr(asked, "mode", "form") != "form" or limit is None:
            return ElicitResult(action="decline")
        message = f"{self._server}: {self._clean.known(asked.message)}"
        form = Form(message=message, schema=self._clean.value(_schema(asked.requested_schema)))
        began, left = anyio.current_time(), limit.deadline
        limit.deadline = float("inf")
        with anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                answer = await self._forms.ask_form(self._conversation, form)
            finally:
                self._open.discard(scope)
                limit.deadline = left + anyio.current_time() - began
        if scope.cancelled_caught:
            return ElicitResult(action="cancel")
        return ElicitResult(action=answer.action, content=answer.content if answer.action == "accept" else None)


def _schema(asked: Any) -> dict[str, Any]:
    """As plain JSON, whichever way the SDK holds it."""
    plain = asked if isinstance(asked, dict) else asked.model_dump(by_alias=True, exclude_none=True)
    return {"type": "object", **plain}
