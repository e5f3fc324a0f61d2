"""Sends requests to one provider: pooled, with its key and headers, redirected within its origin, failures typed.

The HTTP library is imported at first use.
"""

from __future__ import annotations

import json
import os
import ssl
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec

from acp_bridge.providers.answers.events import EVENT_BYTES, body_of, content_type
from acp_bridge.providers.answers.stream import error_text
from acp_bridge.providers.keys import header_values, key_hint, key_of
from acp_bridge.providers.refusals import is_rate_limit, overflow_of, request_id, retry_after
from shared.diagnosis.remedy import install_command
from shared.errors import (
    BackendUnavailable,
    ContextOverflow,
    ModeldError,
    ModelNotFound,
    QueueFull,
    UnsupportedFeature,
    WaitTimeout,
)
from shared.text.nesting import decode_json
from shared.text.secret import Cleaner, Secret, proxy_secrets
from shared.version import __version__

if TYPE_CHECKING:
    import httpx2

    from acp_bridge.providers.config import Provider

#: How long a list, a count or a look may take.
ASK_LIMIT_S = 5.0
#: A connection that waits for its next request: as long as a person reads an answer. Servers often end it before.
KEPT_S = 60.0
MOST_REDIRECTS = 3
#: Redirects that keep method and body, as every client of this protocol reads them. 303 asks for another request.
REDIRECTS = (301, 302, 307, 308)
BODY_SHOWN = 300
#: Of the body of a refusal, what is read, in characters.
ERROR_READ = 64 * 1024
#: Refusals that another try may not meet: a proxy's time limit, a conflict, too early, too many.
AGAIN = frozenset({408, 409, 425, 429})
#: And failures of the server that it does not help with.
NEVER_AGAIN = frozenset({501, 505})


