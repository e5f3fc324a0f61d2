"""Vectors from the resident model: a small context of their own, so that no conversation is disturbed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from modeld.engine.contract import Aborted, AbortFlag
from modeld.engine.llama.library import set_fields
from modeld.engine.llama.memory import watch_abort
from modeld.engine.llama.model import ContextPlan, LoadedContext
from modeld.engine.llama.sampler import Batch
from shared.errors import ContextOverflow, EngineFailed

_UNSPECIFIED, _NONE, _MEAN = -1, 0, 1  # llama_pooling_type
_ABORTED = 2


class Embedder:
    """Made cheap; its context is opened at the first use and kept. Longest text: `BATCH` tokens."""

    BATCH = 512

    def __init__(
        self, api: Any, native: LoadedContext, plan: ContextPlan, abort: AbortFlag, abort_callback: Any
    ) -> None:
        self._api = api
        self._native = native
        self._plan = plan
        self._abort = abort
        self._abort_callback = abort_callback
        self._context: Any = None
        self._batch: Batch | None = None

    def embed(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """One vector a text, L2-normalised. Raises ContextOverflow, Aborted."""
        batch = self._open()
        return [self._one(batch, text) for text in texts]

    def _open(self) -> Batch:
        if self._batch is not None:
            return self._batch
        api = self._api
        params = api.llama_context_default_params()
        set_fields(
            params,
            n_ctx=self.BATCH,
            n_batch=self.BATCH,
            n_ubatch=self.BATCH,
            n_seq_max=1,
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
        self._batch = Batch(api, self.BATCH)
        return self._batch

    def _one(self, batch: Batch, text: Sequence[int]) -> list[float]:
        api, context = self._api, self._context
        if len(text) > self.BATCH:
            raise ContextOverflow(context=self.BATCH, resident=0, additional=len(text))
        if not text:
            return [0.0] * int(api.llama_model_n_embd(self._native.model))
        memory = api.llama_get_memory(context)
        if memory:
            api.llama_memory_clear(memory, False)
        native = batch.fill(text, 0, 0, logits=True, every=True)
        done = api.llama_decode(context, native) if memory else api.llama_encode(context, native)
        if done == _ABORTED or self._abort:
            raise Aborted
        if done != 0:
            raise EngineFailed(reason=f"the embedding could not be computed ({done})")
        pointer = api.llama_get_embeddings_seq(context, 0)
        if not pointer:
            raise EngineFailed(reason="the model gives no embedding")
        vector = pointer[: api.llama_model_n_embd_out(self._native.model)]
        length = math.sqrt(sum(value * value for value in vector))
        return [value / length for value in vector] if length else vector

    def close(self) -> None:
        """Free the context; safe twice."""
        if self._context:
            self._api.llama_free(self._context)
            self._context = None
            self._batch = None
