"""Calls one provider: its models, and turns streamed from it. The HTTP library is imported at first use."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec

from acp_bridge.models.picker import RemoteModel
from acp_bridge.providers.events import EVENT_BYTES, EVENT_STREAM, LIKE_STREAMS, body_of, content_type, events_of
from acp_bridge.providers.keys import key_hint, key_of
from acp_bridge.providers.stream import StreamReader, error_text
from shared.diagnosis.remedy import install_command
from shared.errors import (
    BackendUnavailable,
    ContextOverflow,
    EngineFailed,
    ModeldError,
    ModelNotFound,
    QueueFull,
    UnsupportedFeature,
    WaitTimeout,
)
from shared.protocol import api
from shared.text.nesting import decode_json
from shared.text.secret import Cleaner, Secret, proxy_secrets
from shared.text.shown import NAME_MOST

if TYPE_CHECKING:
    import httpx2

    from acp_bridge.cancel import Cancel
    from acp_bridge.providers.config import Provider

LIST_LIMIT_S = 5.0
#: Pauses between tries; only before the first byte of an answer, only where trying again can help.
RETRY_PAUSES_S = (0.5, 2.0)
CONNECT_LIMIT_S = 5.0
BODY_SHOWN = 300
#: Of the body of a refusal, what is read, in characters.
ERROR_READ = 64 * 1024


class TryAgain(Exception):
    """Nothing was answered yet, and another try may do better."""

    def __init__(self, error: ModeldError) -> None:
        super().__init__(error.message)
        self.error = error


def http() -> Any:
    """The HTTP library. Raises BackendUnavailable when the extra is not installed."""
    try:
        import httpx2
    except ImportError as error:
        raise BackendUnavailable(
            backend="remote",
            reason="the HTTP library is not installed",
            hint=f"install it with `{install_command('remote')}`",
        ) from error
    return httpx2


class ProviderClient:
    """One endpoint."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._asked = False
        self._key: Secret | None = None
        self._clean = Cleaner()
        self._tls: Any = None

    async def _library(self) -> Any:
        """The HTTP library, with the certificates read: once, for they take longer than a request. Raises
        BackendUnavailable.
        """
        library = await anyio.to_thread.run_sync(http)
        if self._tls is None:
            try:
                self._tls = await anyio.to_thread.run_sync(library.create_ssl_context)
            except OSError as error:
                raise self._unavailable(f"its certificates cannot be read: {error.strerror or error}") from error
        return library

    async def _keyed(self) -> Secret | None:
        """The key; asked of the keyring once, and again after it was refused. Raises BackendUnavailable."""
        if not self._asked:
            self._key = await anyio.to_thread.run_sync(key_of, self.provider, os.environ)
            self._asked = True
            known = proxy_secrets(os.environ)
            self._clean = Cleaner([*known, self._key.reveal()] if self._key is not None else known)
        return self._key

    async def models(self) -> list[RemoteModel]:
        """What it serves now. Raises the typed errors."""
        provider = self.provider
        if provider.models:
            return named_models(provider)
        library = await self._library()
        key = await self._keyed()
        try:
            async with (
                client_of(library, LIST_LIMIT_S, key, self._tls) as client,
                client.stream("GET", f"{provider.base_url}/models") as answer,
            ):
                text = await body_of(answer, EVENT_BYTES)
                self._require_good(answer.status_code, text, "")
                entries = listed_entries(decode_json(text, Any))
        except TryAgain as again:
            raise again.error from again
        except troubles(library) as error:
            raise self._unavailable(self._said(str(error)) or type(error).__name__) from error
        contexts = {self._clean.known(entry["id"]): _context(entry) for entry in entries}
        return [_remote(provider, name, context) for name, context in contexts.items()]

    async def turn(
        self, params: api.TurnParams, on_event: Callable[[api.Event], None], cancel: Cancel
    ) -> api.TurnResult:
        """One streamed completion. Raises the typed errors and TurnCancelled."""
        library = await self._library()
        began = time.monotonic()
        await self._keyed()
        reader = StreamReader(self._clean)
        first: list[float] = []

        def seen(event: api.Event) -> None:
            if not first:
                first.append(time.monotonic() - began)
            on_event(event)

        await cancel.race(lambda: self._with_retries(library, params, reader, seen))
        spent = time.monotonic() - began
        rate = reader.generated / max(spent - (first[0] if first else 0.0), 1e-3)
        return api.TurnResult(
            finish_reason=reader.reason(),
            model=params.model,
            usage=api.Usage(prefilled=reader.prompt_tokens, generated=reader.generated),
            timings=api.Timings(first_token_s=first[0] if first else spent, tokens_per_s=round(rate, 1)),
            generation=0,
            tool_calls=reader.tool_calls(),
            warnings=reader.warnings(self.provider.name),
        )

    async def _with_retries(
        self, library: Any, params: api.TurnParams, reader: StreamReader, seen: Callable[[api.Event], None]
    ) -> None:
        for pause in (*RETRY_PAUSES_S, None):
            try:
                await self._stream(library, params, reader, seen)
                return
            except TryAgain as again:
                if pause is None:
                    raise again.error from again
            await anyio.sleep(pause)

    async def _stream(
        self, library: Any, params: api.TurnParams, reader: StreamReader, seen: Callable[[api.Event], None]
    ) -> None:
        url = f"{self.provider.base_url}/chat/completions"
        started = False
        key = await self._keyed()
        try:
            async with (
                client_of(library, self.provider.timeout_s, key, self._tls) as client,
                client.stream("POST", url, json=request_body(params)) as answer,
            ):
                if answer.status_code != 200:
                    self._require_good(answer.status_code, await body_of(answer, ERROR_READ), params.model)
                async with aclosing(self._events(library, answer)) as events:
                    async for kind, data in events:
                        started = True
                        for event in reader.event(data, kind):
                            seen(event)
                        if reader.ended or reader.error:
                            break  # what a server keeps open behind the end is not waited for
                for event in reader.end():
                    seen(event)
        except (library.ConnectTimeout, library.PoolTimeout) as error:
            raise TryAgain(self._unavailable("it does not answer")) from error
        except library.TimeoutException as error:
            raise WaitTimeout(position=0, waited_s=self.provider.timeout_s) from error
        except library.SSEError as error:
            text = f"{self.provider.name} sent a piece of more than {EVENT_BYTES // 2**20} MiB"
            raise EngineFailed(text, reason="too large") from error
        except troubles(library) as error:
            failed = self._unavailable(self._said(str(error)) or type(error).__name__)
            if started:
                raise EngineFailed(f"{self.provider.name} broke the answer off", reason="connection lost") from error
            if not isinstance(error, library.HTTPError):
                raise failed from error  # a setting that cannot work: another try cannot either
            raise TryAgain(failed) from error
        if reader.error:
            said = self._said(reader.error)
            raise EngineFailed(f"{self.provider.name}: {said}", reason=said)
        if not (reader.ended or reader.finish):
            raise EngineFailed(f"{self.provider.name} broke the answer off", reason="the stream ended early")

    async def _events(self, library: Any, answer: httpx2.Response) -> AsyncGenerator[tuple[str, str]]:
        """(name, data) of the answer's events; one in a single piece is one. Raises EngineFailed for other bodies."""
        kind = content_type(answer)
        some = kind == EVENT_STREAM  # one that breaks off is reported as that
        if some or kind in LIKE_STREAMS:
            async with aclosing(events_of(library, answer)) as events:
                async for event in events:
                    some = True
                    yield event
        elif kind == "application/json" or kind.endswith("+json"):
            some = True
            yield "message", await body_of(answer, EVENT_BYTES)
        if not some:
            said = self._said(kind) or "a body without a type"
            text = f"{self.provider.name} answered with {said} in place of a stream: is its base_url right?"
            raise EngineFailed(text, reason=said)

    def _said(self, text: str) -> str:
        """What an endpoint or a library said, without secrets; shortened last, so that no half of one is left."""
        return self._clean.shortened(text, BODY_SHOWN, ERROR_READ)

    def _require_good(self, status: int, text: str, model: str) -> None:
        """Turn a status into a typed error; 429 and 5xx may be tried again."""
        if status == 200:
            return
        said = self._said(error_text(text))
        name = self.provider.name
        if status in (401, 403):
            self._asked = False  # another may have been stored meanwhile
            raise BackendUnavailable(backend=name, reason="the key was refused", hint=key_hint(self.provider))
        if status == 404:
            raise ModelNotFound(requested=model or self.provider.base_url, near=[])
        if status == 429:
            raise TryAgain(QueueFull(f"{name} has too many requests: {said}", position=0, waited_s=0))
        if status >= 500:
            raise TryAgain(self._unavailable(f"{status} {said}"))
        if "context" in said and ("length" in said or "window" in said):
            raise ContextOverflow(f"{name}: {said}", context=self.provider.context or None)
        raise UnsupportedFeature(f"{name} refused the request ({status}): {said}", feature="request")

    def _unavailable(self, reason: str) -> BackendUnavailable:
        return BackendUnavailable(
            backend=self.provider.name, reason=reason, hint=f"check {self.provider.base_url} and the config file"
        )


