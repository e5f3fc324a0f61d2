"""The remote models that can be shown and called: configured in a file that is watched, listed in the background.

What is shown stays while an endpoint or the file cannot be read; what is called goes by the file as it is now.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from acp_bridge.models.picker import RemoteModel
from acp_bridge.providers.client import ProviderClient
from acp_bridge.providers.config import Configured, key_variables, read_configured
from acp_bridge.providers.endpoint import Certificates
from acp_bridge.providers.health import Health, broken, examined
from acp_bridge.providers.listcache import ListCache
from acp_bridge.providers.listing import named_models
from shared.errors import ModeldError, NoSatisfactoryModel, SettingInvalid

#: A list is fetched again this often while a picker may be open.
FRESH_S = 300.0
#: The config file is looked at this often, each look wakes an idle process; a request looks too, so that none goes by
#: an older one.
WATCH_S = 15.0
#: Closing connections takes no longer.
CLOSE_S = 1.0

_Key = tuple[int, int, int, int] | None
Listed = Mapping[str, Sequence[RemoteModel]]


class Providers:
    """The configured endpoints. `problems` says what was wrong with them when they were listed last, one line each;
    `key_variables` names the variables that hold their keys.
    """

    def __init__(self, file: Path, cache: ListCache | None = None) -> None:
        self.file = file
        self.problems: dict[str, str] = {}
        self.key_variables: frozenset[str] = frozenset()
        self.known = anyio.Event()  # what is configured, or listed before, can be shown
        self._cache = cache
        self._certificates = Certificates()
        self._configured = Configured()
        self._unreadable: SettingInvalid | None = None
        self._read_at: _Key | bool = False  # never
        self._reading = anyio.Lock()
        self._clients: dict[str, ProviderClient] = {}
        self._models: dict[str, list[RemoteModel]] = {}
        self._asked: dict[str, anyio.Event] = {}
        self._moved = anyio.Event()
        self._changed: Callable[[], None] = lambda: None

    # --- what is shown -------------------------------------------------------------------------

    def models(self) -> tuple[RemoteModel, ...]:
        """What was listed last, in order of the providers' names."""
        return tuple(model for name in sorted(self._models) for model in self._models[name])

    def missing(self, name: str) -> str:
        """Why the model `name` (`provider/model`) is not among them, and what to do."""
        provider, _, model = name.partition("/")
        if self._unreadable is not None:
            return self._unreadable.message
        if provider in self._configured.problems:
            return self._configured.problems[provider]
        if provider not in self._clients:
            return f"the config file {self.file} has no provider {provider}; add it there, or pick another model"
        if provider in self.problems:
            return self.problems[provider]
        return f"{provider} does not list {model} now; check it there, or pick another model"

    def window(self, model: RemoteModel) -> int:
        """Tokens of its window, 0 while nobody said."""
        client = self._clients.get(model.provider)
        return client.learned.window(model.id) if client is not None else model.context

    async def first_look(self, name: str) -> None:
        """Until the provider of `name` has been asked once; at once where none of that name is configured."""
        await self.known.wait()
        await self.refresh()
        asked = self._asked.get(name.partition("/")[0])
        if asked is not None:
            await asked.wait()

    # --- what is called ------------------------------------------------------------------------

    async def client(self, name: str) -> ProviderClient:
        """Who serves the model `name`, by the config file as it is now. Raises NoSatisfactoryModel, SettingInvalid."""
        await self.refresh()
        if self._unreadable is not None:
            raise self._unreadable
        client = self._clients.get(name.partition("/")[0])
        if client is None or not client.provider.offers(client.learned.served(name)):
            raise NoSatisfactoryModel(wanted=name, reason=self.missing(name))
        return client

    # --- the file ------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Read the config file if it is another one than it was. Running answers go on; nothing is asked here."""
        async with self._reading:
            key = await anyio.to_thread.run_sync(_key_of, self.file, abandon_on_cancel=True)
            if key == self._read_at:
                return
            try:
                configured, variables, cached = await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True)
            except SettingInvalid as error:
                self._unreadable = error  # what is shown stays; nothing is called
                return
            self._unreadable, self._read_at, self.key_variables = None, key, variables
            for client in self._become(configured, cached):
                await client.close()
            if self.known.is_set():
                self._moved.set()
                self._changed()

    def _read(self) -> tuple[Configured, frozenset[str], Listed]:
        """What is configured, its key variables, and what was listed before. Raises SettingInvalid. Blocks."""
        variables = key_variables(self.file, os.environ)
        configured = read_configured(self.file)
        cached = self._cache.read(configured.providers) if self._cache is not None and configured.providers else {}
        return configured, variables, cached

    def _become(self, configured: Configured, cached: Listed) -> list[ProviderClient]:
        """From now on these are configured; gives the clients that nobody may use any more."""
        before, self._clients = self._clients, {}
        for provider in configured.providers:
            name, known = provider.name, before.get(provider.name)
            if known is not None and known.provider == provider:
                self._clients[name] = before.pop(name)
                continue
            moved = known is not None and known.provider.base_url != provider.base_url
            listed = [] if moved else self._models.get(name) or cached.get(name, [])
            offered = [model for model in listed if provider.offers(model.served or model.name)]
            self._models[name] = named_models(provider) if provider.models else offered
            client = self._clients[name] = ProviderClient(provider, self._certificates)
            client.learned.know(self._models[name])
            self._asked.pop(name, anyio.Event()).set()
            self._asked[name] = anyio.Event()
        for name in self._asked.keys() - self._clients.keys():
            self._models.pop(name, None)
            self._asked.pop(name).set()
        kept = self._clients.keys() - before.keys()
        self.problems = {name: text for name, text in self.problems.items() if name in kept}
        self._configured = configured
        return list(before.values())

    # --- the background ------------------------------------------------------------------------

    async def run(self, changed: Callable[[], None]) -> None:
        """Keep the lists, and watch the file, until cancelled."""
        self._changed = changed
        try:
            await self.refresh()
            self.known.set()
            if self.models():
                changed()
            while True:
                self._moved = anyio.Event()
                await self._list(list(self._clients.values()))
                await self._watched(FRESH_S)
        finally:
            self.known.set()
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
                for client in self._clients.values():
                    await client.close()

    async def _watched(self, seconds: float) -> None:
        """Until the lists are to be fetched again: they are old, or the file has changed."""
        with anyio.move_on_after(seconds):
            while not self._moved.is_set():
                with anyio.move_on_after(WATCH_S):
                    await self._moved.wait()
                await self.refresh()

    async def _list(self, clients: list[ProviderClient]) -> None:
        before = self.models()
        async with anyio.create_task_group() as group:
            for client in clients:
                group.start_soon(self._list_one, client)
        if self._cache is not None and self.models() != before:
            await anyio.to_thread.run_sync(self._cache.write, self._configured.providers, dict(self._models))

    async def _list_one(self, client: ProviderClient) -> None:
        name = client.provider.name
        asked = self._asked.get(name)
        try:
            models = await client.models()
            if self._clients.get(name) is client:
                self.problems.pop(name, None)
                if models != self._models.get(name):
                    self._models[name] = models
                    self._changed()
        except ModeldError as error:
            self._failed(client, error.message)
        except Exception as error:
            self._failed(client, f"{name}: {type(error).__name__}")
        finally:
            if asked is not None:
                asked.set()

    def _failed(self, client: ProviderClient, text: str) -> None:
        if self._clients.get(client.provider.name) is client:
            self.problems[client.provider.name] = text

    async def look(self) -> list[Health]:
        """Each entry of the file as it is now, the endpoints asked now. Bounded."""
        await self.refresh()
        if self._unreadable is not None:
            return [broken("providers", self._unreadable.message)]
        found: dict[str, Health] = {
            name: broken(f"provider {name}", text) for name, text in self._configured.problems.items()
        }

        async def one(client: ProviderClient) -> None:
            try:
                found[client.provider.name] = await examined(client)
            except Exception as error:  # a defect in reading one list hides no other
                found[client.provider.name] = broken(f"provider {client.provider.name}", type(error).__name__)

        async with anyio.create_task_group() as group:
            for client in self._clients.values():
                group.start_soon(one, client)
        return [found[name] for name in sorted(found)]


def _key_of(file: Path) -> _Key:
    """What tells one state of the file from another; None where there is none. Blocks."""
    try:
        status = file.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
