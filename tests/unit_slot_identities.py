"""Identities for tests of the slot and its queue."""

from __future__ import annotations

from typing import Any

from shared.catalog.identity import RequestedIdentity, ResolvedIdentity


def asked(name: str = "a", **fields: Any) -> RequestedIdentity:
    return RequestedIdentity(backend="llama", name=name, digest=f"d-{name}", path=f"/m/{name}", **fields)


def resolved(name: str = "a", num_ctx: int = 4096) -> ResolvedIdentity:
    return ResolvedIdentity(
        backend="llama",
        name=name,
        digest=f"d-{name}",
        path=f"/m/{name}",
        runtime_digest="r",
        device="CPU",
        num_ctx=num_ctx,
        num_batch=512,
        gpu_layers=0,
        tensor_split=(),
        flash_attention=False,
        kv_type="f16",
        template_digest="t",
        bos_policy="b",
        reasoning_format="",
        adapters=(),
    )
