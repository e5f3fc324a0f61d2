"""Sampling under a grammar: what the chain chose is checked, and only a refusal asks the whole vocabulary.

Applying a grammar to every token of a vocabulary costs more than the model itself; most tokens that a
model chooses are allowed, and one token is checked in microseconds.
"""

from __future__ import annotations

import ctypes
from array import array
from typing import Any

_WORDS = 3  # llama_token_data: id, logit, p; four bytes each


class HeldSampler:
    """A grammar in front of a chain that it does not own. Close it."""

    def __init__(self, api: Any, chain: int, grammar: int, size: int) -> None:
        """`size`: tokens of the vocabulary."""
        self._api = api
        self._chain = chain
        self._grammar: int | None = grammar
        self._size = size
        self._data = (api.llama_token_data * size)()
        words = memoryview(self._data).cast("B")
        self._ids = words.cast("i")[::_WORDS]
        self._logits = words.cast("f")[1::_WORDS]
        self._all = memoryview(array("i", range(size)))
        self._many = api.llama_token_data_array()
        self._single = (api.llama_token_data * 1)()
        self._one = api.llama_token_data_array()

    def sample(self, context: Any, index: int) -> int:
        """The next token from the logits of the last evaluation at `index`, accepted by grammar and chain."""
        api = self._api
        token = self._choose(context, index, held=False)
        if not self._allows(token):
            token = self._choose(context, index, held=True)
        api.llama_sampler_accept(self._grammar, token)
        api.llama_sampler_accept(self._chain, token)
        return token

    def _choose(self, context: Any, index: int, *, held: bool) -> int:
        api, many = self._api, self._many
        logits = ctypes.cast(api.llama_get_logits_ith(context, index), ctypes.POINTER(ctypes.c_float * self._size))
        self._logits[:] = memoryview(logits.contents).cast("B").cast("f")
        self._ids[:] = self._all
        many.data, many.size, many.selected, many.sorted = self._data, self._size, -1, False
        if held:
            api.llama_sampler_apply(self._grammar, ctypes.byref(many))
        api.llama_sampler_apply(self._chain, ctypes.byref(many))
        token: int = many.data[many.selected].id
        return token

    def _allows(self, token: int) -> bool:
        one, single = self._one, self._single
        single[0].id, single[0].logit, single[0].p = token, 1.0, 0.0
        one.data, one.size, one.selected, one.sorted = single, 1, -1, False
        self._api.llama_sampler_apply(self._grammar, ctypes.byref(one))
        allowed: bool = single[0].logit > 0
        return allowed

    def close(self) -> None:
        """Free the grammar; safe twice."""
        if self._grammar is not None:
            self._api.llama_sampler_free(self._grammar)
            self._grammar = None
