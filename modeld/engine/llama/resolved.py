"""What was loaded, in the words of the contract: identity with the values in use, template."""

from __future__ import annotations

from modeld.engine.contract import LoadRequest
from modeld.engine.llama.devices import place
from modeld.engine.llama.library import Library
from modeld.engine.llama.model import ContextPlan, LoadedContext
from shared.catalog.identity import AUTO, ResolvedIdentity


def resolved_identity(
    library: Library, request: LoadRequest, plan: ContextPlan | None, digest: str
) -> ResolvedIdentity:
    """`plan` None: the vocabulary alone. `digest` names the build."""
    asked = request.identity
    placement = place(library.api, asked)
    layers = -1 if placement.layers is None else placement.layers
    flash = library.tap.flash_attention
    return ResolvedIdentity(
        backend="llama",
        name=asked.name,
        digest=asked.digest,
        path=asked.path,
        runtime_digest=digest,
        device=placement.device,
        num_ctx=request.num_ctx,
        num_batch=0 if plan is None else plan.batch,
        gpu_layers=layers,
        tensor_split=() if asked.tensor_split == AUTO else tuple(asked.tensor_split),
        flash_attention=bool(flash) if asked.flash_attention == AUTO else bool(asked.flash_attention),
        kv_type="f16" if plan is None else plan.kv_type,
        template_digest="",
        bos_policy="",
        reasoning_format="",
        adapters=asked.adapters,
        projector=asked.projector,
    )


def template_of(native: LoadedContext, request: LoadRequest) -> str:
    """The model's own template; what the catalog read goes before it (a template beside the file)."""
    given = request.model.get("template")
    if isinstance(given, str) and given:
        return given
    text = native.api.llama_model_chat_template(native.model, None)
    return text.decode("utf-8", "replace") if text else ""