def client_of(library: Any, timeout_s: float, key: Secret | None, tls: Any) -> httpx2.AsyncClient:
    """A client that sends `key` where it is asked to and nowhere else: it follows no redirect."""
    headers = {} if key is None else {"Authorization": f"Bearer {key.reveal()}"}
    limits = library.Timeout(timeout_s, connect=min(CONNECT_LIMIT_S, timeout_s))
    client: httpx2.AsyncClient = library.AsyncClient(
        headers=headers, timeout=limits, verify=tls, follow_redirects=False
    )
    return client


def troubles(library: Any) -> tuple[type[Exception], ...]:
    """What a request may raise: of the network, and of addresses, proxies and limits that cannot be used."""
    return (library.HTTPError, library.InvalidURL, msgspec.MsgspecError, ValueError, ImportError, OverflowError)


def named_models(provider: Provider) -> list[RemoteModel]:
    """The models that the config file names, which are not asked for."""
    return [_remote(provider, name, 0) for name in provider.models]


def listed_entries(body: Any) -> list[dict[str, Any]]:
    """The models of a list that have a name (of bearable length); whatever else the body holds is none."""
    data = body.get("data") if isinstance(body, dict) else None
    entries = data if isinstance(data, list) else []
    named = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    return [entry for entry in named if 0 < len(entry["id"]) <= NAME_MOST]


