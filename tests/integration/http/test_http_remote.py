"""A remote model through the HTTP face: chat, completion, vectors; only one that the server was started with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from http_world import HttpServer, serving
from lsp_world import World
from provider_endpoint import Endpoint, Reply, said

pytestmark = pytest.mark.integration


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint(big={"max_model_len": 4096}, other={}) as made:
        vectors = {"data": [{"embedding": [1.0, 2.0]}], "usage": {"prompt_tokens": 3}}
        usage: dict[str, Any] = {
            "prompt_tokens": 10,
            "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 8},
        }
        made.routes["POST /v1/chat/completions"] = said("hello", **usage)
        made.routes["POST /v1/completions"] = Reply(body={"choices": [{"text": "between"}], "usage": {}})
        made.routes["POST /v1/embeddings"] = Reply(body=vectors)
        yield made


@pytest.fixture
def server(short_tmp: Path, endpoint: Endpoint) -> Iterator[HttpServer]:
    world = World(short_tmp)
    config = short_tmp / "config.toml"
    config.write_text(f'[providers.lab]\nbase_url = "{endpoint.url}"\n')
    world.environ["MODELD_CONFIG"] = str(config)
    with serving(world, "--remote", "lab/big") as made:
        yield made


def test_a_remote_model_that_was_named_at_the_start_does_what_a_local_one_does(
    server: HttpServer, endpoint: Endpoint
) -> None:
    told = server.chat("lab/big").json
    assert told["choices"][0]["message"]["content"] == "hello"
    assert told["usage"]["prompt_tokens_details"]["cached_tokens"] == 8
    for fields in ({"suffix": "b"}, {}):
        filled = server.ask("POST", "/v1/completions", {"model": "lab/big", "prompt": "a", **fields})
        assert filled.json["choices"][0]["text"] == "between"
        sent = endpoint.bodies("/v1/completions")[-1]
        assert (sent["prompt"], sent.get("suffix")) == ("a", fields.get("suffix"))
    vectors = server.ask("POST", "/v1/embeddings", {"model": "lab/big", "input": "a"})
    assert vectors.json["data"][0]["embedding"] == [1.0, 2.0]
    asked = len(endpoint.asked)
    for path, field in (("chat/completions", "messages"), ("completions", "prompt"), ("embeddings", "input")):
        value = [{"role": "user", "content": "hi"}] if field == "messages" else "hi"
        assert server.ask("POST", f"/v1/{path}", {"model": "lab/other", field: value}).status == 404
    assert len(endpoint.asked) == asked, "one that was not named is sent nothing"
