"""Which backend can serve which model: one table by format, architecture and tensor type (pure).

llama: the generation and embedding architectures that llama.cpp (as of the pinned binding) builds.
openvino: IR folders; of GGUF files the three families its reader builds a graph for (openvino.genai
`gguf_utils`, 2026.x), with tensor types that it reads or that are requantised for it. Both engines compare again when
they load.
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.backends import BACKENDS, OUTSIDE
from shared.catalog.advertised.gguf_exactness import EXACT, REQUANTISED
from shared.catalog.entry import Facts

# fmt: off
LLAMA_ARCHITECTURES = frozenset(
    {
        "afmoe", "apertus", "arcee", "arctic", "arwkv7", "baichuan", "bailingmoe", "bailingmoe2", "bert",
        "bitnet", "bloom", "chameleon", "chatglm", "codeshell", "cogvlm", "cohere2", "command-r", "dbrx",
        "deci", "deepseek", "deepseek2", "deepseek2-ocr", "dots1", "dream", "ernie4_5", "ernie4_5-moe",
        "eurobert", "exaone", "exaone-moe", "exaone4", "falcon", "falcon-h1", "gemma", "gemma-embedding",
        "gemma2", "gemma3", "gemma3n", "gemma4", "glm-dsa", "glm4", "glm4moe", "gpt-oss", "gpt2", "gptneox",
        "granite", "granitehybrid", "granitemoe", "grok", "grovemoe", "hunyuan-dense", "hunyuan-moe",
        "hunyuan_vl", "internlm2", "jais", "jais2", "jamba", "jina-bert-v2", "jina-bert-v3", "kimi-linear",
        "lfm2", "lfm2moe", "llada", "llada-moe", "llama", "llama-embed", "llama4", "maincoder", "mamba",
        "mamba2", "mimo2", "minicpm", "minicpm3", "minimax-m2", "mistral3", "mistral4", "modern-bert", "mpt",
        "nemotron", "nemotron_h", "nemotron_h_moe", "neo-bert", "nomic-bert", "nomic-bert-moe", "olmo", "olmo2",
        "olmoe", "openelm", "orion", "paddleocr", "pangu-embedded", "phi2", "phi3", "phimoe", "plamo", "plamo2",
        "plamo3", "plm", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen35", "qwen35moe", "qwen3moe",
        "qwen3next", "qwen3vl", "qwen3vlmoe", "refact", "rnd1", "rwkv6", "rwkv6qwen2", "rwkv7", "seed_oss",
        "smallthinker", "smollm3", "stablelm", "starcoder", "starcoder2", "step35", "t5", "t5encoder", "xverse",
    }
)
# fmt: on

#: What is no model by itself.
_PARTS = {
    "projector": "this is a projector, which belongs beside a model",
    "adapter": "this is an adapter, which belongs beside a model",
    "other": "this file holds no model, but something that belongs to one",
}
OPENVINO_GGUF_ARCHITECTURES = frozenset({"llama", "qwen2", "qwen3"})
#: How text is split before byte-pair encoding: for others the reader (2026.4) falls back to its default
#: rule, which is llama.cpp's `default`, and would cut text differently than the model learnt it.
OPENVINO_GGUF_SPLITS = frozenset({"default", "qwen2", "smollm"})
OPENVINO_GGUF_TYPES = EXACT | REQUANTISED.keys()


def refusal(facts: Facts, backend: str, *, shards: int = 1) -> str:
    """Why `backend` cannot serve the model, or "" when it can."""
    if facts.unusable:
        return facts.unusable
    if facts.kind != "model":
        return _PARTS[facts.kind]
    if backend == "llama":
        return _llama(facts)
    if backend == "openvino":
        return _openvino(facts, shards)
    return f"the {backend} backend runs no models"


def served_by(backend: str, able: Sequence[str]) -> bool:
    """Whether the backend is among those that are `able` to serve a model."""
    return backend in able or (backend == OUTSIDE and bool(able))


def supports_images(facts: Facts, backend: str) -> bool:
    """Whether the model takes images when `backend` serves it."""
    return facts.vision and backend in BACKENDS and BACKENDS[backend].images == facts.format


def backends(facts: Facts, *, shards: int = 1) -> tuple[tuple[str, ...], dict[str, str]]:
    """The backends that can serve it, and for the others the reason."""
    reasons = {backend: refusal(facts, backend, shards=shards) for backend in BACKENDS}
    return (
        tuple(backend for backend in BACKENDS if not reasons[backend]),
        {backend: reason for backend, reason in reasons.items() if reason},
    )


def _llama(facts: Facts) -> str:
    if facts.format != "gguf":
        return "llama.cpp reads GGUF files only"
    if facts.architecture not in LLAMA_ARCHITECTURES:
        return f"llama.cpp of this version does not know the architecture {facts.architecture}"
    return ""


def _openvino(facts: Facts, shards: int) -> str:
    if facts.format == "openvino":
        return ""
    if shards > 1:
        return "OpenVINO's GGUF reader takes single files only"
    if facts.architecture not in OPENVINO_GGUF_ARCHITECTURES:
        return f"OpenVINO's GGUF reader does not know the architecture {facts.architecture}"
    odd = sorted(set(facts.tensor_types) - OPENVINO_GGUF_TYPES)
    if odd:
        return f"OpenVINO's GGUF reader does not unpack {', '.join(odd)}"
    if facts.tokenizer not in ("", "gpt2"):
        return f"OpenVINO's GGUF reader knows byte-level BPE vocabularies only, not {facts.tokenizer}"
    if facts.tokenizer_pre and facts.tokenizer_pre not in OPENVINO_GGUF_SPLITS:
        return f"OpenVINO's GGUF reader does not split text the way this model needs ({facts.tokenizer_pre})"
    if facts.embedding_only:
        return "OpenVINO's GGUF reader builds text generation only"
    return ""
