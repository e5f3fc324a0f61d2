"""`modeld/count`: tokens by the model's own tokenizer. Loads nothing, queues nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from acp_bridge.faces.lsp import wire
from acp_bridge.faces.lsp.messages import chat_messages, chat_tools
from shared.errors import ConnectionRefused, DaemonError
from shared.protocol import api
from shared.protocol.faults import InvalidParams

if TYPE_CHECKING:
    from acp_bridge.faces.lsp.window import Window

#: An editor counts while it builds a prompt: past this a guess serves it better.
PATIENCE_S = 2.0


async def handle(window: Window, params: wire.CountParams) -> wire.Counted:
    """An upper estimate where nobody can count now; the text goes to another machine only where its model is picked.

    Raises ModelNotFound, TemplateFailed.
    """
    if (params.messages is None) == (params.text is None):
        raise InvalidParams(at="$", reason="either messages or text")
    core = await window.core()
    asked = api.CountParams(
        model=params.model,
        messages=None if params.messages is None else chat_messages(params.messages),
        text=params.text,
        tools=chat_tools(params.tools),
    )
    remote = any(model.id == params.model for model in core.models.remotes)
    if remote and asked.messages is not None and await window.picked() == params.model:
        with anyio.move_on_after(PATIENCE_S):
            client = await core.providers.client(params.model)
            counts, exact = await client.count(params.model, asked.messages, asked.tools)
            return wire.Counted(each=counts.each, total=counts.total, exact=exact)
    if core.daemon.connected and not remote:
        with anyio.move_on_after(PATIENCE_S):
            try:
                counted = await core.daemon.call("model/count", asked, api.CountResult)
                return wire.Counted(each=counted.each, total=counted.total)
            except (DaemonError, ConnectionRefused):
                return guess(asked)
    return guess(asked)


def guess(asked: api.CountParams) -> wire.Counted:
    """On the safe side. Pure."""
    from acp_bridge.turn.context import CHARS_PER_TOKEN, estimate

    if asked.messages is not None:
        each = [estimate([message]) for message in asked.messages]
    else:
        each = [int(len(text) / CHARS_PER_TOKEN) + 1 for text in asked.text or []]
    tools = int(len(str(asked.tools)) / CHARS_PER_TOKEN) if asked.tools else 0
    return wire.Counted(each=each, total=sum(each) + tools, exact=False)
