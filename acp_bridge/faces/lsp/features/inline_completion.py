"""`textDocument/inlineCompletion`: ghost text by the resident model's own fill-in-the-middle tokens, or by a remote
model that the workspace picked and whose config allows it (`inline_completion`).

Only the newest request counts: it ends the older one here and in the daemon. Silent whenever the service is not there
for it: no model, another kind of model, a turn that runs. Nothing is loaded, switched or waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from lsprotocol import types

from acp_bridge.cancel import Cancel, TurnCancelled
from acp_bridge.faces.lsp.inline import Around, around, tidy, worth_asking
from shared.errors import ModeldError
from shared.protocol import api

if TYPE_CHECKING:
    from pygls.workspace import TextDocument

    from acp_bridge.core.core import Core
    from acp_bridge.faces.lsp.window import Window

#: A typed trigger waits this long for the next key.
DEBOUNCE_S = 0.06
TOKENS_TYPED = 48
TOKENS_ASKED = 128


async def complete(
    window: Window, document: TextDocument, params: types.InlineCompletionParams
) -> types.InlineCompletionList:
    """Never raises for what the service cannot do now."""
    if window.fill is not None:
        window.fill.request()
    cancel = window.fill = Cancel()
    try:
        item = await _item(window, document, params, cancel)
    except (TurnCancelled, ModeldError):
        item = None
    finally:
        cancel.request()
        if window.fill is cancel:
            window.fill = None
    return types.InlineCompletionList(items=[item] if item is not None else [])


async def _item(
    window: Window, document: TextDocument, params: types.InlineCompletionParams, cancel: Cancel
) -> types.InlineCompletionItem | None:
    core = window.core_now
    asked = params.context.trigger_kind == types.InlineCompletionTriggerKind.Invoked
    if core is None:
        return None
    remote = await _remote(window, core)
    model = remote or (None if window.busy else _model(core))
    if model is None:
        return None
    selected = params.context.selected_completion_info
    span = types.Range(params.position, params.position) if selected is None else selected.range
    near = _around(document, span, selected.text if selected is not None else "")
    if not worth_asking(near, asked=asked):
        return None
    if not asked:
        await cancel.race(lambda: anyio.sleep(DEBOUNCE_S))
    fill = api.FillParams(
        model=model,
        prefix=near.prefix,
        suffix=near.suffix,
        params=api.Sampling(temperature=0.0, max_tokens=TOKENS_ASKED if asked else TOKENS_TYPED),
    )
    done = await cancel.race(lambda: _filled(core, fill, far=remote is not None))
    text = tidy(done.text, near, asked=asked)
    if not text:
        return None
    begun = selected.text if selected is not None else ""
    return types.InlineCompletionItem(insert_text=begun + text, range=span)


async def _filled(core: Core, fill: api.FillParams, *, far: bool) -> api.FillResult:
    """By the provider of a remote model, else by modeld."""
    if far:
        return await (await core.providers.client(fill.model)).fill(fill)
    return await core.daemon.call("completion/fill", fill, api.FillResult)


async def _remote(window: Window, core: Core) -> str | None:
    """The workspace's pick, where it is a remote model that may complete at the cursor. A default never is."""
    pick = await window.picked()
    return next((model.id for model in core.models.remotes if model.id == pick and model.fills), None)


def _around(document: TextDocument, span: types.Range, begun: str) -> Around:
    """The text around the cursor, with what the editor's own list has selected as if it stood there."""
    text = document.source
    start = document.offset_at_position(span.start)
    end = start if span.end == span.start else document.offset_at_position(span.end)
    return around(text[:start] + begun + text[end:], start + len(begun))


def _model(core: Core) -> str | None:
    """The resident model, if it can fill in the middle and nobody waits for an answer."""
    status = core.daemon.status
    if status is None or status.active is None or status.queue:
        return None
    if status.busy is not None and status.busy.operation != "fill":
        return None
    row = core.models.row(status.active.name)
    return row.name if row is not None and row.fim else None
