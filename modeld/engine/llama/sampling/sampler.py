"""The sampler chain, all of it native: one call a token."""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Sequence
from typing import Any

from modeld.engine.contract import DecodeOptions
from modeld.engine.llama.sampling.constrained_sampler import HeldSampler
from modeld.engine.llama.sampling.grammar import schema_gbnf
from modeld.engine.llama.vocabulary import Vocabulary
from shared.errors import UnsupportedFeature

#: How far back repetition is looked for, in tokens (llama.cpp's default).
PENALTY_TOKENS = 64
#: The one above it means "draw a seed" to llama.cpp.
_MOST_SEED = 0xFFFFFFFE


class SamplerChain:
    """Samplers of one generation, in llama.cpp's own order. Close it."""

    def __init__(self, api: Any, vocabulary: Vocabulary, options: DecodeOptions, prompt: Sequence[int]) -> None:
        """`prompt` is what repetition penalties count besides the answer. Raises UnsupportedFeature."""
        self._api = api
        #: Set while a grammar holds: its `sample` is then to be used.
        self.held: HeldSampler | None = None
        self.pointer = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
        try:
            self._build(vocabulary, options)
            if options.json_schema is not None:
                self._hold_schema(vocabulary, options.json_schema)
        except UnsupportedFeature:
            self.close()
            raise
        if options.repeat_penalty != 1.0 or options.presence_penalty or options.frequency_penalty:
            for token in prompt[-PENALTY_TOKENS:]:
                api.llama_sampler_accept(self.pointer, token)

    def close(self) -> None:
        """Free what is native; safe twice."""
        if self.held is not None:
            self.held.close()
            self.held = None
        if self.pointer:
            self._api.llama_sampler_free(self.pointer)
            self.pointer = None

    def _build(self, vocabulary: Vocabulary, options: DecodeOptions) -> None:
        api, add = self._api, self._add
        if options.logit_bias:
            for token, _ in options.logit_bias:
                if not 0 <= token < vocabulary.size:
                    raise UnsupportedFeature(feature=f"logit_bias for token {token} (0 to {vocabulary.size - 1})")
            biases = (api.llama_logit_bias * len(options.logit_bias))(
                *(api.llama_logit_bias(token, bias) for token, bias in options.logit_bias)
            )
            add(api.llama_sampler_init_logit_bias(vocabulary.size, len(options.logit_bias), biases))
        if options.repeat_penalty != 1.0 or options.presence_penalty or options.frequency_penalty:
            penalties = (options.repeat_penalty, options.frequency_penalty, options.presence_penalty)
            add(api.llama_sampler_init_penalties(vocabulary.size, PENALTY_TOKENS, *penalties))
        if options.temperature <= 0:
            add(api.llama_sampler_init_greedy())
            return
        if options.top_k > 0:
            add(api.llama_sampler_init_top_k(options.top_k))
        if options.top_p < 1.0:
            add(api.llama_sampler_init_top_p(options.top_p, 1))
        if options.min_p > 0.0:
            add(api.llama_sampler_init_min_p(options.min_p, 1))
        add(api.llama_sampler_init_temp(options.temperature))
        seed = secrets.randbits(32) if options.seed is None else min(options.seed & 0xFFFFFFFF, _MOST_SEED)
        add(api.llama_sampler_init_dist(seed))

    def _add(self, sampler: Any) -> None:
        if not sampler:
            raise UnsupportedFeature(feature="this combination of sampling options")
        self._api.llama_sampler_chain_add(self.pointer, sampler)

    def _hold_schema(self, vocabulary: Vocabulary, schema: str) -> None:
        try:
            usable = self.hold(vocabulary, schema_gbnf(schema))
        except ValueError as error:
            raise UnsupportedFeature(feature=f"this json_schema ({error})") from error
        if not usable:
            raise UnsupportedFeature(feature="this json_schema")

    def hold(self, vocabulary: Vocabulary, grammar: str, written: Sequence[int] = ()) -> bool:
        """From here on only what `grammar` allows behind `written`, with which it begins; False if it is unusable.

        Takes the place of an earlier one. Tokens then come from `sample`.
        """
        pointer = self._api.llama_sampler_init_grammar(vocabulary.pointer, grammar.encode(), b"root")
        if not pointer:
            return False
        for token in written:
            self._api.llama_sampler_accept(pointer, token)
        if self.held is not None:
            self.held.close()
        self.held = HeldSampler(self._api, self.pointer, pointer, vocabulary.size)
        return True


class Batch:
    """One reusable native batch of up to `size` tokens for one sequence; logits of the last only."""

    def __init__(self, api: Any, size: int) -> None:
        self._token = (ctypes.c_int32 * size)()
        self._pos = (ctypes.c_int32 * size)()
        self._count = (ctypes.c_int32 * size)(*([1] * size))
        self._sequence = ctypes.c_int32(0)
        pointer = ctypes.POINTER(ctypes.c_int32)
        self._sequences = (pointer * size)(*([ctypes.pointer(self._sequence)] * size))
        self._logits = (ctypes.c_int8 * size)()
        self.native = api.llama_batch(
            0,
            ctypes.cast(self._token, pointer),
            None,
            ctypes.cast(self._pos, pointer),
            ctypes.cast(self._count, pointer),
            ctypes.cast(self._sequences, ctypes.POINTER(pointer)),
            ctypes.cast(self._logits, ctypes.POINTER(ctypes.c_int8)),
        )

    def fill(self, tokens: Sequence[int], start: int, sequence: int, *, logits: bool, every: bool = False) -> Any:
        """The native batch holding `tokens` at positions from `start`; `logits` of the last, or of `every` one."""
        count = len(tokens)
        self._token[:count] = list(tokens)
        self._pos[:count] = list(range(start, start + count))
        ctypes.memset(self._logits, every, count)
        self._logits[count - 1] = logits
        self._sequence.value = sequence
        self.native.n_tokens = count
        return self.native

    def one(self, token: int, position: int) -> Any:
        """As `fill` for a single token with logits, for the decode loop: the sequence stays as it is."""
        self._token[0] = token
        self._pos[0] = position
        self.native.n_tokens = 1
        return self.native
