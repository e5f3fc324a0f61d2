"""The identity of a resident model: every field that only a reload can change. Pure.

A *requested* identity may say `AUTO` (matches any resident value) and `min_ctx` (a larger resident
context serves it). A *resolved* identity holds the numbers in use, keys all KV memory, and is never
sent back as a request: describe -> load -> describe -> load must not ratchet anything down.
"""

from __future__ import annotations

from typing import Literal

import msgspec

AUTO: Literal["auto"] = "auto"
Auto = Literal["auto"]


class RequestedIdentity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a caller asks for. `num_ctx`, `min_ctx`, `num_batch` in tokens.

    `projector`: the file which it needs for images, a folder's vision graph named from there; "" for none.
    `copies`: other places of the very same file. One that is resident from there serves too: a model that was pulled
    while it was loaded from a cache is not loaded again.
    """

    backend: str
    name: str
    digest: str
    path: str
    runtime_digest: str | Auto = AUTO
    device: str | Auto = AUTO
    num_ctx: int | Auto = AUTO
    min_ctx: int | None = None
    num_batch: int | Auto = AUTO
    gpu_layers: int | Auto = AUTO
    tensor_split: tuple[float, ...] | Auto = AUTO
    flash_attention: bool | Auto = AUTO
    kv_type: str | Auto = AUTO
    template_digest: str | Auto = AUTO
    bos_policy: str | Auto = AUTO
    reasoning_format: str | Auto = AUTO
    adapters: tuple[str, ...] = ()
    projector: str = ""
    copies: tuple[str, ...] = ()


class ResolvedIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What is resident, with the value really used in every field."""

    backend: str
    name: str
    digest: str
    path: str
    runtime_digest: str
    device: str
    num_ctx: int
    num_batch: int
    gpu_layers: int
    tensor_split: tuple[float, ...]
    flash_attention: bool
    kv_type: str
    template_digest: str
    bos_policy: str
    reasoning_format: str
    adapters: tuple[str, ...]
    projector: str = ""


#: Fields that are never `auto`.
GIVEN = ("backend", "name", "digest", "path", "adapters", "projector")
_CONFIGURABLE = (
    "runtime_digest",
    "device",
    "num_batch",
    "gpu_layers",
    "tensor_split",
    "flash_attention",
    "kv_type",
    "template_digest",
    "bos_policy",
    "reasoning_format",
)


def serves(resident: ResolvedIdentity, wanted: RequestedIdentity) -> bool:
    """Whether the resident model may answer the request without a reload (the compatible-subset rule)."""
    if any(getattr(resident, field) != getattr(wanted, field) for field in GIVEN if field != "path"):
        return False
    if resident.path not in (wanted.path, *wanted.copies):
        return False
    if wanted.num_ctx not in (AUTO, resident.num_ctx):
        return False
    if wanted.min_ctx is not None and resident.num_ctx < wanted.min_ctx:
        return False
    return all(getattr(wanted, field) in (AUTO, getattr(resident, field)) for field in _CONFIGURABLE)


def covers(target: RequestedIdentity, wanted: RequestedIdentity) -> bool:
    """Whether what `target` will load is sure to serve `wanted` too, so that both may share one load."""
    if any(getattr(target, name) != getattr(wanted, name) for name in GIVEN):
        return False
    if wanted.min_ctx is not None and not _reaches(target, wanted.min_ctx):
        return False
    fields = (name for name in RequestedIdentity.__struct_fields__ if name != "min_ctx")
    return all(getattr(wanted, name) in (AUTO, getattr(target, name)) for name in fields)


def _reaches(target: RequestedIdentity, least: int) -> bool:
    if target.num_ctx != AUTO:
        return target.num_ctx >= least
    return target.min_ctx is not None and target.min_ctx >= least
