"""Vectors from the resident model: a small context of their own, so that no conversation is disturbed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from modeld.engine.contract import Aborted, AbortFlag
from modeld.engine.llama.library import set_fields
from modeld.engine.llama.memory import watch_abort
from modeld.engine.llama.model import ContextPlan, LoadedContext
from shared.errors import ContextOverflow, EngineFailed

_UNSPECIFIED, _NONE, _MEAN = -1, 0, 1  # llama_pooling_type
_ABORTED = 2


class Embedder:
    """Made cheap; its context is opened at the first use and kept. Longest text: `BATCH` tokens."""

    BATCH = 512
    #: Texts in one evaluation.
    TEXTS = 16

    def __init__(
        self, api: Any, native: LoadedContext, plan: ContextPlan, abort: AbortFlag, abort_callback: Any
    ) -> None:
        self._api = api
        self._native = native
        self._plan = plan
        self._abort = abort
        self._abort_callback = abort_callback
        self._context: Any = None
        self._batch: Any = None

    def embed(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Compute one vector a text, L2-normalised; texts share evaluations. Raises ContextOverflow, Aborted."""
        for text in texts:
            if len(text) > self.BATCH:
                raise ContextOverflow(context=self.BATCH, resident=0, additional=len(text))
        self._open()
        vectors = [[0.0] * int(self._api.llama_model_n_embd_out(self._native.model)) for _ in texts]
        for numbers in packed([len(text) for text in texts], self.BATCH, self.TEXTS):
            self._evaluate([texts[number] for number in numbers])
            for sequence, number in enumerate(numbers):
                vectors[number] = self._vector(sequence)
        return vectors

    def _open(self) -> None:
        if self._context:
            return
        api = self._api
        params = api.llama_context_default_params()
        set_fields(
            params,
            n_ctx=self.BATCH,
            n_batch=self.BATCH,
            n_ubatch=self.BATCH,
            n_seq_max=self.TEXTS,
            kv_unified=True,
            n_threads=self._plan.threads,
            n_threads_batch=self._plan.threads,
            embeddings=True,
            pooling_type=_UNSPECIFIED,
            no_perf=True,
        )
        context = api.llama_init_from_model(self._native.model, params)
        if context and api.llama_pooling_type(context) == _NONE:
            api.llama_free(context)
            set_fields(params, pooling_type=_MEAN)  # a chat model names no pooling of its own
            context = api.llama_init_from_model(self._native.model, params)
        if not context:
            raise EngineFailed(reason="llama.cpp cannot make a context for embeddings")
        watch_abort(api, context, self._abort_callback, self._abort)
        self._context = context
        self._batch = api.llama_batch_init(self.BATCH, 0, 1)

    def _evaluate(self, texts: Sequence[Sequence[int]]) -> None:
        """Each text as a sequence of its own, all in one batch."""
        api, context, batch = self._api, self._context, self._batch
        at = 0
        for sequence, text in enumerate(texts):
            for position, token in enumerate(text):
                batch.token[at], batch.pos[at], batch.n_seq_id[at] = token, position, 1
                batch.seq_id[at][0], batch.logits[at] = sequence, True
                at += 1
        batch.n_tokens = at
        memory = api.llama_get_memory(context)
        if memory:
            api.llama_memory_clear(memory, False)
        if self._abort:
            raise Aborted
        done = api.llama_decode(context, batch) if memory else api.llama_encode(context, batch)
        if done == _ABORTED or self._abort:
            raise Aborted
        if done != 0:
            raise EngineFailed(reason=f"the embedding could not be computed ({done})")

    def _vector(self, sequence: int) -> list[float]:
        api = self._api
        pointer = api.llama_get_embeddings_seq(self._context, sequence)
        if not pointer:
            raise EngineFailed(reason="the model gives no embedding")
        vector: list[float] = pointer[: api.llama_model_n_embd_out(self._native.model)]
        length = math.sqrt(sum(value * value for value in vector))
        return [value / length for value in vector] if length else vector

    def close(self) -> None:
        """Free the context; safe twice."""
        if self._context:
            self._api.llama_free(self._context)
            self._context = None
        if self._batch is not None:
            self._api.llama_batch_free(self._batch)
            self._batch = None


def packed(sizes: Sequence[int], most_tokens: int, most_texts: int) -> list[list[int]]:
    """Which texts are evaluated together, by their numbers, in order. Empty ones are left out."""
    batches: list[list[int]] = []
    left = 0
    for number, size in enumerate(sizes):
        if size == 0:
            continue
        if not batches or size > left or len(batches[-1]) == most_texts:
            batches.append([])
            left = most_tokens
        batches[-1].append(number)
        left -= size
    return batches
