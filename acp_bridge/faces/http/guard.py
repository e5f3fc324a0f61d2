"""Who may ask: the key, no web page, no other name than this machine's own, nothing that two readers read differently.

Every answer of the face goes out through here, with the headers that all share.
"""

from __future__ import annotations

import hmac
import re
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import msgspec

from acp_bridge.faces.http.protocol.errors import Refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from acp_bridge.faces.http.metrics import Counters

#: The names of the loopback interface that a program types. Others that lead there too (127.1, 0.0.0.0, numbers, names
#: of a service that answers with 127.0.0.1) are how web pages come to local ports.
_HOST = re.compile(rb"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
_JSON = re.compile(rb"application/json\s*(?:;\s*charset\s*=\s*\"?utf-8\"?\s*)?", re.IGNORECASE)
_SCHEME = b"bearer "
#: Paths without parameters, for the counts: a name of a model in a path is none of ours.
_COUNTED = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models", "/health", "/metrics")
_OWN = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Guard:
    """An ASGI application before another."""

    def __init__(self, app: ASGIApp, key: bytes, counters: Counters) -> None:
        self._app = app
        self._key = key
        self._counters = counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":  # there are no other kinds here
            return
        route = next((path for path in _COUNTED if scope["path"].startswith(path)), "other")

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._counters.request(route, message["status"])
                message = {**message, "headers": _with_own(list(message["headers"]))}
            await send(message)

        try:
            self._check(scope)
        except Refusal as refused:
            await _refuse(refused, counted)
            return
        await self._app(scope, receive, counted)

    def _check(self, scope: Scope) -> None:
        """Raises Refusal. The order tells a web page nothing about the key."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or _HOST.fullmatch(hosts[0]) is None:
            raise Refusal(403, "the Host header does not name this machine: use 127.0.0.1", code="host_refused")
        if any(name == b"origin" for name, _ in headers):
            raise Refusal(403, "requests of web pages (with an Origin header) are refused", code="origin_refused")
        if b"transfer-encoding" in dict(headers) and b"content-length" in dict(headers):
            close = {"connection": "close"}
            raise Refusal(400, "two lengths of one body", code="invalid_request", headers=close)
        self._check_key(headers)
        if scope["method"] == "POST" and not any(
            name == b"content-type" and _JSON.fullmatch(value.strip()) for name, value in headers
        ):
            raise Refusal(415, "the body has to be application/json", code="unsupported_media_type")

    def _check_key(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Compared in a time that does not depend on how much of it is right."""
        given = [value for name, value in headers if name == b"authorization"]
        one = given[0] if len(given) == 1 else b""
        bears = one[: len(_SCHEME)].lower() == _SCHEME
        if not hmac.compare_digest(one[len(_SCHEME) :].strip() if bears else b"", self._key):
            told = (
                "the API key is missing or wrong: send `Authorization: Bearer KEY` with the key of this server's file"
            )
            raise Refusal(401, told, code="invalid_api_key", headers={"www-authenticate": "Bearer"})


def _with_own(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    there = {name.lower() for name, _ in headers}
    headers += [(name, value) for name, value in _OWN if name not in there]
    return [*headers, (b"date", formatdate(usegmt=True).encode())]


async def _refuse(refused: Refusal, send: Any) -> None:
    reply = refused.reply
    data = msgspec.json.encode(reply.body)
    headers = [(name.encode(), value.encode()) for name, value in reply.headers.items()]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
