"""`modeld/turn`: the editor's whole history in, one assistant message out, streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from acp_bridge.faces.lsp import wire
from acp_bridge.faces.lsp.messages import chat_messages, chat_tools, image_count, since_answer
from acp_bridge.faces.lsp.shown import Shown
from acp_bridge.faces.lsp.window import Work
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.faces.lsp.window import Window

#: Names the hold of turns with tools that name no conversation: the window's agent. Turns without tools leave it alone.
AGENT_RUN = "agent"


async def handle(window: Window, params: wire.TurnParams) -> wire.TurnResult:
    """Raises the typed errors; a cancel by token ends as `cancelled`."""
    work = Work(params.partial_result_token, params.work_done_token)
    return await window.carry(work, lambda: _turn(window, params, work))


class Answer(Shown):
    """One turn; its text is kept for the result where the editor takes no stream."""

    def __init__(self, window: Window, params: wire.TurnParams, work: Work) -> None:
        super().__init__(window, params, work, "Answering")
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self._streamed = params.partial_result_token is not None

    def event(self, event: api.Event) -> None:
        """See View."""
        if isinstance(event, api.TextDelta) and not self._streamed:
            self.text.append(event.text)
        elif isinstance(event, api.ReasoningDelta) and not self._streamed:
            self.reasoning.append(event.text)
        super().event(event)


async def _turn(window: Window, params: wire.TurnParams, work: Work) -> wire.TurnResult:
    from acp_bridge.turn.driver import Driver, Job
    from acp_bridge.turn.history import GivenHistory
    from acp_bridge.turn.interfaces import EditorTools

    core = await window.core()
    pick = await window.picked(params.workspace)
    work.model = params.model or await window.model_of(pick)
    job = Job(
        pick=pick,
        named=work.model,
        run=params.conversation or (AGENT_RUN if params.tools else ""),
        params=_sampling(params),
        conversation=params.conversation,
        exact=True,
        allow_load=params.allow_load,
        allow_switch=params.allow_switch,
    )
    history = GivenHistory(
        lambda supports_images: chat_messages(params.messages, supports_images=supports_images),
        new_images=image_count(since_answer(params.messages)),
        has_images=image_count(params.messages) > 0,
        trims=params.overflow == "trim",
    )

    async def equip(found: object, model: object) -> EditorTools:
        return EditorTools(chat_tools(params.tools))

    shown = Answer(window, params, work)
    try:
        result = (await Driver(core.source, core.holds, job, history, shown, work.cancel, equip).run()).result
    finally:
        shown.done.end()
    window.answered(result)
    result = _runnable(result)
    return wire.mirrored(
        wire.TurnResult,
        result,
        usage=wire.mirrored(wire.Usage, result.usage),
        timings=wire.mirrored(wire.Timings, result.timings),
        context=result.num_ctx,
        tool_calls=[wire.mirrored(wire.ToolCall, call) for call in result.tool_calls],
        text="".join(shown.text),
        reasoning="".join(shown.reasoning),
        left_out=history.left_out,
    )


def _runnable(result: api.TurnResult) -> api.TurnResult:
    """Without the calls that cannot be run, each reported: the editor would run them with empty arguments."""
    calls = [call for call in result.tool_calls if not call.fault]
    faults = [
        f"The call of {call.name or 'a tool'} cannot be run: {call.fault}" for call in result.tool_calls if call.fault
    ]
    if not faults:
        return result
    finish = "stop" if result.finish_reason == "tool_calls" and not calls else result.finish_reason
    return msgspec.structs.replace(result, tool_calls=calls, finish_reason=finish, warnings=[*result.warnings, *faults])


def _sampling(params: wire.TurnParams) -> api.Sampling:
    options = params.options
    return wire.mirrored(
        api.Sampling,
        options,
        thinking=None if options.thinking == "default" else options.thinking,
        tool_choice=None if params.tool_choice == "auto" else params.tool_choice,
    )
