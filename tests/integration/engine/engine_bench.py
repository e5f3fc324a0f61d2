"""Real workers, and the short forms in which the tests of the engine folder use them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from modeld.host.worker_host import WorkerHost
from modeld.pipe.messages import Count, Done, Load, Loaded, Turn
from scripted_engine import script_environ
from shared.catalog.fingerprint import fingerprint
from shared.catalog.identity import RequestedIdentity
from shared.protocol.api import Event, Sampling, TextDelta
from shared.settings import Settings

Messages = list[dict[str, Any]]
GREEDY = Sampling(temperature=0.0, max_tokens=24)


def user(text: str) -> dict[str, Any]:
    """One message of a user."""
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    """One message of a model."""
    return {"role": "assistant", "content": text}


class Answer:
    """One turn as a client would see it."""

    def __init__(self, done: Done, events: list[Event]) -> None:
        self.done = done
        self.events = events

    @property
    def text(self) -> str:
        """All text deltas joined."""
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    def of(self, kind: type[Any]) -> list[Any]:
        """Events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


class Engine:
    """A worker with a model in it, and the short forms that tests use."""

    def __init__(self, host: WorkerHost, loaded: Loaded, window: int = 0) -> None:
        """`window`: tokens of a conversation that were asked for."""
        self.host = host
        self.loaded = loaded
        self.window = window

    async def ask(
        self,
        messages: Messages | str,
        params: Sampling = GREEDY,
        *,
        tools: list[dict[str, Any]] | None = None,
        conversation: str | None = None,
        on_event: Callable[[int, Event], None] | None = None,
    ) -> Answer:
        """Run one turn to its end; `on_event` gets the turn's number with each event."""
        number = self.host.next_turn()
        reported = [user(messages)] if isinstance(messages, str) else messages
        events: list[Event] = []

        def take(new: list[Event]) -> None:
            events.extend(new)
            for event in new:
                if on_event is not None:
                    on_event(number, event)

        turn = Turn(turn=number, messages=reported, tools=tools or [], params=params, conversation=conversation)
        return Answer(await self.host.run(turn, take), events)

    async def count(self, messages: Messages) -> int:
        """Tokens of the whole prompt."""
        counted = await self.host.count(Count(turn=self.host.next_turn(), messages=messages, tools=[], text=None))
        return counted.total

    async def long(self, tokens: int, word: str = "word") -> str:
        """A message of `word`s whose prompt takes about `tokens` tokens, and not more."""
        none, some = await self.count([user("")]), await self.count([user(f"{word} " * 50)])
        return f"{word} " * ((tokens - none) * 50 // (some - none) - 1)


class Engines:
    """Starts workers and closes them all at the end of a test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hosts: list[WorkerHost] = []
        self.log = folder / "worker.log"

    async def start(
        self, backend: str, settings: Settings | None = None, environ: dict[str, str] | None = None
    ) -> WorkerHost:
        """A worker that has said hello."""
        host = await WorkerHost.start(backend, settings or Settings(), self.log, environ)
        self._hosts.append(host)
        return host

    async def load(
        self,
        backend: str,
        path: Path,
        *,
        num_ctx: int = 2048,
        parked_bytes: int = 64 << 20,
        environ: dict[str, str] | None = None,
        model: dict[str, Any] | None = None,
        deadline: float = 2.0,
        vocabulary_only: bool = False,
        threads: int = 1,
        **fields: Any,
    ) -> Engine:
        """A worker with this model resident."""
        host = await self.start(backend, environ=environ)
        await host.imported()
        message = Load(
            turn=host.next_turn(),
            identity=identity(path, backend, **fields),
            model=model or {},
            num_ctx=num_ctx,
            threads=threads,
            parked_bytes=parked_bytes,
            template_deadline=deadline,
            vocabulary_only=vocabulary_only,
        )
        return Engine(host, await host.load(message, lambda _: None), num_ctx)

    async def scripted(self, num_ctx: int = 2048, **script: Any) -> Engine:
        """A worker that says what the script says."""
        path = self._folder / f"script-{len(self._hosts)}.json"
        path.write_text(json.dumps(script))
        return await self.load("scripted", path, num_ctx=num_ctx, environ={**os.environ, **script_environ(path)})

    async def close(self) -> None:
        """End all of them."""
        for host in self._hosts:
            await host.close(2)


def identity(path: Path, backend: str = "llama", **fields: Any) -> RequestedIdentity:
    """What a load asks for."""
    converted = backend == "openvino" and not path.is_dir()
    digest = fingerprint([str(path)]) if converted else "test"  # by it a conversion is found again
    return RequestedIdentity(backend=backend, name=path.stem, digest=digest, path=str(path), **fields)
