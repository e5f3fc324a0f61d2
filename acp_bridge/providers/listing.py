"""The models of an endpoint as the picker shows them: names, windows and abilities in each server's words. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from acp_bridge.models.picker import RemoteModel
from shared.text.shown import NAME_MOST

if TYPE_CHECKING:
    from acp_bridge.providers.config import Provider

#: Where a list states the window in tokens, the one in use before the longest possible: vLLM, SGLang; Ray Serve
#: (under `metadata`); llama-server (under `meta`); LM Studio; OpenRouter (its own provider's first), Together, Groq,
#: Mistral, Gemini's and LiteLLM's lists. `n_ctx_train` is what a file was trained for, not what runs.
_WINDOWS = (
    ("max_model_len",),
    ("metadata", "max_request_context_length"),
    ("metadata", "max_model_len"),
    ("meta", "n_ctx"),
    ("loaded_context_length",),
    ("top_provider", "context_length"),
    ("context_length",),
    ("context_window",),
    ("max_context_length",),
    ("max_request_context_length",),
    ("max_input_tokens",),
    ("model_info", "max_input_tokens"),
)
#: Who says in `owned_by` that the window stands elsewhere, and where.
LLAMA_SERVER, OLLAMA, LM_STUDIO = "llamacpp", "library", "organization_owner"
_EMBEDDING = frozenset({"embedding", "embeddings"})


def listed_entries(body: Any) -> list[dict[str, Any]]:
    """The models of a list that have a name (of bearable length); whatever else the body holds is none."""
    data = body.get("data") if isinstance(body, dict) else body
    entries = data if isinstance(data, list) else []
    named = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    return [entry for entry in named if 0 < len(entry["id"]) <= NAME_MOST]


def listed_models(
    provider: Provider,
    entries: Iterable[dict[str, Any]],
    more: Mapping[str, dict[str, Any]],
    clean: Callable[[str], str],
) -> list[RemoteModel]:
    """What a list offers under the provider's rules, each once. `more`: what other routes say, by name."""
    served = {clean(entry["id"]): {**entry, **more.get(entry["id"], {})} for entry in entries}
    return [
        _model(provider, name, one, entry)
        for one, entry in served.items()
        if provider.offers(one)
        for name in _names(provider, one)
    ]


def named_models(provider: Provider) -> list[RemoteModel]:
    """The models that the config file names, which are not asked for."""
    return [_model(provider, name, provider.alias.get(name, name), {}) for name in provider.models]


def _names(provider: Provider, served: str) -> list[str]:
    """What a model is called here: its aliases, else its own name, unless that is the alias of another."""
    aliases = [alias for alias, name in provider.alias.items() if name == served]
    return aliases or ([] if served in provider.alias else [served])


def _model(provider: Provider, name: str, served: str, entry: Mapping[str, Any]) -> RemoteModel:
    facts = provider.facts(served)
    return RemoteModel(
        id=f"{provider.name}/{name}",
        name=short_name(name),
        provider=provider.name,
        served=served,
        context=facts.context or window_of(entry),
        vision=supports_images(entry) if facts.vision is None else facts.vision,
        thinking=("effort" if thinks(entry) else "") if facts.thinking is None else facts.thinking,
        fills=bool(facts.inline_completion),
        embedding_only=str(entry.get("type", "")).lower() in _EMBEDDING,
    )


def short_name(served: str) -> str:
    """A name as people read it: llama-server gives the path of its file."""
    if not re.match(r"[/\\]|[A-Za-z]:[/\\]", served):
        return served
    return re.split(r"[/\\]", served)[-1].removesuffix(".gguf") or served


def window_of(entry: Mapping[str, Any]) -> int:
    """Tokens, 0 where nothing usable stands."""
    for path in _WINDOWS:
        found: Any = entry
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        if isinstance(found, int) and not isinstance(found, bool) and found > 0:
            return found
    return 0


def supports_images(entry: Mapping[str, Any]) -> bool:
    """Whether a list says that a model takes images (OpenRouter, LM Studio, Mistral, Ollama, llama-server)."""
    architecture = entry.get("architecture")
    takes = architecture.get("input_modalities") if isinstance(architecture, Mapping) else None
    can = entry.get("capabilities")
    flagged = isinstance(can, Mapping) and can.get("vision") is True
    named = isinstance(can, list) and any(one in can for one in ("vision", "multimodal"))
    return flagged or named or entry.get("type") == "vlm" or (isinstance(takes, list) and "image" in takes)


def thinks(entry: Mapping[str, Any]) -> bool:
    """Whether a list says that a model takes `reasoning_effort` (OpenRouter, Ollama)."""
    taken, can = entry.get("supported_parameters"), entry.get("capabilities")
    return (isinstance(taken, list) and "reasoning" in taken) or (isinstance(can, list) and "thinking" in can)


# --- other routes -------------------------------------------------------------------------------


def look_further(entries: Iterable[Mapping[str, Any]]) -> str:
    """Whose own routes tell the windows that a list leaves out: one of the three above, "" where none is known."""
    for entry in entries:
        owner = entry.get("owned_by")
        if owner in (LLAMA_SERVER, OLLAMA, LM_STUDIO) and not window_of(entry):
            return str(owner)
    return ""


def from_props(entries: Iterable[Mapping[str, Any]], props: Any) -> dict[str, dict[str, Any]]:
    """llama-server's `/props`: the window of one conversation, which is a part of all its memory."""
    settings = props.get("default_generation_settings") if isinstance(props, dict) else None
    window = settings.get("n_ctx") if isinstance(settings, dict) else None
    takes = props.get("modalities") if isinstance(props, dict) else None
    facts: dict[str, Any] = {"max_model_len": window}
    if isinstance(takes, dict) and takes.get("vision") is True:
        facts["capabilities"] = ["vision"]
    return {str(entry["id"]): facts for entry in entries}


def from_lm_studio(body: Any) -> dict[str, dict[str, Any]]:
    """LM Studio's `/api/v0/models`: the loaded window, the longest, and the type, by name."""
    kept = ("loaded_context_length", "max_context_length", "type", "capabilities")
    return {entry["id"]: {name: entry[name] for name in kept if name in entry} for entry in listed_entries(body)}


def from_ollama_show(body: Any) -> dict[str, Any]:
    """Ollama's `/api/show`: what a model can do, and `num_ctx` where its file sets one."""
    if not isinstance(body, dict):
        return {}
    facts: dict[str, Any] = {}
    can = body.get("capabilities")
    if isinstance(can, list):
        facts["capabilities"] = can
        facts["type"] = "embedding" if "embedding" in can and "completion" not in can else ""
    told = re.search(r"(?m)^num_ctx\s+(\d{1,9})\s*$", str(body.get("parameters", "")))
    if told is not None:
        facts["max_model_len"] = int(told[1])
    return facts


def from_ollama_ps(body: Any) -> dict[str, dict[str, Any]]:
    """Ollama's `/api/ps`: the window that a loaded model really has, by name."""
    loaded = body.get("models") if isinstance(body, dict) else None
    entries = [one for one in loaded if isinstance(one, dict)] if isinstance(loaded, list) else []
    windows = {str(one.get("name")): one.get("context_length") for one in entries}
    return {name: {"max_model_len": window} for name, window in windows.items() if window}
