"""One turn on any engine: render, ensure the prefix, prefill, decode, parse. Engine-neutral.

Runs on the worker's engine thread. A cancel arrives as `Aborted` out of the engine and ends the turn
with `cancelled`, whatever stage it is in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from modeld.engine.contract import Aborted, DecodeOptions, Engine, LoadedModel, Purpose
from modeld.engine.images import PromptImage
from modeld.output.grammar.call_grammar import must_call, tool_grammar
from modeld.output.parser import OutputParser
from modeld.output.repetition import RepetitionWatch
from modeld.pipe.messages import Done, EnsurePrefix, Fill, Turn, Warm
from modeld.template.shape import request_of
from modeld.worker.chat import Chat, Prompt
from modeld.worker.prefill_ahead import Ended, PrefillAhead
from modeld.worker.sampling import decode_options, must_use_tools, offered
from modeld.worker.stream import EventStream
from modeld.worker.turn_gate import Activity
from shared.errors import ContextOverflow, UnsupportedFeature
from shared.protocol.api import Event, Prefill, Prefix, TextDelta, Usage

Send = Callable[[list[Event]], None]


class TurnRunner:
    """The turns of one resident model."""

    def __init__(self, engine: Engine, chat: Chat, loaded: LoadedModel, activity: Activity) -> None:
        self._engine = engine
        self._chat = chat
        self._capabilities = loaded.capabilities
        self._recommended = loaded.sampling
        self._num_ctx = loaded.identity.num_ctx
        self._activity = activity
        self.prefill_ahead = PrefillAhead(engine, chat, loaded.capabilities, loaded.identity.num_ctx)

    def turn(self, job: Turn, send: Send) -> Done:
        """Answer a conversation. Raises ContextOverflow, TemplateFailed, UnsupportedFeature."""
        said = Heard(send)
        run = Run(self._engine, self._activity, job.turn, said)
        plan = self.plan(job)
        done = self._answer(run, plan, "turn", job.conversation)
        if done.finish_reason in ("stop", "length") and not plan.images and job.prompt is None:
            held = len(plan.tokens) + done.usage.generated - 1
            self.prefill_ahead.note(Ended(job=job, text=said.text, held=held, thinking=plan.thinking))
        return done

    def plan(self, job: Turn | EnsurePrefix) -> TurnPlan:
        """Everything about a turn that is known before the engine works. Raises as `turn`."""
        self._activity.enter("template", job.turn)
        tools, must = offered(job.params, job.tools), must_use_tools(job.params)
        thinking = job.params.thinking or ("off" if must else None)
        prompt = self._prompt(job, thinking)
        budget = self._budget(prompt.tokens)
        grammar = tool_grammar(prompt.format, tools)
        if must and grammar is not None:
            grammar = must_call(grammar, prompt.format, self._chat.call_lead(job.tools))
        options = decode_options(job.params, self._recommended, self._capabilities, budget, grammar)
        stops = [*job.params.stop, *self._chat.template.end_texts]
        return TurnPlan(
            tokens=prompt.tokens,
            images=prompt.images,
            thinking=thinking,
            options=options,
            parser=OutputParser(prompt.format, stops, tools),
            piece=self._chat.piece_reader(prompt.format, stops),
            watch=None if job.params.loop_stop is False else RepetitionWatch(request_of(job.messages)),
            window_bound=options.max_tokens == budget and job.params.max_tokens != budget,
        )

    def _prompt(self, job: Turn | EnsurePrefix, thinking: str | None) -> Prompt:
        if isinstance(job, Turn) and job.prompt is not None:
            return self._chat.continued(job.prompt)
        return self._chat.prompt(job.messages, job.tools, thinking)

    def warm(self, job: Warm, send: Send) -> Done:
        """Bring a conversation's prefix into memory."""
        run = Run(self._engine, self._activity, job.turn, send)
        prompt = self._chat.prompt(job.messages, job.tools, None)
        self._budget(prompt.tokens)
        try:
            run.ensure(prompt.tokens, "warm", images=prompt.images)
            run.prefill(None)
        except Aborted:
            run.cancelled = True
        finally:
            self._engine.end_turn()
        return run.done("cancelled" if run.cancelled else "stop")

    def fill(self, job: Fill, send: Send) -> Done:
        """Fill in the middle by the vocabulary's own marks, prefix first. Raises UnsupportedFeature."""
        prompt = self._fill_prompt(job)
        budget = self._budget(prompt.tokens)
        options = decode_options(job.params, self._recommended, self._capabilities, budget)
        said = Heard(send)
        run = Run(self._engine, self._activity, job.turn, said)
        plan = TurnPlan(
            tokens=prompt.tokens,
            options=options,
            parser=OutputParser(prompt.format, job.params.stop),
            piece=self._chat.piece_reader(prompt.format, job.params.stop),
            watch=None if job.params.loop_stop is False else RepetitionWatch(),
            window_bound=options.max_tokens == budget,
        )
        done = self._answer(run, plan, "fill")
        done.text = said.text
        return done

    def _answer(self, run: Run, plan: TurnPlan, purpose: Purpose, conversation: str | None = None) -> Done:
        """Prefix, suffix and decode, whatever stops them; the turn at the engine is over then."""
        try:
            run.ensure(plan.tokens, purpose, conversation, plan.images)
            run.prefill(plan.options)
            run.decode(plan, self._chat.special.end)
        except Aborted:
            run.cancelled = True
        finally:
            self._engine.end_turn()
        return run.finish(plan.parser, plan.window_bound)

    def _fill_prompt(self, job: Fill) -> Prompt:
        from modeld.output.format import OutputFormat

        special = self._chat.special
        marks = (special.fim_prefix, special.fim_suffix, special.fim_middle)
        if any(mark is None for mark in marks):
            raise UnsupportedFeature(feature="fill in the middle")
        before, after, middle = (mark for mark in marks if mark is not None)
        prefix = self._chat.ordinary(job.prefix)
        suffix = self._chat.ordinary(job.suffix)
        tokens = self._chat.with_bos([before, *prefix, after, *suffix, middle])
        return Prompt(tokens, OutputFormat())

    def _budget(self, tokens: list[int]) -> int:
        """Tokens the window leaves for the answer: at least one, or ContextOverflow with the numbers."""
        if len(tokens) < self._num_ctx:
            return self._num_ctx - len(tokens)
        resident = self._engine.common_prefix(tokens)
        raise ContextOverflow(context=self._num_ctx, resident=resident, additional=len(tokens) - resident)


