"""`GET /health` and `GET /metrics`: neither touches an engine, loads a model or counts as use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from acp_bridge.faces.http import metrics

if TYPE_CHECKING:
    from starlette.requests import Request

    from acp_bridge.faces.http.app import Face


async def health(face: Face, request: Request) -> Response:
    """200 while modeld can be called. Raises why it cannot."""
    daemon = face.gateway.daemon
    await daemon.reconnect()
    if not daemon.connected:
        raise daemon.detection.error()
    return Response(msgspec.json.encode({"status": "ok"}), media_type="application/json")


async def metrics_page(face: Face, request: Request) -> Response:
    """The text that Prometheus reads; `modeld_up` is 0 while modeld is away."""
    page = metrics.page(face.gateway.counters, face.gateway.daemon.status)
    return Response(page, headers={"content-type": metrics.CONTENT_TYPE})
