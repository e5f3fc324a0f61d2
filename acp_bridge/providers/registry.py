"""The remote models that can be shown: listed in the background, kept while an endpoint is away."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread

from acp_bridge.models.picker import RemoteModel
from acp_bridge.providers.client import ProviderClient, named_models
from acp_bridge.providers.config import Provider, key_variables, read_providers
from acp_bridge.providers.listcache import ListCache
from shared.errors import ModeldError

#: A list is fetched again this often while a picker may be open.
FRESH_S = 300.0


class Providers:
    """The configured endpoints. `problems` says what was wrong with them, one line each; `key_variables` names the
    variables that hold their keys.
    """

    def __init__(self, file: Path, cache: ListCache | None = None) -> None:
        self._file = file
        self._cache = cache
        self._clients: dict[str, ProviderClient] = {}
        self._models: dict[str, list[RemoteModel]] = {}
        self.problems: dict[str, str] = {}
        self.key_variables: frozenset[str] = frozenset()
        self.known = anyio.Event()  # what is configured, or listed before, can be shown
        self.listed = anyio.Event()  # every endpoint has been asked once

    def models(self) -> tuple[RemoteModel, ...]:
        """What was listed last, in order of the providers' names."""
        return tuple(model for name in sorted(self._models) for model in self._models[name])

    def client(self, model: RemoteModel) -> ProviderClient:
        """Who serves a model of `models`."""
        return self._clients[model.provider]

    async def run(self, changed: Callable[[], None]) -> None:
        """Keep the lists. Without providers it ends at once, and wakes nobody."""
        try:
            await self._keep(changed)
        finally:
            self.listed.set()

    async def _keep(self, changed: Callable[[], None]) -> None:
        try:
            providers = await anyio.to_thread.run_sync(self._recall)
        except ModeldError as error:
            self.problems["config"] = error.message
            return
        finally:
            self.known.set()
        self._clients = {provider.name: ProviderClient(provider) for provider in providers}
        if self.models():
            changed()
        while self._clients:
            before = self.models()
            async with anyio.create_task_group() as group:
                for client in self._clients.values():
                    group.start_soon(self._list, client)
            if self.models() != before:
                changed()
                if self._cache is not None:
                    await anyio.to_thread.run_sync(self._cache.write, providers, dict(self._models))
            self.listed.set()
            if all(client.provider.models for client in self._clients.values()):
                return  # nothing is listed live
            await anyio.sleep(FRESH_S)

    def _recall(self) -> list[Provider]:
        """What is configured; its models as they were listed last. Raises SettingInvalid. Blocks."""
        self.key_variables = key_variables(self._file, os.environ)
        providers = read_providers(self._file)
        if self._cache is not None and providers:
            self._models = self._cache.read(providers)
        for provider in providers:
            if provider.models:
                self._models[provider.name] = named_models(provider)
        return providers

    async def _list(self, client: ProviderClient) -> None:
        name = client.provider.name
        try:
            self._models[name] = await client.models()
            self.problems.pop(name, None)
        except ModeldError as error:
            self.problems[name] = error.message
        except Exception as error:
            self.problems[name] = type(error).__name__
