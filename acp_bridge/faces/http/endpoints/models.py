"""`GET /v1/models` and `GET /v1/models/{name}`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import msgspec
from starlette.responses import Response

from acp_bridge.models.picker import RemoteModel

if TYPE_CHECKING:
    from starlette.requests import Request

    from acp_bridge.faces.http.app import Face
    from shared.protocol import api


async def every(face: Face, request: Request) -> Response:
    """Those that can answer, as an editor's picker lists them."""
    gateway = face.gateway
    await gateway.daemon.reconnect()
    await gateway.models.first_rows()
    if gateway.remote:
        await gateway.models.first_look(next(iter(gateway.remote)))
    rows = [row for row in gateway.models.rows if row.state not in ("not servable", "rejected")]
    data = await anyio.to_thread.run_sync(lambda: [_local(row) for row in rows])
    data += [_remote(one) for one in gateway.models.remotes]
    return _json({"object": "list", "data": data})


async def one(face: Face, request: Request) -> Response:
    """Raises ModelNotFound with near names."""
    row = await face.gateway.row(request.path_params["name"])
    if isinstance(row, RemoteModel):
        return _json(_remote(row))
    found = row
    return _json(await anyio.to_thread.run_sync(lambda: _local(found)))


def _local(row: api.LibraryRow) -> dict[str, Any]:
    """The protocol's four fields, and what programs ask of local servers. Blocks."""
    try:
        created = int(os.stat(row.path).st_mtime)
    except OSError:
        created = 0
    return {
        "id": row.name,
        "object": "model",
        "created": created,
        "owned_by": "local",
        "context_length": row.context_train,
        "state": row.state,
        "capabilities": {
            "tools": row.tools,
            "thinking": row.thinking,
            "vision": row.vision,
            "fill_in_the_middle": row.fim,
            "embeddings": row.embedding_only,
            "chat": not row.embedding_only,
        },
    }


def _remote(model: RemoteModel) -> dict[str, Any]:
    return {
        "id": model.id,
        "object": "model",
        "created": 0,
        "owned_by": model.provider,
        "context_length": model.context,
    }


def _json(value: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