class Heard:
    """Passes events on and keeps their text."""

    __slots__ = ("_parts", "_send")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._parts: list[str] = []

    def __call__(self, events: list[Event]) -> None:
        """As `send`."""
        self._parts.extend(event.text for event in events if isinstance(event, TextDelta))
        self._send(events)

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._parts)


class TurnPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A turn before the engine works on it. `window_bound`: the window ends it before any other bound.

    `watch` is None where an answer may repeat itself as long as it likes.
    """

    tokens: list[int]
    images: Sequence[PromptImage] = ()
    thinking: str | None = None
    options: DecodeOptions
    parser: OutputParser
    piece: Callable[[int], bytes]
    watch: RepetitionWatch | None
    window_bound: bool


class Run:
    """The numbers and events of one turn while it runs, at once or step by step."""

    def __init__(self, engine: Engine, activity: Activity, turn: int, send: Send) -> None:
        self._engine = engine
        self._activity = activity
        self._started = time.perf_counter()
        self._prefill_s = self._first_token_s = self._decode_s = 0.0
        self._total = 0
        self._usage = Usage()
        self._ended = self._stopped = self._repeated = False
        self.cancelled = False
        self.take(turn, send)

    def take(self, turn: int, send: Send) -> None:
        """Go on under another number of the worker's work: the next step of the same turn."""
        self._turn = turn
        self.stream = EventStream(send, lambda stage: self._activity.enter(stage, turn))

    def ensure(
        self,
        tokens: list[int],
        purpose: Purpose,
        conversation: str | None = None,
        images: Sequence[PromptImage] = (),
    ) -> None:
        """Bring the warm part of the prompt into a lane and say how much it is."""
        self._activity.enter("prefix", self._turn)
        encoder = self._engine.image_encoder
        if encoder is not None and images:
            encoder.show(tokens, images)
        self._total = len(tokens)
        self._usage.reused = self._engine.ensure_prefix(tokens, purpose, conversation)
        self.stream.say(Prefix(reused=self._usage.reused, total=self._total))

    def prefill(self, options: DecodeOptions | None) -> None:
        """Evaluate the rest of the prompt. Raises Aborted."""
        self._activity.enter("prefill", self._turn)
        total, reused = self._total, self._usage.reused
        began = time.perf_counter()

        def progress(done: int, of: int) -> None:
            self._activity.step()
            self._usage.prefilled = done - reused
            self.stream.say(Prefill(done=done, total=of))

        try:
            self._engine.prefill_suffix(options, progress)
            self._usage.prefilled = total - reused
        finally:
            self._prefill_s = time.perf_counter() - began

    def decode(self, plan: TurnPlan, end: frozenset[int]) -> None:
        """The answer, token by token. Raises Aborted."""
        self._activity.enter("generating", self._turn)
        options, parser, piece = plan.options, plan.parser, plan.piece
        repeats = plan.watch.feed if plan.watch is not None else _never
        activity, feed, add, clock = self._activity, parser.feed, self.stream.add, time.monotonic
        usage, first = self._usage, 0.0
        tokens = self._engine.decode(options)
        try:
            for token in tokens:
                activity.seen = now = clock()
                usage.generated += 1
                if not first:
                    first = now
                    self._first_token_s = time.perf_counter() - self._started
                if token in end:
                    self._ended = True
                    break
                data = piece(token)
                events = feed(data)
                if events:
                    add(events)
                if parser.stopped:
                    self._stopped = True
                    break
                if repeats(data):
                    self._repeated = True
                    break
                if options.tools is not None and (opened := parser.take_opened()) is not None:
                    self._engine.constrain(opened)
        except BaseException:
            self.stream.finish()  # what was read before it is shown, whatever ends the turn
            raise
        finally:
            if first:
                self._decode_s = clock() - first

    def finish(self, parser: OutputParser, window_full: bool) -> Done:
        """The end of a turn that was to decode."""
        natural = self._ended or self._stopped
        events, calls = parser.finish(cut=not natural)
        self.stream.add(events)
        if self.cancelled:
            reason = "cancelled"
        elif natural:
            reason = "tool_calls" if calls else "stop"
        elif self._repeated:
            reason = "length"
        else:
            reason = "context_full" if window_full else "length"
        done = self.done(reason)
        done.ended_by = "repetition" if self._repeated else ""
        done.tool_calls = [] if self.cancelled else calls
        return done

    def done(self, reason: str) -> Done:
        """The end of a turn, or of one step of it."""
        self.stream.finish()
        held = self._engine.measure()
        return Done(
            turn=self._turn,
            measured_bytes=held.measured_bytes,
            parked_bytes=held.parked_bytes if held.measured_bytes else 0,
            finish_reason=reason,
            usage=self._usage,
            prefill_s=self._prefill_s,
            first_token_s=self._first_token_s,
            decode_s=self._decode_s,
            threads=self._engine.threads,
            state_valid=self._engine.valid() if self.cancelled else True,
        )


def _never(data: bytes) -> bool:
    """Nobody watches."""
    del data
    return False
