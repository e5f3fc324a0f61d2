"""Builds the requested identity from a model's entry and the caller's options. Pure."""

from __future__ import annotations

import msgspec

from modeld.slot.core.state import SlotState
from shared.catalog.advertised.servable import served_by, supports_images
from shared.catalog.entry import ModelEntry
from shared.catalog.identity import AUTO, RequestedIdentity, ResolvedIdentity
from shared.catalog.multi_graph import projector_path
from shared.diagnosis.remedy import install_command
from shared.errors import BackendMismatch, BackendUnavailable, ModelLoadFailed, SlotGenerationStale
from shared.protocol.api import ActiveModel, Expect, LoadConfig, Sampling
from shared.settings import Settings


def identity_of(entry: ModelEntry, config: LoadConfig, backend: str) -> RequestedIdentity:
    """What `config` asks of the model; whatever it leaves out is `auto`."""

    def asked(value: object) -> object:
        return AUTO if value is None else value

    fields = {
        "num_ctx": asked(config.num_ctx),
        "num_batch": asked(config.num_batch),
        "gpu_layers": asked(config.gpu_layers),
        "device": asked(config.device),
        "flash_attention": asked(config.flash_attention),
        "kv_type": asked(config.kv_type),
        "tensor_split": AUTO if config.tensor_split is None else tuple(config.tensor_split),
    }
    return RequestedIdentity(
        backend=backend,
        name=entry.name,
        digest=entry.digest,
        path=entry.path,
        copies=entry.copies,
        min_ctx=config.min_ctx,
        adapters=tuple(dict.fromkeys((*entry.adapters, *config.adapters))),
        projector=projector_path(entry) if supports_images(entry, backend) else "",
        **fields,  # type: ignore[arg-type]
    )


def merged(config: LoadConfig, kept: LoadConfig) -> LoadConfig:
    """The caller's options over the settings kept for the model."""
    filled = {
        name: getattr(kept, name)
        for name in LoadConfig.__struct_fields__
        if not getattr(config, name) and getattr(config, name) not in (0, False)
    }
    return msgspec.structs.replace(config, **filled)


def require_servable(entry: ModelEntry, backend: str) -> None:
    """Raises BackendMismatch, BackendUnavailable or ModelLoadFailed (a bad file) when this daemon cannot run it."""
    if backend == "none":
        raise BackendUnavailable(
            backend="none",
            reason="this modeld runs without an engine",
            hint=f"install one and restart: `{install_command('openvino')}`, or the same with [llama]",
        )
    if not served_by(backend, entry.backends):
        if entry.backends:
            raise BackendMismatch(requested=" or ".join(entry.backends), serving=backend)
        if entry.problem:
            raise ModelLoadFailed(model=entry.name, stage="header", reason=entry.problem)
        reason = entry.reasons.get(backend, "it is not servable")
        raise BackendMismatch(f"{entry.name} cannot be run: {reason}", requested="", serving=backend)


def bounded(params: Sampling, num_ctx: int, settings: Settings) -> Sampling:
    """The turn's options with a bound on its length and whether loops end it, where its client does not say.

    A small model can repeat itself until its window is full, and then the conversation cannot go on: such a turn
    ends with `length` after half of the window, or after `turn_tokens` if that is less. A client that wants more
    says so.
    """
    if params.loop_stop is None:
        params = msgspec.structs.replace(params, loop_stop=settings.loop_stop)
    if params.max_tokens is not None or not settings.turn_tokens:
        return params
    return msgspec.structs.replace(params, max_tokens=max(min(settings.turn_tokens, num_ctx // 2), 1))


def footprint_key(target: RequestedIdentity) -> str:
    """Under which a measured footprint is kept: the model and how it is loaded, its context apart."""
    names = ("backend", "digest", "num_batch", "gpu_layers", "flash_attention", "kv_type", "adapters", "projector")
    return msgspec.json.encode({name: getattr(target, name) for name in names}).decode("ascii")


def active_model(
    identity: ResolvedIdentity, capabilities: dict[str, object], measured_bytes: int | None
) -> ActiveModel:
    """The wire form of the resident model."""
    fields = msgspec.structs.asdict(identity)
    fields["tensor_split"] = list(identity.tensor_split)
    fields["adapters"] = list(identity.adapters)
    return ActiveModel(**fields, reserved_bytes=measured_bytes, capabilities=capabilities)


def require_expected(state: SlotState, expect: Expect | None) -> None:
    """Compare-and-swap: the slot must be where its caller saw it. Raises SlotGenerationStale."""
    if expect is None:
        return
    if expect.generation is not None and expect.generation != state.generation:
        raise SlotGenerationStale(expected=expect.generation, actual=state.generation)
    active = state.active.name if state.active is not None else ""
    if expect.model is not None and expect.model != active:
        message = f"{active or 'nothing'} is active, not {expect.model or 'nothing'}; ask for the status again"
        raise SlotGenerationStale(message, expected=expect.model, actual=active)
