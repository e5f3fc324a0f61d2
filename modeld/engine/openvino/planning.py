"""What a load request comes to on OpenVINO: the pool, the types, and what must be refused."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from modeld.engine.contract import LoadRequest
from modeld.engine.openvino.blocks import BLOCK
from modeld.engine.openvino.library import CHUNK
from modeld.engine.openvino.pipeline import Plan
from shared.catalog.advertised.fit import KV_TYPES, kv_bytes
from shared.catalog.advertised.servable import refusal
from shared.catalog.entry import entry_from_facts
from shared.catalog.identity import AUTO
from shared.errors import ModelLoadFailed, UnsupportedFeature

#: As the memory plan counts. The runtime's own choice, u8, quantises a block as it grows token by token,
#: so that reused answers differ from prefilled ones (log-probabilities by 0.016; f16 0.003, f32 0.00001).
USUAL_KV = "f16"
_KV = frozenset({"u8", "f16", "bf16", "f32"})
MOST_LANES = 4


def make_plan(request: LoadRequest, threads: int) -> Plan:
    """Plan the cache: one conversation always fits, more as far as the parking budget reaches."""
    asked = request.identity
    kv_type = USUAL_KV if asked.kv_type == AUTO else str(asked.kv_type)
    return Plan(
        device="CPU" if asked.device == AUTO else str(asked.device),
        num_ctx=request.num_ctx,
        lanes=_lanes(request, kv_type),
        block_bytes=_kv_bytes(request, BLOCK, kv_type),
        kv_type=kv_type,
        threads=threads,
        batch=CHUNK if asked.num_batch == AUTO else int(asked.num_batch),
    )


def _lanes(request: LoadRequest, kv_type: str) -> int:
    one = _kv_bytes(request, request.num_ctx, kv_type)
    extra = request.parked_bytes // one if one else 0
    return 1 + min(MOST_LANES - 1, extra)


def _kv_bytes(request: LoadRequest, tokens: int, kv_type: str) -> int:
    """0 for a model that nobody described."""
    try:
        return kv_bytes(entry_from_facts(request.model), tokens, kv_type)
    except msgspec.ValidationError:
        return 0


def refuse_unsupported(request: LoadRequest, devices: Sequence[str]) -> None:
    """An explicit value is used or refused, never changed. Raises UnsupportedFeature, ModelLoadFailed."""
    asked = request.identity
    if asked.device not in (AUTO, *devices):
        raise UnsupportedFeature(feature=f"device {asked.device} (found: {', '.join(devices)})")
    if asked.kv_type != AUTO and (asked.kv_type not in _KV or asked.kv_type not in KV_TYPES):
        raise UnsupportedFeature(feature=f"KV type {asked.kv_type} (here: {', '.join(sorted(_KV))})")
    if asked.num_batch != AUTO and (int(asked.num_batch) < BLOCK or int(asked.num_batch) % BLOCK):
        raise UnsupportedFeature(feature=f"num_batch {asked.num_batch} (here: a multiple of {BLOCK})")
    if asked.adapters:
        raise UnsupportedFeature(feature="adapters (not offered by the OpenVINO engine)")
    if asked.gpu_layers not in (AUTO, 0):
        raise UnsupportedFeature(feature=f"gpu_layers {asked.gpu_layers} (here: 0; choose a device instead)")
    if asked.tensor_split not in (AUTO, ()):
        raise UnsupportedFeature(feature="tensor_split (here: none; choose a device instead)")
    if asked.flash_attention not in (AUTO, True):
        raise UnsupportedFeature(feature="flash_attention off (here: always on)")
    _refuse_model(request)


def _refuse_model(request: LoadRequest) -> None:
    try:
        facts = entry_from_facts(request.model)
    except msgspec.ValidationError:
        return  # nothing is known of it: the loader will tell
    reason = refusal(facts, "openvino", shards=max(1, len(facts.shards)))
    if reason:
        raise ModelLoadFailed(model=request.identity.name, stage="header", reason=reason)
