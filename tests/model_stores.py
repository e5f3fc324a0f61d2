"""Folders as other programs leave them: the Hugging Face cache, Ollama, LM Studio, Jan, GPT4All, llama.cpp's cache.

Written here from what those programs write; contents are small GGUF files that differ by their name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gguf_bytes import model


def put(path: Path, content: bytes | None = None, **facts: object) -> Path:
    """A file with its folders; a small model of its own where no content is given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model(**{"name": str(path), **facts}) if content is None else content)  # type: ignore[arg-type]
    return path


class HubCache:
    """`models--owner--name` with blobs, snapshots and refs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def snapshot(
        self,
        repository: str,
        revision: str,
        files: Mapping[str, bytes],
        ref: str | None = "main",
        *,
        links: bool = True,
    ) -> Path:
        """One revision; `ref` is the name that leads to it. Without `links` as on Windows without the right to them."""
        home = self.folder / f"models--{repository.replace('/', '--')}"
        shown = home / "snapshots" / revision
        for name, content in files.items():
            path = shown / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not links:
                path.write_bytes(content)
                continue
            blob = put(home / "blobs" / hashlib.sha256(content).hexdigest(), content)
            path.symlink_to(os.path.relpath(blob, path.parent))
        if ref is not None:
            put(home / "refs" / ref, revision.encode())
        return shown


class OllamaStore:
    """Manifests that name blobs by digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def blob(self, content: bytes) -> str:
        """Its digest as manifests write it."""
        digest = hashlib.sha256(content).hexdigest()
        put(self.folder / "blobs" / f"sha256-{digest}", content)
        return f"sha256:{digest}"

    def tag(self, path: str, layers: Sequence[tuple[str, bytes]], host: str = "registry.ollama.ai") -> Path:
        """`owner/name/tag` of (kind, content) layers; the manifest."""
        listed = [
            {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": self.blob(content), "size": len(content)}
            for kind, content in layers
        ]
        content = json.dumps({"schemaVersion": 2, "layers": listed}).encode()
        return put(self.folder / "manifests" / host / path, content)
