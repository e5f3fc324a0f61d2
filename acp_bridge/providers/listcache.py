"""The model lists of the last successful look, kept on disk: a picker shows remote models before an endpoint answers.

Advisory: what is called is what the endpoint has then. A file that cannot be read or written is no list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from acp_bridge.models.picker import RemoteModel
from acp_bridge.providers.config import Provider
from shared.system import private
from shared.text.nesting import decode_json

FILE_NAME = "remote.rows"


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """What one endpoint listed. Another address under the same name is another endpoint."""

    base_url: str
    models: tuple[RemoteModel, ...]


class ListCache:
    """One file under the data root."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, providers: Iterable[Provider]) -> dict[str, list[RemoteModel]]:
        """The models of those providers that were listed before, by provider."""
        try:
            known = decode_json(self._path.read_bytes(), dict[str, Listed])
        except (OSError, msgspec.DecodeError):
            return {}
        return {
            provider.name: list(known[provider.name].models)
            for provider in providers
            if provider.name in known and known[provider.name].base_url == provider.base_url
        }

    def write(self, providers: Iterable[Provider], models: Mapping[str, Sequence[RemoteModel]]) -> None:
        """Replace the file when something differs. Silent where it cannot be written: nothing depends on it."""
        listed = {
            provider.name: Listed(base_url=provider.base_url, models=tuple(models[provider.name]))
            for provider in providers
            if provider.name in models and not provider.models
        }
        data = msgspec.json.encode(listed, order="sorted")
        try:
            if self._path.exists() and self._path.read_bytes() == data:
                return
            private.write(self._path, data)
        except OSError:
            return
