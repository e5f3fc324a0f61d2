"""What is known of one model: the facts its file states, and the entry the library lists.

`Facts` come from one file or folder; `ModelEntry` adds where it lies, its name, its parts and who can
serve it. Everything is a value; nothing here touches a disk.

The *digest* is a fingerprint that is there at once: SHA-256 over the size, the first 64 KiB, eight
samples of 4 KiB spread over the rest and the last 4 KiB of every weights file (whole files up to
1 MiB), written `fp1-<32 hex>`. It is stable over renaming, touching and copying, and is what model
identities carry. `sha256` is the full checksum, filled in later, once per machine; it never replaces
the digest (an identity that changed in the background would force a reload). Two different files with
one fingerprint are distinguished once both checksums are known.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Kind = Literal["model", "projector", "adapter", "other"]
Format = Literal["gguf", "openvino"]
Source = Literal["store", "folder", "lmstudio", "huggingface", "ollama"]


class KvSpan(msgspec.Struct, frozen=True, array_like=True):
    """`layers` consecutive layers alike: K and V elements a token and layer, window in tokens (0: none)."""

    layers: int
    k: int
    v: int
    window: int = 0


class SpecialTokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Token ids (None: not stated), their texts, and whether the tokenizer adds BOS / EOS by itself."""

    bos: int | None = None
    eos: int | None = None
    eot: int | None = None
    eom: int | None = None
    pad: int | None = None
    unk: int | None = None
    add_bos: bool | None = None
    add_eos: bool | None = None
    texts: dict[int, str] = {}
    extra_eos: tuple[int, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one model file or folder says about itself.

    Counts in elements or tokens, sizes in bytes; 0 or "" where nothing is stated. `kv` describes the
    attention memory layer by layer in runs, `state_bytes` the fixed memory of recurrent layers.
    `fim` holds the prefix, suffix and middle token ids, `sampling` its recommended settings. `takes_rows`: prompts go
    into it as rows of numbers (an OpenVINO folder of several graphs). `complete` is false while only the first keys
    have been read; `unusable` says why no engine could run it, whatever it is.
    """

    kind: Kind = "model"
    format: Format = "gguf"
    title: str = ""
    architecture: str = ""
    parameters: int = 0
    quantization: str = ""
    context_train: int = 0
    n_layers: int = 0
    n_embd: int = 0
    n_heads: int = 0
    n_kv_heads: int = 0
    head_dim_k: int = 0
    head_dim_v: int = 0
    vocab_size: int = 0
    sliding_window: int = 0
    kv: tuple[KvSpan, ...] = ()
    state_bytes: int = 0
    weights_bytes: int = 0
    tensor_types: dict[str, int] = {}
    template: str = ""
    template_digest: str = ""
    templates: tuple[str, ...] = ()
    tokens: SpecialTokens = SpecialTokens()
    tokenizer: str = ""
    tokenizer_pre: str = ""
    fim: tuple[int, int, int] | None = None
    tools: bool = False
    thinking: bool = False
    vision: bool = False
    embedding_only: bool = False
    takes_rows: bool = False
    sampling: dict[str, float] = {}
    split: tuple[int, int] | None = None
    complete: bool = False
    unusable: str = ""


class ModelEntry(Facts, frozen=True, kw_only=True, omit_defaults=True):
    """One model of the library.

    `path` is the file an engine opens (of a split model the first shard, of OpenVINO the folder); `shards` all weight
    files in order, `projector` the vision part, `adapters` LoRA files that belong to it (of an Ollama tag),
    `available_adapters` those of the same architecture beside it, `copies` other places with the same content,
    `aliases` other names it answers to (those it had before, further tags of the same weights). `backends` can serve
    it; `reasons` says for the others why not. `source` names the place it was found in, `own` whether we wrote it.
    `problem` is "" or why it cannot be used.
    """

    name: str
    path: str
    source: Source
    size_bytes: int = 0
    digest: str = ""
    sha256: str = ""
    shards: tuple[str, ...] = ()
    projector: str = ""
    adapters: tuple[str, ...] = ()
    available_adapters: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    reasons: dict[str, str] = {}
    own: bool = False
    problem: str = ""

    @property
    def has_template(self) -> bool:
        """Whether the file brings a chat template."""
        return bool(self.template)

    @property
    def place(self) -> str:
        """Where it lies, as a person knows it: the path of an Ollama blob says nothing."""
        return f"{self.name} (Ollama)" if self.source == "ollama" else self.path

    @property
    def parts(self) -> tuple[str, ...]:
        """Every file that makes the model: shards (or the folder), the projector, adapters of its own."""
        return (self.shards or (self.path,)) + ((self.projector,) if self.projector else ()) + self.adapters

    def facts(self) -> dict[str, Any]:
        """Plain values for the worker (`Load.model`); `entry_from_facts` reads them back."""
        plain: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return plain


def entry_from_facts(plain: dict[str, Any]) -> ModelEntry:
    """The entry that `ModelEntry.facts` was made from. Raises msgspec.ValidationError."""
    return msgspec.convert(plain, ModelEntry, strict=False)
