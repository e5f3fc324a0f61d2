"""`POST /v1/embeddings`: vectors from the model that is named."""

from __future__ import annotations

import base64
import struct
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from acp_bridge.faces.http.protocol import wire
from acp_bridge.faces.http.protocol.errors import Refusal
from acp_bridge.faces.http.view import Heard
from acp_bridge.models.picker import RemoteModel
from shared.errors import ModelSwitchRequired
from shared.protocol import api

if TYPE_CHECKING:
    from starlette.requests import Request

    from acp_bridge.cancel import Cancel
    from acp_bridge.faces.http.app import Face
    from acp_bridge.faces.http.exchange import Output
    from acp_bridge.faces.http.gateway import Program


async def embed(face: Face, request: Request) -> Response:
    """Raises Refusal, and the typed errors of the model's name."""
    asked, ignored = wire.read(await face.body(request), wire.EmbeddingRequest)
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    if not all(texts):
        raise Refusal(400, "an input is empty", param="input", code="invalid_value")
    row = await face.gateway.row(asked.model)

    async def work(program: Program, cancel: Cancel, output: Output) -> None:
        view = Heard(output, switch=face.gateway.switch)
        if isinstance(row, RemoteModel):
            result = await _far(face, row, texts, cancel)
        else:
            result = await _vectors(program, asked.model, texts, cancel, view)
        face.gateway.counters.used(api.Usage(prefilled=result.tokens))
        await output.reply(200, _answer(asked, result))

    return face.running(request, work, wire.listed(ignored), streams=False)


async def _far(face: Face, model: RemoteModel, texts: list[str], cancel: Cancel) -> api.EmbedResult:
    """By the endpoint of a model that this server was started with."""
    client = await face.gateway.providers.client(model.id)
    return await cancel.race(lambda: client.embed(api.EmbedParams(model=model.id, texts=texts)))


async def _vectors(program: Program, model: str, texts: list[str], cancel: Cancel, view: Heard) -> api.EmbedResult:
    """Another model goes for it as it does for a turn: where that hurts nobody, or with `--switch`."""
    params = api.EmbedParams(model=model, texts=texts, allow_load=True, on_busy="wait")

    async def call() -> api.EmbedResult:
        return await program.daemon.call("model/embed", params, api.EmbedResult)

    await program.daemon.wait(cancel, view.waiting)
    try:
        return await cancel.race(call)
    except ModelSwitchRequired:
        await program.local.load(model, view, cancel)
    return await cancel.race(call)


def _answer(asked: wire.EmbeddingRequest, result: api.EmbedResult) -> dict[str, Any]:
    shape = _packed if asked.encoding_format == "base64" else list
    return {
        "object": "list",
        "model": asked.model,
        "data": [
            {"object": "embedding", "index": place, "embedding": shape(vector)}
            for place, vector in enumerate(result.vectors)
        ],
        "usage": {"prompt_tokens": result.tokens, "total_tokens": result.tokens},
    }


def _packed(vector: list[float]) -> str:
    """32-bit floats, little-endian, as the protocol has them."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
