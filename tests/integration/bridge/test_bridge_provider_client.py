"""The client of one provider at a real socket: waits, redirects, certificates, headers, counts, fills, vectors."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.cancel import Cancel
from acp_bridge.providers.client import ProviderClient
from acp_bridge.providers.config import ModelFacts, Provider
from bridge_fakes import Bench, Client, bridge
from provider_endpoint import Answer, Asked, Endpoint, Reply, refused, said
from shared.errors import ModeldError
from shared.protocol import api

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

KEY = "Marked-key-0123456789"
CHAT = "POST /v1/chat/completions"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as made:
        yield made


@asynccontextmanager
async def client_of(endpoint: Endpoint, **settings: Any) -> AsyncIterator[ProviderClient]:
    given = {"name": "lab", "base_url": endpoint.url, "timeout_s": 10.0, **settings}
    client = ProviderClient(Provider(**given))
    try:
        yield client
    finally:
        await client.close()


async def turn(client: ProviderClient, waits: list[str] | None = None, **more: Any) -> api.TurnResult:
    messages = more.pop("messages", [{"role": "user", "content": "go"}])
    params = api.TurnParams(model="lab/big", messages=messages, **more)
    return await client.turn(params, lambda event: None, Cancel(), (waits if waits is not None else []).append)


async def failure(client: ProviderClient, **more: Any) -> ModeldError:
    with pytest.raises(ModeldError) as caught:
        await turn(client, **more)
    return caught.value


# --- waiting and trying again -------------------------------------------------------------------


async def test_the_wait_that_an_endpoint_asks_for_is_kept_and_shown(endpoint: Endpoint) -> None:
    endpoint.routes[CHAT] = [refused(503, "full", retry_after="1"), said()]
    waits: list[str] = []
    async with client_of(endpoint) as client:
        await turn(client, waits)
    assert len(waits) == 1
    assert "lab is busy; trying again in 1 s" in waits[0]
    assert len(endpoint.bodies()) == 2


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504])
async def test_what_another_try_may_help_is_tried_again(endpoint: Endpoint, status: int) -> None:
    endpoint.routes[CHAT] = [refused(status, "no", retry_after_ms="1"), said()]
    async with client_of(endpoint) as client:
        assert (await turn(client)).finish_reason == "stop"
    assert len(endpoint.bodies()) == 2


@pytest.mark.parametrize(
    ("reply", "settings", "tries"),
    [
        (refused(503, "no", retry_after_ms="1"), {"max_retries": 4}, 5),
        (refused(503, "no", retry_after_ms="1"), {"max_retries": 0}, 1),
        (refused(429, "no", retry_after="3600"), {}, 1),
        (refused(503, "no", x_should_retry="false"), {}, 1),
        (refused(501, "no"), {}, 1),
        (refused(402, "no"), {}, 1),
        (refused(413, "tokens per minute", retry_after_ms="1"), {}, 3),
        (Reply(200, b"\x1f\x8bno gzip", (("Content-Encoding", "gzip"),), "text/event-stream"), {}, 1),
    ],
)
async def test_tries_are_bounded_and_made_only_where_they_can_help(
    endpoint: Endpoint, reply: Answer, settings: dict[str, Any], tries: int
) -> None:
    endpoint.routes[CHAT] = reply
    async with client_of(endpoint, **settings) as client:
        error = await failure(client)
    assert len(endpoint.bodies()) == tries
    assert "lab" in error.message
    assert "engine is not available" not in error.message
    assert "modeld library" not in error.message


async def test_an_error_names_the_request_for_the_administrator(endpoint: Endpoint) -> None:
    endpoint.routes[CHAT] = [refused(400, "bad field", X_Request_Id="req-17"), refused(400, "bad field")]
    async with client_of(endpoint) as client:
        assert "req-17" in (await failure(client)).message
        error = await failure(client)
        assert endpoint.asked[-1].headers["x-request-id"] in error.message


async def test_a_field_that_an_endpoint_does_not_know_is_left_out_from_then_on(endpoint: Endpoint) -> None:
    def picky(asked: Asked) -> Reply:
        if "stream_options" in asked.body:
            return refused(422, "Extra inputs are not permitted: stream_options")
        return said()

    endpoint.routes[CHAT] = picky
    async with client_of(endpoint) as client:
        await turn(client)
        await turn(client)
    assert ["stream_options" in body for body in endpoint.bodies()] == [True, False, False]


# --- connections and places ---------------------------------------------------------------------


async def test_turns_share_one_connection(endpoint: Endpoint) -> None:
    async with client_of(endpoint) as client:
        await client.models()
        for _ in range(3):
            await turn(client)
    assert endpoint.connections == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_within_the_origin_is_followed(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("LAB_KEY", KEY)
    endpoint.routes[CHAT] = Reply(status, b"", (("Location", "/v2/chat"),))
    endpoint.routes["POST /v2/chat"] = said("moved")
    async with client_of(endpoint, key_env="LAB_KEY") as client:
        assert (await turn(client)).finish_reason == "stop"
    last = endpoint.asked[-1]
    assert (last.method, last.path, last.body["model"]) == ("POST", "/v2/chat", "big")
    assert last.headers["authorization"] == f"Bearer {KEY}"


async def test_a_redirect_to_another_place_is_refused_and_named(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_KEY", KEY)
    with Endpoint() as elsewhere:
        target = f"{elsewhere.url}/chat/completions?token={KEY}"
        endpoint.routes[CHAT] = Reply(307, b"", (("Location", target),))
        async with client_of(endpoint, key_env="LAB_KEY") as client:
            error = await failure(client)
        assert elsewhere.asked == []
    assert elsewhere.url in error.message
    assert KEY not in error.message


async def test_redirects_in_a_circle_end(endpoint: Endpoint) -> None:
    endpoint.routes[CHAT] = Reply(308, b"", (("Location", "/v1/chat/completions"),))
    async with client_of(endpoint) as client:
        assert "redirects more than" in (await failure(client)).message


async def test_what_the_file_says_of_requests_is_sent(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY", f"{KEY}\n")
    endpoint.routes[CHAT] = [said(), said(), refused(400, f"you sent {KEY}")]
    settings = {
        "headers": {"X-Team": "blue"}, "headers_env": {"X-Gateway-Key": "GATEWAY"}, "organization": "org-1",
        "project": "proj-2", "api_version": "2026-01-01", "affinity_header": "X-Session-Key",
    }  # fmt: skip
    async with client_of(endpoint, **settings) as client:
        await turn(client, conversation="one")
        await turn(client, conversation="one")
        error = await failure(client, conversation="two")
    first, second, third = endpoint.asked
    sent = first.headers
    assert (sent["x-team"], sent["x-gateway-key"], sent["openai-organization"]) == ("blue", KEY, "org-1")
    assert sent["openai-project"] == "proj-2"
    assert sent["user-agent"].startswith("modeld/")
    assert first.path == "/v1/chat/completions?api-version=2026-01-01"
    assert first.headers["x-session-key"] == second.headers["x-session-key"] != third.headers["x-session-key"]
    assert KEY not in error.message


async def test_a_header_whose_variable_is_not_set_is_named(endpoint: Endpoint) -> None:
    async with client_of(endpoint, headers_env={"X-Gateway-Key": "NOT_SET_ANYWHERE"}) as client:
        assert "NOT_SET_ANYWHERE" in (await failure(client)).message
    assert endpoint.asked == []


# --- certificates -------------------------------------------------------------------------------


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of its own for 127.0.0.1, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test's own")])
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - dt.timedelta(hours=1)).not_valid_after(now + dt.timedelta(days=1))
    made = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    raw = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(raw)
    return folder / "cert.pem", folder / "key.pem"


async def test_a_private_authority_is_trusted_by_its_file_alone(endpoint: Endpoint, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    plain = endpoint.url
    endpoint.secure(context)
    assert endpoint.url.startswith("https:")
    async with client_of(endpoint, ca_file=str(cert)) as client:
        assert (await turn(client)).finish_reason == "stop"
    async with client_of(endpoint) as client:
        error = await failure(client)
        assert "not trusted" in error.message
        assert "ca_file" in error.message
    assert len(endpoint.bodies()) == 1
    async with client_of(endpoint, base_url=plain, max_retries=0) as client:
        assert "does it speak https" in (await failure(client)).message
    async with client_of(endpoint, ca_file=str(tmp_path / "none.pem")) as client:
        assert "none.pem cannot be read" in (await failure(client)).message
    async with client_of(endpoint, ca_file=str(key)) as client:
        assert "cannot be read" in (await failure(client)).message


async def test_https_to_a_port_without_it_says_so(endpoint: Endpoint) -> None:
    async with client_of(endpoint, base_url=endpoint.url.replace("http:", "https:")) as client:
        assert "speak https" in (await failure(client)).message


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "reused"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 90}}, 90),
        ({"prompt_cache_hit_tokens": 64}, 64),
        ({"prompt_tokens_details": None}, 0),
        ({"prompt_tokens_details": {"cached_tokens": 5000}}, 100),
    ],
)
async def test_what_was_warm_is_counted(endpoint: Endpoint, usage: dict[str, Any], reused: int) -> None:
    endpoint.routes[CHAT] = said(prompt_tokens=100, completion_tokens=7, **usage)
    async with client_of(endpoint) as client:
        await client.models()
        result = await turn(client)
    assert (result.usage.reused, result.usage.prefilled, result.usage.generated) == (reused, 100 - reused, 7)
    assert result.num_ctx == 4096


async def test_an_answer_that_ends_at_the_window_says_so(endpoint: Endpoint) -> None:
    endpoint.routes[CHAT] = [said("a", "length", prompt_tokens=4000, completion_tokens=96),
                             said("a", "length", prompt_tokens=10, completion_tokens=5)]  # fmt: skip
    async with client_of(endpoint) as client:
        await client.models()
        assert (await turn(client)).finish_reason == "context_full"
        assert (await turn(client)).finish_reason == "length"


WORDS = [{"role": "user", "content": "word " * 100}]


async def test_the_servers_own_tokenizer_counts(endpoint: Endpoint) -> None:
    endpoint.routes["POST /tokenize"] = Reply(body={"count": 123, "max_model_len": 4096, "tokens": [1] * 123})
    async with client_of(endpoint) as client:
        counted, exact = await client.count("lab/big", WORDS, [{"type": "function"}])
    assert (counted.total, exact) == (123, True)
    assert endpoint.asked[0].body["model"] == "big"
    assert endpoint.asked[0].body["tools"] == [{"type": "function"}]


async def test_llama_servers_tokenizer_counts(endpoint: Endpoint) -> None:
    def tokenize(asked: Asked) -> Reply:
        return Reply(body={"tokens": [1] * len(asked.body.get("content", "").split())})

    endpoint.routes["POST /tokenize"] = tokenize
    endpoint.routes["POST /apply-template"] = lambda asked: Reply(body={"prompt": asked.body["messages"][0]["content"]})
    async with client_of(endpoint) as client:
        for _ in range(2):
            counted, exact = await client.count("lab/big", WORDS, [])
            assert (counted.total, exact) == (100, True)
    assert len(endpoint.asked) == 5, "what answered once is asked from then on"


async def test_a_tokenizer_of_texts_alone_counts_about(endpoint: Endpoint) -> None:
    def ray(asked: Asked) -> Reply:
        if "prompt" not in asked.body:
            return refused(400, "Field required at ('body', 'prompt')")
        return Reply(body={"count": len(asked.body["prompt"].split())})

    endpoint.routes["POST /tokenize"] = ray
    async with client_of(endpoint) as client:
        counted, exact = await client.count("lab/big", WORDS, [])
    assert (100 <= counted.total <= 110, exact) == (True, False)


async def test_a_server_without_a_tokenizer_is_calibrated_by_what_it_counted(endpoint: Endpoint) -> None:
    endpoint.routes[CHAT] = said(prompt_tokens=300, completion_tokens=1)
    async with client_of(endpoint) as client:
        before, exact = await client.count("lab/big", WORDS, [])
        asked = len(endpoint.asked)
        await turn(client, messages=WORDS)
        after, _ = await client.count("lab/big", WORDS, [])
    assert not exact
    assert before.total < 250
    assert 300 <= after.total <= 330
    assert len(endpoint.asked) == asked + 1, "routes that are not there are asked once"


async def test_more_tokens_than_fit_behind_the_prompt_are_not_asked_for_twice(endpoint: Endpoint) -> None:
    text = (
        "This model's maximum context length is 2048 tokens and your request has 1600 input tokens (500 > 2048 - 1600)."
    )
    endpoint.routes[CHAT] = [refused(400, text), said()]
    async with client_of(endpoint) as client:
        await turn(client, params=api.Sampling(max_tokens=500))
    assert [body["max_tokens"] for body in endpoint.bodies()] == [500, 440]


# --- conversations that grow --------------------------------------------------------------------


def shrinking(window: int, words: str) -> Any:
    """An endpoint that counts a token a word of the messages, and refuses in `words`."""

    def answer(asked: Asked) -> Reply:
        count = len(json.dumps(asked.body["messages"]).split())
        if count > window:
            return refused(400, words.format(count=count, window=window))
        return said("fine", prompt_tokens=count, completion_tokens=1)

    return answer


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is {window} tokens. However, your messages resulted in {count} tokens.",
        "prompt is too long: {count} tokens > {window} maximum",
        "the input length exceeds the context length",
    ],
)
async def test_a_refusal_is_answered_by_leaving_out_whole_exchanges(
    bench: Bench, endpoint: Endpoint, words: str
) -> None:
    endpoint.routes["GET /v1/models"] = Reply(body={"data": [{"id": "big"}]})
    endpoint.routes[CHAT] = shrinking(700, words)
    (bench.folder / "config.toml").write_text(f'[providers.lab]\nbase_url = "{endpoint.url}"\n')
    async with bridge(bench) as client:
        session = await picked(client)
        for number in range(6):
            done = await client.prompt(session, f"message {number} " + "word " * 120)
            assert done["stopReason"] == "end_turn"
        assert "no longer fit the window" in client.text()
        sent = endpoint.bodies()[-1]["messages"]
        assert "message 5" in str(sent)
        assert "message 0" not in str(sent)
        with pytest.raises(ModeldError) as caught:
            await client.prompt(session, "word " * 3000)
        assert caught.value.kind == "context_overflow"
        assert "lab" in caught.value.message


async def test_all_of_a_window_can_be_used_where_the_server_counts(bench: Bench, endpoint: Endpoint) -> None:
    endpoint.routes["GET /v1/models"] = Reply(body={"data": [{"id": "big", "max_model_len": 2048}]})
    endpoint.routes["POST /tokenize"] = Reply(body={"count": 1300})
    endpoint.routes[CHAT] = said("fine", prompt_tokens=1300, completion_tokens=1)
    (bench.folder / "config.toml").write_text(f'[providers.lab]\nbase_url = "{endpoint.url}"\n')
    async with bridge(bench) as client:
        session = await picked(client)
        await client.prompt(session, "x" * 5000)  # 2,500 by the cheap guess
        assert client.text() == "fine"
        assert {"used": 1301, "size": 2048}.items() <= next(
            update for _, update in client.updates if update["sessionUpdate"] == "usage_update"
        ).items()
        await client.prompt(session, "/context")
        assert "1,300 tokens" in client.text()


async def picked(client: Client) -> str:
    await client.initialize()
    session = await client.new()
    setting = {"sessionId": session, "configId": "model", "value": "lab/big"}
    await client.request("session/set_config_option", setting)
    return session


async def test_a_page_in_place_of_a_list_is_named(endpoint: Endpoint) -> None:
    endpoint.routes["GET /v1/models"] = Reply(body="<html>sign in</html>", kind="text/html")
    async with client_of(endpoint) as client:
        with pytest.raises(ModeldError) as caught:
            await client.models()
    assert "text/html" in caught.value.message
    assert "base_url" in caught.value.message or endpoint.url in caught.value.message


# --- fills and vectors --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [True, "<PRE>{prefix}<SUF>{suffix}<MID>"])
async def test_a_text_is_filled_in_as_the_file_says(endpoint: Endpoint, shape: bool | str) -> None:
    endpoint.routes["POST /v1/completions"] = Reply(
        body={"choices": [{"text": "return 1"}], "usage": {"prompt_tokens": 9}}
    )
    facts = {"big": ModelFacts(inline_completion=shape)}
    asked = api.FillParams(model="lab/big", prefix="a{suffix}", suffix="b", params=api.Sampling(max_tokens=5))
    async with client_of(endpoint, model=facts) as client:
        assert (await client.fill(asked)).text == "return 1"
    [sent] = endpoint.bodies("/v1/completions")
    expected = {"prompt": "a{suffix}", "suffix": "b"} if shape is True else {"prompt": "<PRE>a{suffix}<SUF>b<MID>"}
    assert sent == {"model": "big", "stream": False, "max_tokens": 5, **expected}


async def test_vectors_come_in_the_order_of_their_texts(endpoint: Endpoint) -> None:
    data = [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]
    endpoint.routes["POST /v1/embeddings"] = [Reply(body={"data": data, "usage": {"prompt_tokens": 4}}),
                                              Reply(body={"data": data[:1]})]  # fmt: skip
    async with client_of(endpoint) as client:
        result = await client.embed(api.EmbedParams(model="lab/big", texts=["a", "b"]))
        assert (result.vectors, result.tokens) == ([[1.0], [2.0]], 4)
        with pytest.raises(ModeldError):
            await client.embed(api.EmbedParams(model="lab/big", texts=["a", "b"]))
