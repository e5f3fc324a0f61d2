"""One turn on any engine: render, ensure the prefix, prefill, decode, parse. Engine-neutral.

Runs on the worker's engine thread. A cancel arrives as `Aborted` out of the engine and ends the turn
with `cancelled`, whatever stage it is in.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from modeld.engine.chat import Chat, Prompt
from modeld.engine.contract import Aborted, DecodeOptions, Engine, LoadedModel, Purpose
from modeld.engine.gate import Activity
from modeld.engine.messages import Done, Fill, Turn, Warm
from modeld.engine.sampling import decode_options
from modeld.engine.stream import EventStream
from modeld.output.parser import OutputParser
from shared.errors import ContextOverflow, UnsupportedFeature
from shared.protocol.api import Event, Prefill, Prefix, Usage

Send = Callable[[list[Event]], None]


class TurnRunner:
    """The turns of one resident model."""

    def __init__(self, engine: Engine, chat: Chat, loaded: LoadedModel, activity: Activity) -> None:
        self._engine = engine
        self._chat = chat
        self._capabilities = loaded.capabilities
        self._advised = loaded.sampling
        self._num_ctx = loaded.identity.num_ctx
        self._activity = activity

    def turn(self, job: Turn, send: Send) -> Done:
        """Answer a conversation. Raises ContextOverflow, TemplateFailed, UnsupportedFeature."""
        run = _Run(self._engine, self._activity, job.turn, send)
        self._activity.enter("template", job.turn)
        tools = [] if job.params.tool_choice == "none" else job.tools
        prompt = self._chat.prompt(job.messages, job.tools, job.params.thinking)
        budget = self._budget(prompt.tokens)
        options = decode_options(job.params, self._advised, self._capabilities, budget)
        parser = OutputParser(prompt.format, job.params.stop, tools)
        try:
            run.prefill(prompt.tokens, options, "turn", job.conversation)
            run.decode(options, parser, self._chat.piece_reader(prompt.format, job.params.stop), self._chat.special.end)
        except Aborted:
            run.cancelled = True
        finally:
            self._engine.end_turn()
        window_full = options.max_tokens == budget and job.params.max_tokens != budget
        return run.finish(parser, window_full)

    def warm(self, job: Warm, send: Send) -> Done:
        """Bring a conversation's prefix into memory."""
        run = _Run(self._engine, self._activity, job.turn, send)
        prompt = self._chat.prompt(job.messages, job.tools, None)
        self._budget(prompt.tokens)
        try:
            run.prefill(prompt.tokens, None, "warm")
        except Aborted:
            run.cancelled = True
        finally:
            self._engine.end_turn()
        return run.done("cancelled" if run.cancelled else "stop")

    def fill(self, job: Fill, send: Send) -> Done:
        """Fill in the middle by the vocabulary's own marks, prefix first. Raises UnsupportedFeature."""
        prompt = self._fill_prompt(job)
        budget = self._budget(prompt.tokens)
        options = decode_options(job.params, self._advised, self._capabilities, budget)
        run = _Run(self._engine, self._activity, job.turn, send)
        parser = OutputParser(prompt.format, job.params.stop)
        try:
            run.prefill(prompt.tokens, options, "fill")
            run.decode(options, parser, self._chat.piece_reader(prompt.format, job.params.stop), self._chat.special.end)
        except Aborted:
            run.cancelled = True
        finally:
            self._engine.end_turn()
        return run.finish(parser, options.max_tokens == budget)

    def _fill_prompt(self, job: Fill) -> Prompt:
        from modeld.output.format import OutputFormat

        special = self._chat.special
        marks = (special.fim_prefix, special.fim_suffix, special.fim_middle)
        if any(mark is None for mark in marks):
            raise UnsupportedFeature(feature="fill in the middle")
        before, after, middle = (mark for mark in marks if mark is not None)
        prefix = self._engine.tokenize(job.prefix, special=False)
        suffix = self._engine.tokenize(job.suffix, special=False)
        tokens = self._chat.with_bos([before, *prefix, after, *suffix, middle])
        return Prompt(tokens, OutputFormat())

    def _budget(self, tokens: list[int]) -> int:
        """Tokens the window leaves for the answer: at least one, or ContextOverflow with the numbers."""
        if len(tokens) < self._num_ctx:
            return self._num_ctx - len(tokens)
        resident = self._engine.common_prefix(tokens)
        raise ContextOverflow(context=self._num_ctx, resident=resident, additional=len(tokens) - resident)


class _Run:
    """The numbers and events of one turn while it runs."""

    def __init__(self, engine: Engine, activity: Activity, turn: int, send: Send) -> None:
        self._engine = engine
        self._activity = activity
        self._turn = turn
        self._started = time.perf_counter()
        self._prefill_s = self._first_token_s = self._decode_s = 0.0
        self._usage = Usage()
        self._ended = self._stopped = False
        self.cancelled = False
        self.stream = EventStream(send, lambda stage: activity.enter(stage, turn))

    def prefill(
        self, tokens: list[int], options: DecodeOptions | None, purpose: Purpose, conversation: str | None = None
    ) -> None:
        self._activity.enter("prefix", self._turn)
        total = len(tokens)
        reused = self._engine.ensure_prefix(tokens, purpose, conversation)
        self._usage.reused = reused
        self.stream.say(Prefix(reused=reused, total=total))
        self._activity.enter("prefill", self._turn)
        began = time.perf_counter()

        def progress(done: int, of: int) -> None:
            self._activity.seen = time.monotonic()
            self._usage.prefilled = done - reused
            self.stream.say(Prefill(done=done, total=of))

        try:
            self._engine.prefill_suffix(options, progress)
            self._usage.prefilled = total - reused
        finally:
            self._prefill_s = time.perf_counter() - began

    def decode(
        self, options: DecodeOptions, parser: OutputParser, piece: Callable[[int], bytes], end: frozenset[int]
    ) -> None:
        self._activity.enter("generating", self._turn)
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
                events = feed(piece(token))
                if events:
                    add(events)
                if parser.stopped:
                    self._stopped = True
                    break
        finally:
            if first:
                self._decode_s = clock() - first

    def finish(self, parser: OutputParser, window_full: bool) -> Done:
        natural = self._ended or self._stopped
        events, calls = parser.finish(cut=not natural)
        self.stream.add(events)
        if self.cancelled:
            reason = "cancelled"
        elif natural:
            reason = "tool_calls" if calls else "stop"
        else:
            reason = "context_full" if window_full else "length"
        done = self.done(reason)
        done.tool_calls = [] if self.cancelled else calls
        return done

    def done(self, reason: str) -> Done:
        self.stream.finish()
        return Done(
            turn=self._turn,
            finish_reason=reason,
            usage=self._usage,
            prefill_s=self._prefill_s,
            first_token_s=self._first_token_s,
            decode_s=self._decode_s,
            state_valid=self._engine.valid() if self.cancelled else True,
        )