class TryAgain(Exception):
    """Nothing was answered yet, and another try may do better. `after`: seconds that the endpoint asks for."""

    def __init__(self, error: ModeldError, after: float | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.after = after


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


class Certificates:
    """What endpoints are trusted by, read once for all providers: it takes longer than a request. Of the system, and
    those of a `ca_file` on top.
    """

    def __init__(self) -> None:
        self._contexts: dict[str, Any] = {}
        self._lock = anyio.Lock()

    async def context(self, library: Any, ca_file: str) -> Any:
        """For the HTTP library. Raises OSError (`ssl.SSLError` is one)."""
        async with self._lock:
            if ca_file not in self._contexts:
                self._contexts[ca_file] = await anyio.to_thread.run_sync(_trusting, library, ca_file)
            return self._contexts[ca_file]


def _trusting(library: Any, ca_file: str) -> Any:
    context = library.create_ssl_context()
    if ca_file:
        context.load_verify_locations(cafile=ca_file)
    return context


class Endpoint:
    """One provider's address. `clean` takes what was sent as a secret out of every text that came back."""

    def __init__(self, provider: Provider, certificates: Certificates | None = None) -> None:
        self.provider = provider
        self.clean = Cleaner()
        self._certificates = certificates or Certificates()
        self._client: httpx2.AsyncClient | None = None
        self._asked = False
        self._key: Secret | None = None
        self._secret_headers: dict[str, Secret] = {}
        self._opening = anyio.Lock()
        self._open = 0
        self._retired = False

    # --- life ----------------------------------------------------------------------------------

    async def ready(self) -> Any:
        """The HTTP library, with the key and a client at hand. Raises BackendUnavailable."""
        library = await anyio.to_thread.run_sync(http)
        async with self._opening:
            await self._keyed()
            if self._client is None:
                self._client = await self._made(library)
        return library

    async def retire(self) -> None:
        """Close it, at once or after the answers that still run."""
        self._retired = True
        if not self._open and self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def _made(self, library: Any) -> httpx2.AsyncClient:
        provider = self.provider
        try:
            trust = await self._certificates.context(library, provider.ca_file)
        except OSError as error:
            what = f"ca_file {provider.ca_file}" if provider.ca_file else "the certificates of the system"
            raise self.unavailable(f"{what} cannot be read: {error.strerror or error}") from error
        headers = {"User-Agent": f"modeld/{__version__}", **provider.headers}
        named = {"OpenAI-Organization": provider.organization, "OpenAI-Project": provider.project}
        headers.update({name: value for name, value in named.items() if value})
        try:
            client: httpx2.AsyncClient = library.AsyncClient(
                headers=headers,
                verify=trust,
                follow_redirects=False,
                limits=library.Limits(keepalive_expiry=KEPT_S),
            )
        except troubles(library) as error:  # a proxy of the environment that is none
            raise self.unavailable(self.said(str(error)) or type(error).__name__) from error
        return client

    async def _keyed(self) -> None:
        """The key and the secret headers; asked for once, and again after they were refused."""
        if self._asked:
            return
        self._key = await anyio.to_thread.run_sync(key_of, self.provider, os.environ)
        self._secret_headers = header_values(self.provider, os.environ)
        self._asked = True
        secrets = [*self._secret_headers.values(), *([self._key] if self._key is not None else [])]
        self.clean = Cleaner([*proxy_secrets(os.environ), *(secret.reveal() for secret in secrets)])

    @property
    def has_key(self) -> bool:
        """Whether a key was found the last time it was asked for."""
        return self._key is not None

    # --- requests ------------------------------------------------------------------------------

    async def ask(self, method: str, url: str, body: Any = None, model: str = "", limit_s: float = ASK_LIMIT_S) -> Any:
        """The JSON of an answer in one piece. Raises the typed errors; nothing is tried again."""
        library = await self.ready()
        try:
            with anyio.fail_after(limit_s):
                async with self.open(method, url, body, limit_s=limit_s) as answer:
                    text = await body_of(answer, EVENT_BYTES)
                    self.require_good(answer, text, model)
                    kind = content_type(answer)
            return decode_json(text, Any)
        except TryAgain as again:
            raise again.error from again
        except TimeoutError as error:
            raise self.unavailable(f"it does not answer within {limit_s:g} s") from error
        except msgspec.MsgspecError as error:
            what = f"it answered with {self.said(kind) or 'a body without a type'}, which holds no JSON"
            raise self.unavailable(what) from error
        except troubles(library) as error:
            raise self.failed(library, error)[0] from error

    @asynccontextmanager
    async def open(
        self, method: str, url: str, body: Any = None, *, limit_s: float, headers: dict[str, str] | None = None
    ) -> AsyncGenerator[httpx2.Response]:
        """The answer's head, its body still to come. `ready` comes first. Raises the library's errors, and
        BackendUnavailable for a redirect to another place.
        """
        client = self._client
        assert client is not None
        timeout = http().Timeout(limit_s, connect=min(self.provider.connect_timeout_s, limit_s))
        sent = {**self._headers(), **(headers or {})}
        content = None if body is None else _encoded(body)
        if content is not None:
            sent["Content-Type"] = "application/json"
        address = http().URL(url)
        if self.provider.api_version:
            address = address.copy_merge_params({"api-version": self.provider.api_version})
        request = client.build_request(method, address, content=content, headers=sent, timeout=timeout)
        self._open += 1
        try:
            answer = await self._sent(client, request)
            try:
                yield answer
            finally:
                with anyio.CancelScope(shield=True):
                    await answer.aclose()
        finally:
            self._open -= 1
            if self._retired:
                with anyio.CancelScope(shield=True):
                    await self.retire()

    def _headers(self) -> dict[str, str]:
        secret = {name: value.reveal() for name, value in self._secret_headers.items()}
        key = {} if self._key is None else {"Authorization": f"Bearer {self._key.reveal()}"}
        return {**secret, **key, "X-Request-ID": uuid.uuid4().hex}

    async def _sent(self, client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        for _ in range(MOST_REDIRECTS):
            answer = await client.send(request, stream=True)
            place = answer.headers.get("location")
            if answer.status_code not in REDIRECTS or not place:
                return answer
            await answer.aclose()
            url = request.url.join(place)
            if url.origin != request.url.origin:  # the key is for one place
                raise self.unavailable(f"it redirects to {self.said(str(url))}, which is another place")
            request.headers.pop("host", None)
            request = client.build_request(
                request.method, url, content=request.content, headers=request.headers, extensions=request.extensions
            )
        raise self.unavailable(f"it redirects more than {MOST_REDIRECTS} times")

    # --- failures ------------------------------------------------------------------------------

    def said(self, text: str) -> str:
        """What an endpoint or a library said, without secrets; shortened last, so that no half of one is left."""
        return self.clean.shortened(text, BODY_SHOWN, ERROR_READ)

    def unavailable(self, reason: str, hint: str = "") -> BackendUnavailable:
        """Says what is wrong with the endpoint and what to do about it."""
        name = self.provider.name
        hint = hint or f"check {self.provider.base_url} and [providers.{name}] in the config file"
        return BackendUnavailable(f"{name} cannot be used: {reason}; {hint}", backend=name, reason=reason, hint=hint)

    def failed(self, library: Any, error: Exception) -> tuple[ModeldError, bool]:
        """The typed error of a request that got no answer, and whether another try may do better."""
        address = self.provider.base_url
        if isinstance(error, (library.ConnectTimeout, library.PoolTimeout)):
            return self.unavailable("it does not answer"), True
        if isinstance(error, library.TimeoutException):
            waited = self.provider.timeout_s
            text = f"{self.provider.name} sent nothing for {waited:g} s (`timeout_s` in the config file)"
            return WaitTimeout(text, position=0, waited_s=waited), False
        trouble = _secure_trouble(error)
        if isinstance(trouble, ssl.SSLCertVerificationError):
            hint = "`ca_file` in the config file names the certificate of a private authority"
            return self.unavailable(f"its certificate is not trusted ({trouble.verify_message})", hint), False
        if trouble is not None:
            hint = f"does {address} speak https?"
            return self.unavailable(f"no secure connection ({self.said(trouble.reason or str(trouble))})", hint), False
        never = (library.UnsupportedProtocol, library.LocalProtocolError, library.DecodingError)
        again = isinstance(error, library.HTTPError) and not isinstance(error, never)
        reason = self.said(str(error)) or type(error).__name__
        if isinstance(error, (library.ReadError, library.RemoteProtocolError)):
            secure = "" if address.startswith("https:") else " (does it speak https?)"
            reason = f"it closed the connection without an answer{secure}"
        return self.unavailable(reason), again

    def require_good(self, answer: httpx2.Response, text: str, model: str) -> None:
        """Turn a status into a typed error; TryAgain where another try may do better."""
        status = answer.status_code
        if status == 200:
            return
        number = self.said(request_id(answer.headers, answer.request.headers.get("x-request-id", "")))
        error = self._refusal(status, text, model, number)
        after = retry_after(answer.headers, time.time())
        again = status in AGAIN or (status >= 500 and status not in NEVER_AGAIN)
        told = answer.headers.get("x-should-retry")
        if isinstance(error, (ContextOverflow, ModelNotFound)):
            raise error
        if told == "true" or (again and told != "false") or isinstance(error, QueueFull):
            raise TryAgain(error, after)
        raise error

    def _refusal(self, status: int, text: str, model: str, number: str) -> ModeldError:
        """`number` names the request to an administrator of the endpoint."""
        name = self.provider.name
        said = f"{self.said(error_text(text))} (request {number})"
        overflow = overflow_of(text) if status not in (401, 403, 404) else None
        if overflow is not None:
            window = overflow.window or self.provider.context or None
            more = overflow.prompt or None
            return ContextOverflow(f"{name}: {said}", context=window, resident=0, additional=more)
        if status in (401, 403):
            self._asked = False  # another may have been stored meanwhile
            return self.unavailable(f"the key was refused (request {number})", key_hint(self.provider))
        if status == 402:
            return self.unavailable(f"it wants to be paid (402): {said}", "see your account there")
        if status == 404:
            return ModelNotFound(self._not_found(model, said), requested=model or self.provider.base_url, near=[])
        if status == 429 or (status == 413 and is_rate_limit(text)):
            return QueueFull(f"{name} has too many requests: {said}", position=0, waited_s=0)
        if status == 408 or status >= 500:
            return self.unavailable(f"{status} {said}")
        if status == 413:
            return ContextOverflow(f"{name}: {said or 'the request is too large'}", context=None)
        return UnsupportedFeature(f"{name} refused the request ({status}): {said}", feature="request")

    def _not_found(self, model: str, said: str) -> str:
        """Of a model, or of the whole address."""
        address = self.provider.base_url
        found = f"{self.provider.name} has no {model.partition('/')[2]} at" if model else "there is nothing at"
        what = f"{found} {address}"
        return f"{what} (404: {said}); check the name and base_url, `acp-bridge models` lists what it has"


def _secure_trouble(error: BaseException) -> ssl.SSLError | None:
    """The TLS error behind a failed connection."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def _encoded(body: Any) -> bytes:
    """As JSON; half a surrogate pair, which an editor may send, as an escape."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body).encode()


def troubles(library: Any) -> tuple[type[Exception], ...]:
    """What a request may raise: of the network, and of addresses, proxies and limits that cannot be used."""
    return (library.HTTPError, library.InvalidURL, msgspec.MsgspecError, ValueError, ImportError, OverflowError)
