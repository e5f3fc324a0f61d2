"""`POST /v1/chat/completions`: one turn, whole or streamed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from acp_bridge.faces.http.exchange import Output, tell
from acp_bridge.faces.http.protocol import answer, errors, sampling, wire
from acp_bridge.faces.http.protocol.messages import chat_messages, image_count
from acp_bridge.faces.http.view import Heard
from acp_bridge.models.picker import RemoteModel
from acp_bridge.turn.driver import Driver, Ended, Job
from acp_bridge.turn.history import GivenHistory
from acp_bridge.turn.interfaces import EditorTools, Model
from shared.errors import UnsupportedFeature
from shared.protocol import api

if TYPE_CHECKING:
    from starlette.requests import Request

    from acp_bridge.cancel import Cancel
    from acp_bridge.faces.http.app import Face
    from acp_bridge.faces.http.gateway import Gateway, Program

#: Names the hold between a call of a tool and its result: one a program.
RUN = "agent"


async def chat(face: Face, request: Request) -> Response:
    """Raises Refusal, and the typed errors of the model's name."""
    asked, ignored = wire.read(await face.body(request), wire.ChatRequest)
    wire.refuse_stream_options(asked)
    messages = chat_messages(asked.messages)
    row = await face.gateway.row(asked.model)
    turn = _Turn(face.gateway, asked, messages, row)
    return face.running(request, turn.run, wire.listed(ignored), streams=asked.stream)


class _Turn:
    """One request on its way through the driver."""

    def __init__(
        self,
        gateway: Gateway,
        asked: wire.ChatRequest,
        messages: list[dict[str, Any]],
        row: api.LibraryRow | RemoteModel,
    ) -> None:
        self._gateway = gateway
        self._asked = asked
        self._messages = messages
        self._images = image_count(messages)
        self._remote = isinstance(row, RemoteModel)
        self._params = sampling.of_chat(asked, thinks=bool(row.thinking))
        self._tools = sampling.chat_tools(asked)
        self._top = answer.head("chatcmpl", asked.model, time.time())
        self._said = False  # a chunk has gone out
        self._begun: set[int] = set()  # calls of which a piece has gone out

    async def run(self, program: Program, cancel: Cancel, output: Output) -> None:
        """To the last byte of the answer."""
        asked = self._asked
        pieces = self._piece(output) if asked.stream else None
        view = Heard(output, switch=self._gateway.switch, piece=pieces)
        job = Job(
            pick=asked.model if self._remote else "",
            named=asked.model,
            run=RUN if self._tools else "",
            params=self._params,
            conversation=asked.prompt_cache_key,
            exact=True,
        )
        history = GivenHistory(
            lambda supports_images: self._messages, new_images=self._images, has_images=self._images > 0
        )
        driver = Driver(program.source, program.holds, job, history, view, cancel, self._equip)
        ended = await driver.run()
        if cancel.requested:
            return
        self._gateway.counters.turn(ended.result)
        failure = errors.unfinished(ended.result)
        if failure is not None:
            await tell(output, failure)
        elif asked.stream:
            self._finish(output, view, ended)
        else:
            calls = self._calls(ended.result)
            text, thoughts = "".join(view.text), "".join(view.reasoning)
            result = _settled(ended.result, calls)
            await output.reply(200, answer.chat_whole(self._top, text, thoughts, calls, result, view.notices))

    async def _equip(self, found: object, model: Model) -> EditorTools:
        """Raises UnsupportedFeature: an image that the model would not see is no question that it could answer."""
        if self._images and not model.supports_images:
            raise UnsupportedFeature(feature=f"images ({model.name} does not see them)")
        return EditorTools(self._tools)

    def _calls(self, result: api.TurnResult) -> list[api.ToolCall]:
        """Those that can be run. With `parallel_tool_calls: false` the first."""
        calls = [call for call in result.tool_calls if not call.fault]
        return calls if self._asked.parallel_tool_calls else calls[:1]

    # --- stream --------------------------------------------------------------------------------

    def _piece(self, output: Output) -> Any:
        def said(delta: dict[str, Any]) -> None:
            first = {} if self._said else {"role": "assistant"}
            self._said = True
            output.piece(answer.event(answer.chat_chunk(self._top, {**first, **delta}, **self._no_usage())))

        def piece(event: api.Event) -> None:
            if isinstance(event, api.TextDelta):
                said({"content": event.text})
            elif isinstance(event, api.ReasoningDelta):
                said({"reasoning_content": event.text})
            elif isinstance(event, api.ToolCallDelta) and (event.index == 0 or self._asked.parallel_tool_calls):
                first = event.index not in self._begun
                self._begun.add(event.index)
                said(answer.call_delta(event, first=first))

        return piece

    def _finish(self, output: Output, view: Heard, ended: Ended) -> None:
        result = _settled(ended.result, self._calls(ended.result))
        first = {} if self._said else {"role": "assistant", "content": ""}
        last = answer.chat_chunk(
            self._top, first, answer.finish_reason(result), **self._no_usage(), **answer.remarks(result, view.notices)
        )
        output.piece(answer.event(last))
        if wire.wants_usage(self._asked):
            output.piece(answer.event(answer.usage_chunk(self._top, "chat.completion.chunk", result.usage)))
        output.piece(answer.DONE)

    def _no_usage(self) -> dict[str, Any]:
        """Every chunk but the last says that its usage is null, where the usage was asked for."""
        return {"usage": None} if wire.wants_usage(self._asked) else {}


def _settled(result: api.TurnResult, calls: list[api.ToolCall]) -> api.TurnResult:
    """A call that cannot be run is told, and not given out."""
    told = [
        f"The call of {call.name or 'a tool'} cannot be run: {call.fault}" for call in result.tool_calls if call.fault
    ]
    finish = "stop" if result.finish_reason == "tool_calls" and not calls else result.finish_reason
    return msgspec.structs.replace(result, finish_reason=finish, warnings=[*result.warnings, *told])
