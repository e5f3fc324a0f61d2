"""`modeld/turn`: the editor's whole history in, one assistant message out, streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.lsp import wire
from acp_bridge.lsp.messages import chat_messages, chat_tools, image_count
from acp_bridge.lsp.shown import Shown
from acp_bridge.lsp.window import Work
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.lsp.window import Window


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
        """See Listener."""
        if isinstance(event, api.TextDelta) and not self._streamed:
            self.text.append(event.text)
        elif isinstance(event, api.ReasoningDelta) and not self._streamed:
            self.reasoning.append(event.text)
        super().event(event)


async def _turn(window: Window, params: wire.TurnParams, work: Work) -> wire.TurnResult:
    from acp_bridge.answers import Request

    answers = await window.answers()
    work.model = await window.model_of(params.model, params.workspace)
    request = Request(
        model=work.model,
        messages=lambda sees: chat_messages(params.messages, sees=sees),
        images=image_count(params.messages),
        tools=chat_tools(params.tools),
        params=_sampling(params),
        conversation=params.conversation,
        allow_load=params.allow_load,
        allow_switch=params.allow_switch,
        asks=params.consent == "ask",
        always_switch=params.consent == "always" or (params.consent == "ask" and window.always_switch),
        trim=params.overflow == "trim",
    )
    shown = Answer(window, params, work)
    try:
        answered = await answers.answer(request, shown, work.cancel)
    finally:
        shown.done.end()
    result = answered.result
    window.answered(result)
    return wire.TurnResult(
        finish_reason=result.finish_reason,
        model=result.model,
        usage=wire.Usage(
            reused=result.usage.reused, prefilled=result.usage.prefilled, generated=result.usage.generated
        ),
        timings=wire.Timings(
            queued_s=result.timings.queued_s,
            load_s=result.timings.load_s,
            prefill_s=result.timings.prefill_s,
            first_token_s=result.timings.first_token_s,
            decode_s=result.timings.decode_s,
            tokens_per_s=result.timings.tokens_per_s,
        ),
        context=result.num_ctx,
        tool_calls=[wire.ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in result.tool_calls],
        text="".join(shown.text),
        reasoning="".join(shown.reasoning),
        by=result.by,
        warnings=result.warnings,
        left_out=answered.left_out,
    )


def _sampling(params: wire.TurnParams) -> api.Sampling:
    options = params.options
    return api.Sampling(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        repeat_penalty=options.repeat_penalty,
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        seed=options.seed,
        max_tokens=options.max_tokens,
        stop=options.stop,
        thinking=None if options.thinking == "default" else options.thinking,
        tool_choice=None if params.tool_choice == "auto" else params.tool_choice,
    )
