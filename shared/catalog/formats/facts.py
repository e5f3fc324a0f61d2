"""From a GGUF header to the facts of a model (pure)."""

from __future__ import annotations

import hashlib
from typing import Any

from shared.catalog.entry import Facts, SpecialTokens
from shared.catalog.formats import ggml
from shared.catalog.formats.geometry import kv_spans, state_bytes
from shared.catalog.formats.gguf import FIM_TEXTS, TOKENS, Header
from shared.catalog.formats.sampling_defaults import from_gguf
from shared.catalog.template_detection import detect

_FIM_KEYS = ("fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id")
_OLD_FIM_KEYS = ("prefix_token_id", "suffix_token_id", "middle_token_id")

#: Architectures that give vectors and never text.
EMBEDDING_ARCHITECTURES = frozenset(
    {
        "bert",
        "modern-bert",
        "nomic-bert",
        "nomic-bert-moe",
        "neo-bert",
        "jina-bert-v2",
        "jina-bert-v3",
        "eurobert",
        "gemma-embedding",
        "llama-embed",
        "t5encoder",
        "pangu-embedded-bert",
    }
)
#: No count is larger: what a hostile header adds up to still has to go through the cache and the wire.
MOST = 1 << 53


def facts_of(header: Header) -> Facts:
    """What the header says about its model. Never raises: what is odd is left out or marked unusable."""
    meta = header.metadata
    architecture = _text(meta, "general.architecture")
    kind = _kind(meta, architecture)
    prefix = f"{architecture}."
    heads = _first(meta.get(prefix + "attention.head_count"))
    n_embd = _number(meta, prefix + "embedding_length")
    default_dim = n_embd // heads if heads else 0
    template = _text(meta, "tokenizer.chat_template")
    marks = detect(template)
    table = header.tensors
    return Facts(
        kind=kind,
        title=_text(meta, "general.name")[:200],
        architecture=architecture,
        parameters=min(table.parameters, MOST) if table else _number(meta, "general.parameter_count"),
        quantization=_quantization(header),
        context_train=_number(meta, prefix + "context_length"),
        n_layers=_number(meta, prefix + "block_count"),
        n_embd=_number(meta, "clip.vision.projection_dim") if kind == "projector" else n_embd,
        n_heads=heads,
        n_kv_heads=_first(meta.get(prefix + "attention.head_count_kv")) or heads,
        head_dim_k=_number(meta, prefix + "attention.key_length") or default_dim,
        head_dim_v=_number(meta, prefix + "attention.value_length") or default_dim,
        vocab_size=_vocabulary(header, prefix),
        sliding_window=_number(meta, prefix + "attention.sliding_window"),
        kv=kv_spans(header, architecture),
        state_bytes=state_bytes(header, architecture),
        weights_bytes=min(table.data_bytes, MOST) if table else 0,
        tensor_types={name: min(size, MOST) for name, size in table.bytes_by_type.items()} if table else {},
        template=template,
        template_digest=digest_text(template),
        templates=tuple(sorted(k[24:] for k in meta if k.startswith("tokenizer.chat_template."))),
        tokens=_special(header),
        tokenizer=_text(meta, "tokenizer.ggml.model"),
        tokenizer_pre=_text(meta, "tokenizer.ggml.pre"),
        fim=_fim(header),
        tools=marks.tools,
        thinking=marks.thinking,
        embedding_only=_embedding_only(meta, architecture),
        sampling=from_gguf(meta),
        split=_split(meta),
        complete=header.complete,
        unusable=_unusable(header, architecture, kind),
    )


def digest_text(text: str) -> str:
    """32 hex of the SHA-256 of a text, or "" for none."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32] if text else ""


def _kind(meta: dict[str, Any], architecture: str) -> Any:
    general = _text(meta, "general.type")
    if architecture == "clip" or general == "mmproj":
        return "projector"
    if general == "adapter" or "adapter.type" in meta:
        return "adapter"
    return "model" if general in ("", "model") else "other"


def _quantization(header: Header) -> str:
    stated = header.metadata.get("general.file_type")
    if isinstance(stated, int) and stated & 1023 in ggml.FILE_TYPES:
        return ggml.FILE_TYPES[stated & 1023]  # bit 10 says that it was guessed
    if header.tensors is None or not header.tensors.bytes_by_type:
        return ""
    return max(header.tensors.bytes_by_type.items(), key=lambda item: (item[1], item[0]))[0]


def _vocabulary(header: Header, prefix: str) -> int:
    counted = header.lengths.get(TOKENS, 0)
    return counted or _number(header.metadata, prefix + "vocab_size")


def _special(header: Header) -> SpecialTokens:
    meta = header.metadata
    stated: dict[str, Any] = {}
    for name, key in _ID_KEYS.items():
        value = meta.get(f"tokenizer.ggml.{key}_token_id")
        if _is_id(value):
            stated[name] = value
    for name in ("add_bos", "add_eos"):
        value = meta.get(f"tokenizer.ggml.{name}_token")
        if isinstance(value, bool):
            stated[name] = value
    return SpecialTokens(texts=header.token_texts, **stated)


_ID_KEYS = {"bos": "bos", "eos": "eos", "eot": "eot", "eom": "eom", "pad": "padding", "unk": "unknown"}


def _is_id(value: Any) -> bool:
    # llama.cpp writes "none" as 0xffffffff
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 0xFFFFFFFF


def _fim(header: Header) -> tuple[int, int, int] | None:
    for keys in (_FIM_KEYS, _OLD_FIM_KEYS):
        ids = [header.metadata.get(f"tokenizer.ggml.{key}") for key in keys]
        if all(_is_id(value) for value in ids):
            return (ids[0], ids[1], ids[2])  # type: ignore[return-value]
    edge = header.edge_tokens
    for pre, suf, mid in FIM_TEXTS:
        if pre in edge and suf in edge and mid in edge:
            return (edge[pre], edge[suf], edge[mid])
    return None


def _embedding_only(meta: dict[str, Any], architecture: str) -> bool:
    # a pooling type other than "none" (0) is written by converters for embedding and rerank models only
    return architecture in EMBEDDING_ARCHITECTURES or _number(meta, f"{architecture}.pooling_type") > 0


def _split(meta: dict[str, Any]) -> tuple[int, int] | None:
    number, count = meta.get("split.no"), meta.get("split.count")
    if _is_id(number) and _is_id(count) and count > 1:  # type: ignore[operator]
        return (int(number), int(count))  # type: ignore[arg-type]
    return None


def _unusable(header: Header, architecture: str, kind: str) -> str:
    if not architecture:
        return "the file names no architecture"
    table = header.tensors
    if table is None:
        return ""
    if table.unknown_types:
        listed = ", ".join(str(kind) for kind in table.unknown_types)
        return f"it uses tensor types this version does not know ({listed})"
    if not table.count and kind == "model" and _split(header.metadata) is None:
        return "it holds a vocabulary and no weights"
    return ""


def _text(meta: dict[str, Any], key: str) -> str:
    value = meta.get(key)
    return value if isinstance(value, str) else ""


def _number(meta: dict[str, Any], key: str) -> int:
    value = meta.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 48:
        return 0
    return value


def _first(value: Any) -> int:
    """A number, or the largest of a per-layer list (layers without attention say 0)."""
    if isinstance(value, list):
        return max((item for item in value if isinstance(item, int) and item > 0), default=0)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 32 else 0
