"""A loaded model and its context: parameters in, native pointers out. Frees what it made."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import msgspec

from modeld.engine.contract import Aborted, AbortFlag, LoadRequest
from modeld.engine.llama.devices import place
from modeld.engine.llama.library import Library, set_fields
from modeld.engine.llama.memory import watch_abort
from modeld.engine.processors.topology import engine_threads
from modeld.engine.prompt_lookup import LONGEST
from shared.catalog.identity import AUTO
from shared.errors import ModelLoadFailed, UnsupportedFeature

#: Sequences of the KV memory.
CHAT, FILL = 0, 1
#: Cells of the KV memory for fill-in-the-middle, beside a conversation's own.
FILL_TOKENS = 1024
BATCH_TOKENS = 512
_KV_TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "iq4_nl": 20}
_FLASH = {AUTO: -1, False: 0, True: 1}


class ContextPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Every number of a context, resolved. Tokens. `drafts`: evaluated beside one, at most (see prompt_lookup)."""

    num_ctx: int
    pool: int
    batch: int
    threads: int
    kv_type: str
    fill: bool
    drafts: int = 0


class LoadedContext:
    """Native model, context and adapters. `close` is safe twice."""

    def __init__(self, library: Library, request: LoadRequest, *, dry: bool = False) -> None:
        """`dry` reads the file's metadata and reserves nothing: for measuring, in a process to throw away."""
        self._dry = dry
        self.api: Any = library.api
        self._library = library
        self._request = request
        self._adapters: list[Any] = []
        self.model: Any = None
        self.context: Any = None
        self.plan: ContextPlan | None = None

    def load_model(self, progress: Callable[[float], None], abort: AbortFlag) -> None:
        """Weights (or the vocabulary alone). Raises ModelLoadFailed, UnsupportedFeature, Aborted."""
        api, identity = self.api, self._request.identity
        params = api.llama_model_default_params()

        def on_progress(fraction: float, _: object) -> bool:
            progress(fraction)
            return not abort

        callback = api.llama_progress_callback(on_progress)
        set_fields(params, progress_callback=callback, vocab_only=self._request.vocabulary_only)
        if self._dry:
            set_fields(params, no_alloc=True, load_mode=api.LLAMA_LOAD_MODE_NONE)  # no other mode goes with it
        placement = place(api, identity)
        if placement.layers is not None:
            set_fields(params, n_gpu_layers=placement.layers)
        if placement.handles:
            handles = (ctypes.c_void_p * (len(placement.handles) + 1))(*placement.handles)  # the last one is NULL
            set_fields(params, devices=ctypes.addressof(handles))
        if identity.tensor_split != AUTO and identity.tensor_split:
            split = (ctypes.c_float * api.llama_max_devices())(*identity.tensor_split)
            set_fields(params, tensor_split=split)
        self.model = api.llama_model_load_from_file(os.fsencode(identity.path), params)
        if abort:
            raise Aborted
        if not self.model:
            raise self._failed("weights", "llama.cpp cannot read this file")

    def open_context(self, *, fill: bool, abort: AbortFlag) -> ContextPlan:
        """KV memory and compute buffers. Raises ModelLoadFailed at stage `context`, UnsupportedFeature."""
        api, identity = self.api, self._request.identity
        plan = self._planned(fill)
        params = api.llama_context_default_params()
        set_fields(
            params,
            n_ctx=plan.pool,
            n_batch=plan.batch,
            n_ubatch=min(plan.batch, BATCH_TOKENS),
            n_seq_max=1 + plan.fill,
            n_outputs_max=1 + max(plan.fill, plan.drafts),  # every one costs a row of the vocabulary
            n_threads=plan.threads,
            n_threads_batch=plan.threads,
            kv_unified=True,
            swa_full=False,
            flash_attn_type=_FLASH[identity.flash_attention],
            type_k=_KV_TYPES[plan.kv_type],
            type_v=_KV_TYPES[plan.kv_type],
            no_perf=True,
        )
        self.context = api.llama_init_from_model(self.model, params)
        if not self.context:
            raise self._failed("context", "llama.cpp cannot make a context of this size")
        watch_abort(api, self.context, self._library.abort_callback, abort)
        self._apply_adapters(identity.adapters)
        self.plan = plan
        return plan

    def _planned(self, fill: bool) -> ContextPlan:
        identity, num_ctx = self._request.identity, self._request.num_ctx
        batch = BATCH_TOKENS if identity.num_batch == AUTO else int(identity.num_batch)
        if batch > num_ctx and identity.num_batch != AUTO and not self._dry:  # in a dry run no context is asked for
            raise UnsupportedFeature(feature=f"num_batch {batch} (1 to the context, {num_ctx})")
        kv_type = "f16" if identity.kv_type == AUTO else identity.kv_type
        if kv_type not in _KV_TYPES:
            raise UnsupportedFeature(feature=f"KV type {kv_type} (here: {', '.join(_KV_TYPES)})")
        return ContextPlan(
            num_ctx=num_ctx,
            pool=num_ctx + (FILL_TOKENS if fill else 0),
            batch=max(1, min(batch, num_ctx)),
            threads=engine_threads(self._request.threads),
            kv_type=kv_type,
            fill=fill,
            drafts=min(LONGEST, batch - 1) if self._drafts() else 0,
        )

    def _drafts(self) -> bool:
        """What a wrong draft left must be cut off again: no window, no recurrent state."""
        api, model = self.api, self.model
        recurrent = api.llama_model_is_recurrent(model) or api.llama_model_is_hybrid(model)
        return self._request.speculation and not recurrent and not api.llama_model_n_swa(model)

    def _apply_adapters(self, paths: tuple[str, ...]) -> None:
        api = self.api
        for path in paths:
            adapter = api.llama_adapter_lora_init(self.model, os.fsencode(path))
            if not adapter:
                raise self._failed("weights", f"adapter {os.path.basename(path)} does not fit this model")
            self._adapters.append(adapter)
        if self._adapters:
            count = len(self._adapters)
            pointers = (api.llama_adapter_lora_p_ctypes * count)(*self._adapters)
            scales = (ctypes.c_float * count)(*([1.0] * count))
            if api.llama_set_adapters_lora(self.context, pointers, count, scales) != 0:
                raise self._failed("weights", "the adapters cannot be applied")

    def _failed(self, stage: str, fallback: str) -> ModelLoadFailed:
        reason = self._library.tap.take_reason(fallback)
        return ModelLoadFailed(model=self._request.identity.name, stage=stage, reason=reason)

    def close(self) -> None:
        """Free context, adapters and model, in that order."""
        if self.context:
            self.api.llama_free(self.context)
            self.context = None
        self._adapters.clear()  # freed with the model
        if self.model:
            self.api.llama_model_free(self.model)
            self.model = None
