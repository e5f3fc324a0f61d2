"""Ollama's store: manifests that name blobs. What a tag is called, and what it means besides its weights (pure)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shared.text.nesting import decode_json

#: A folder with both in it is a store of Ollama's, wherever it lies.
FOLDERS = frozenset({"manifests", "blobs"})
MAX_MANIFEST = 1024 * 1024
_ROLES = {"model": "model", "projector": "projector", "adapter": "adapter"}
#: The tag and the owner that Ollama leaves out.
_USUAL_TAG, _USUAL_OWNER = "latest", "library"


class Layer(msgspec.Struct, frozen=True):
    """One blob of a tag. `role`: model, projector or adapter; `blob`: its file's name in `blobs`."""

    role: str
    blob: str


class Tag(msgspec.Struct, frozen=True):
    """One tag of the store. `plain`: neither an adapter nor a system text of its own."""

    name: str
    aliases: tuple[str, ...]
    origin: str
    layers: tuple[Layer, ...]
    plain: bool


class _Layer(msgspec.Struct):
    mediaType: str = ""  # noqa: N815 - the name in the manifest
    digest: str = ""


class _Manifest(msgspec.Struct):
    layers: list[_Layer] | None = None


def read_tag(parts: Sequence[str], manifest: bytes) -> Tag:
    """The tag whose manifest lies at `parts` (host, owner, ..., name, tag) below `manifests`.

    Raises msgspec.MsgspecError, UnicodeDecodeError.
    """
    content = decode_json(manifest, _Manifest)
    host, owner, model, tag = parts[0], parts[-3], parts[-2], parts[-1]
    kinds = [layer.mediaType.rpartition(".")[2] for layer in content.layers or ()]
    short = model if owner == _USUAL_OWNER else f"{owner}/{model}"
    full = short if host == "registry.ollama.ai" else f"{host}/{short}"
    typed = [f"{short}:{tag}", f"{full}:{tag}"] + ([full] if tag == _USUAL_TAG else [])
    return Tag(
        name=short if tag == _USUAL_TAG else f"{short}:{tag}",
        aliases=tuple(typed),
        origin=owner if owner != _USUAL_OWNER else "ollama",
        layers=tuple(_layers(content)),
        plain="adapter" not in kinds and "system" not in kinds,
    )


def _layers(content: _Manifest) -> list[Layer]:
    found = []
    for layer in content.layers or ():
        role = _ROLES.get(layer.mediaType.rpartition(".")[2])
        blob = layer.digest.replace(":", "-")
        if role is not None and blob.startswith("sha256-") and not set(blob) & set("/\\"):
            found.append(Layer(role, blob))
    return found
