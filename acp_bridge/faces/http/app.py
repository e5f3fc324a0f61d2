"""The routes of the HTTP face, and what every answer shares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from acp_bridge.faces.http.endpoints import chat, completions, embeddings, models, status
from acp_bridge.faces.http.exchange import ClientDisconnect, Output, Running, read_body
from acp_bridge.faces.http.guard import Guard
from acp_bridge.faces.http.protocol.errors import Refusal, Reply, reply_to
from shared.errors import ModeldError
from shared.protocol.faults import InternalFault

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from acp_bridge.cancel import Cancel
    from acp_bridge.faces.http.gateway import Gateway, Program

Endpoint = Callable[["Face", Request], Awaitable[Response]]
Turn = Callable[["Program", "Cancel", Output], Awaitable[None]]
ROUTES: tuple[tuple[str, str, Endpoint], ...] = (
    ("GET", "/v1/models", models.every),
    ("GET", "/v1/models/{name:path}", models.one),
    ("POST", "/v1/chat/completions", chat.chat),
    ("POST", "/v1/completions", completions.complete),
    ("POST", "/v1/embeddings", embeddings.embed),
    ("GET", "/health", status.health),
    ("GET", "/metrics", status.metrics_page),
)


class Face:
    """What the endpoints are given."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    async def body(self, request: Request) -> bytes:
        """The body of a request. Raises MessageTooLarge, Refusal."""
        return await read_body(request, self.gateway.settings.message_limit)

    def running(self, request: Request, turn: Turn, headers: Mapping[str, str], *, streams: bool) -> Running:
        """An answer that `turn` makes, as the program that asks for it."""
        gateway = self.gateway
        agent = request.headers.get("user-agent", "")

        async def work(cancel: Cancel, output: Output) -> None:
            gateway.counters.running += 1
            try:
                async with gateway.program(agent) as program:
                    await turn(program, cancel, output)
            finally:
                gateway.counters.running -= 1

        return Running(work, gateway.settings, gateway.cancels, headers, gateway.wait_s, streams=streams)


def make_app(gateway: Gateway, key: bytes) -> ASGIApp:
    """The ASGI application: the guard, then the routes."""
    face = Face(gateway)
    routes = [Route(path, _bound(face, endpoint), methods=[method]) for method, path, endpoint in ROUTES]

    async def handled(request: Request, error: Exception) -> Response:
        return json_reply(reply_to(error, gateway.wait_s()) if isinstance(error, ModeldError) else _reply(error))

    kinds = (ModeldError, Refusal, HTTPException, ClientDisconnect, Exception)
    handlers: Any = dict.fromkeys(kinds, handled)
    return Guard(Starlette(routes=routes, exception_handlers=handlers), key, gateway.counters)


def _bound(face: Face, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await endpoint(face, request)

    return answer


def _reply(error: Exception) -> Reply:
    if isinstance(error, Refusal):
        return error.reply
    if isinstance(error, ClientDisconnect):  # nobody reads this
        return Refusal(400, "the client has gone", code="client_gone").reply
    if not isinstance(error, HTTPException):  # a defect: its type and place go to the log, its text nowhere
        return reply_to(InternalFault(type=type(error).__name__))
    if error.status_code == 405:
        told = Refusal(
            405, "this path has no such method", code="method_not_allowed", headers=dict(error.headers or {})
        )
        return told.reply
    paths = ", ".join(path for _, path, _ in ROUTES)
    return Refusal(error.status_code, f"no such path; there are {paths}", code="not_found").reply


def json_reply(reply: Reply) -> Response:
    """An error as a response."""
    data = msgspec.json.encode(reply.body)
    return Response(data, reply.status, headers=dict(reply.headers), media_type="application/json")