def _remote(provider: Provider, name: str, context: int) -> RemoteModel:
    return RemoteModel(
        id=f"{provider.name}/{name}",
        name=name,
        provider=provider.name,
        context=context or provider.context,
        vision=provider.vision,
    )


def _context(entry: dict[str, Any]) -> int:
    """Tokens, as vLLM (`max_model_len`) and llama-server (`meta.n_ctx`) state them; 0 where nothing usable stands."""
    meta = entry.get("meta")
    stated = entry.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else 0)
    return stated if isinstance(stated, int) and stated > 0 else 0


def request_body(params: api.TurnParams) -> dict[str, Any]:
    """One turn as a chat-completion request."""
    body: dict[str, Any] = {
        "model": params.model.partition("/")[2],
        "messages": params.messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    sampling = params.params
    if params.tools:
        body["tools"] = params.tools
        body.update(_tool_choice(sampling.tool_choice))
    if sampling.stop:
        body["stop"] = sampling.stop
    names = ("temperature", "top_p", "seed", "max_tokens", "presence_penalty", "frequency_penalty")
    body.update({name: getattr(sampling, name) for name in names if getattr(sampling, name) is not None})
    return body


def _tool_choice(choice: str | None) -> dict[str, Any]:
    """Nothing for the default; the name of a tool becomes the protocol's object."""
    if choice in (None, "auto"):
        return {}
    if choice in ("none", "required"):
        return {"tool_choice": choice}
    return {"tool_choice": {"type": "function", "function": {"name": choice}}}
