"""`POST /v1/completions`: a text is continued as it stands, or with `suffix` the middle is filled in."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from acp_bridge.faces.http.exchange import Output, tell
from acp_bridge.faces.http.protocol import answer, errors, sampling, wire
from acp_bridge.faces.http.view import Heard
from acp_bridge.models.picker import RemoteModel
from acp_bridge.turn.driver import Driver, Job
from acp_bridge.turn.history import GivenHistory
from acp_bridge.turn.interfaces import EditorTools
from shared.errors import ModelNotActive, ModelSwitchRequired
from shared.protocol import api
from shared.protocol.faults import RequestCancelled

if TYPE_CHECKING:
    from starlette.requests import Request

    from acp_bridge.cancel import Cancel
    from acp_bridge.faces.http.app import Face
    from acp_bridge.faces.http.gateway import Gateway, Program

#: A fill without a bound of its own: what an editor shows at once.
FILL_TOKENS = 128
#: A fill gives way to any turn; so often it is begun again behind it.
FILL_TRIES = 4


async def complete(face: Face, request: Request) -> Response:
    """Raises Refusal, and the typed errors of the model's name."""
    asked, ignored = wire.read(await face.body(request), wire.CompletionRequest)
    wire.refuse_stream_options(asked)
    prompts = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
    if asked.suffix is None and not all(prompts):
        raise errors.Refusal(
            400, "a prompt is empty: there is nothing to continue", param="prompt", code="invalid_value"
        )
    row = await face.gateway.row(asked.model)
    completion = _Completion(face.gateway, asked, prompts, remote=isinstance(row, RemoteModel))
    return face.running(request, completion.run, wire.listed(ignored), streams=asked.stream)


class _Completion:
    """The prompts of one request, one after the other."""

    def __init__(self, gateway: Gateway, asked: wire.CompletionRequest, prompts: list[str], *, remote: bool) -> None:
        self._gateway = gateway
        self._remote = remote
        self._asked = asked
        self._prompts = prompts
        self._top = answer.head("cmpl", asked.model, time.time())
        self._used: list[api.Usage] = []

    async def run(self, program: Program, cancel: Cancel, output: Output) -> None:
        """To the last byte of the answer."""
        one = self._far if self._remote else self._continue if self._asked.suffix is None else self._fill
        choices = []
        for index, prompt in enumerate(self._prompts):
            view = Heard(output, switch=self._gateway.switch, piece=self._piece(output, index))
            result = await one(prompt, program, cancel, view)
            if cancel.requested:
                return
            if isinstance(result, errors.Reply):
                await tell(output, result)
                return
            finish = answer.finish_reason(result)
            choices.append(answer.text_choice("".join(view.text), index, finish))
            if self._asked.stream:
                output.piece(self._event([answer.text_choice("", index, finish)]))
        used = answer.summed(self._used)
        if not self._asked.stream:
            await output.reply(200, answer.text_answer(self._top, choices, usage=answer.usage(used)))
            return
        if wire.wants_usage(self._asked):
            output.piece(answer.event(answer.usage_chunk(self._top, "text_completion", used)))
        output.piece(answer.DONE)

    def _piece(self, output: Output, index: int) -> Callable[[api.Event], None] | None:
        if not self._asked.stream:
            return None

        def piece(event: api.Event) -> None:
            if isinstance(event, api.TextDelta):
                output.piece(self._event([answer.text_choice(event.text, index, None)]))

        return piece

    def _event(self, choices: list[dict[str, Any]]) -> bytes:
        more = {"usage": None} if wire.wants_usage(self._asked) else {}
        return answer.event(answer.text_answer(self._top, choices, **more))

    # --- the two kinds -------------------------------------------------------------------------

    async def _continue(
        self, prompt: str, program: Program, cancel: Cancel, view: Heard
    ) -> api.TurnResult | errors.Reply:
        params = api.Sampling(**sampling.common(self._asked))
        job = Job(pick="", named=self._asked.model, run="", params=params, prompt=prompt, exact=True)
        history = GivenHistory(lambda supports_images: [])

        async def equip(found: object, model: object) -> EditorTools:
            return EditorTools([])

        driver = Driver(program.source, program.holds, job, history, view, cancel, equip)
        result = (await driver.run()).result
        self._gateway.counters.turn(result)
        self._used.append(result.usage)
        return errors.unfinished(result) or result

    async def _fill(self, prompt: str, program: Program, cancel: Cancel, view: Heard) -> api.TurnResult | errors.Reply:
        options = sampling.common(self._asked)
        most = options["max_tokens"] = options["max_tokens"] or FILL_TOKENS
        params = api.FillParams(
            model=self._asked.model, prefix=prompt, suffix=self._asked.suffix or "", params=api.Sampling(**options)
        )
        async with program.fills:
            filled = await self._filled(params, program, cancel, view)
        view.text = [filled.text]
        return self._ended(params, filled, most)

    async def _far(self, prompt: str, program: Program, cancel: Cancel, view: Heard) -> api.TurnResult | errors.Reply:
        """By the endpoint of a model that this server was started with; its text comes in one piece."""
        options = sampling.common(self._asked)
        params = api.FillParams(
            model=self._asked.model, prefix=prompt, suffix=self._asked.suffix or "", params=api.Sampling(**options)
        )
        client = await self._gateway.providers.client(params.model)
        filled = await cancel.race(lambda: client.fill(params, client.provider.timeout_s))
        view.event(api.TextDelta(text=filled.text))
        return self._ended(params, filled, options["max_tokens"] or 0)

    def _ended(self, params: api.FillParams, filled: api.FillResult, most: int) -> api.TurnResult:
        self._used.append(filled.usage)
        self._gateway.counters.used(filled.usage)
        return api.TurnResult(
            finish_reason="length" if 0 < most <= filled.usage.generated else "stop",
            model=params.model,
            usage=filled.usage,
            timings=api.Timings(),
            generation=0,
        )

    async def _filled(self, params: api.FillParams, program: Program, cancel: Cancel, view: Heard) -> api.FillResult:
        """The fill; its model is loaded into an empty slot first. Another model goes for it only with `--switch`."""
        for last in [False] * (FILL_TRIES - 1) + [True]:
            try:
                return await cancel.race(
                    lambda: program.daemon.call("completion/fill", params, api.FillResult, view.event)
                )
            except ModelNotActive:
                await program.local.load_alone(params.model, view, cancel)
            except ModelSwitchRequired:
                if last or not view.always_switch:
                    raise
                await program.local.load(params.model, view, cancel)
            except RequestCancelled:
                if last or view.text:
                    raise
        raise ModelNotActive(requested=params.model)
