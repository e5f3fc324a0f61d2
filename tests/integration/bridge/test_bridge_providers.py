"""Remote models through a real HTTP server: streamed, cancelled, failing in each way; modeld is not needed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from bridge_fakes import Bench, Client, bridge, running
from lsp_fakes import window
from shared.errors import ModeldError

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

Reply = Callable[[asyncio.StreamWriter, dict[str, Any]], Awaitable[None]]


def head(status: int, kind: str = "text/event-stream") -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n".encode()


def event(**delta: Any) -> bytes:
    reason = delta.pop("finish", None)
    return b"data: " + json.dumps({"choices": [{"delta": delta, "finish_reason": reason}]}).encode() + b"\n\n"


class Server:
    """Answers /models, and /chat/completions by the replies in turn (the last one again and again)."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self.replies: list[Reply] = [hello]
        self.hung_up = anyio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            raw = await reader.readuntil(b"\r\n\r\n")
            text = raw.decode()
            self.headers.append(text)
            if text.startswith("GET"):
                listed = {"data": [{"id": "big", "max_model_len": 4096}]}
                writer.write(head(200, "application/json") + json.dumps(listed).encode())
            else:
                length = int(text.lower().split("content-length:")[1].split("\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                if not text.startswith("POST /v1/chat/completions"):
                    writer.write(head(404))
                    return
                self.bodies.append(body)
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                await reply(writer, self.bodies[-1])
            await writer.drain()
        except ConnectionError:
            self.hung_up.set()
        finally:
            writer.close()


async def hello(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
    writer.write(head(200) + event(content="Hel") + event(content="lo", finish="stop"))
    writer.write(b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}\n\ndata: [DONE]\n\n')


def status(code: int, message: str) -> Reply:
    async def reply(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        writer.write(head(code, "application/json") + json.dumps({"error": {"message": message}}).encode())

    return reply


async def cut(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
    writer.write(head(200) + event(content="half"))


@asynccontextmanager
async def remote(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, more: str = ""
) -> AsyncIterator[tuple[Server, Client, str]]:
    """A bridge with one provider (`more` of its configuration) and a session on its model."""
    monkeypatch.setenv("TEST_KEY", "s3cret")
    monkeypatch.setattr("acp_bridge.providers.retry.FIRST_S", 0.0)
    server = Server()
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    (bench.folder / "config.toml").write_text(
        f'[providers.lab]\nbase_url = "http://127.0.0.1:{port}/v1"\nkey_env = "TEST_KEY"\ntimeout_s = 5\n{more}'
    )
    async with listener, bridge(bench) as client:
        await client.initialize()
        made = await client.request("session/new", {"cwd": "/tmp", "mcpServers": []})
        session = str(made["sessionId"])
        await client.wait_for(lambda: "lab/big" in str([made, client.updates]))
        setting = {"sessionId": session, "configId": "model", "value": "lab/big"}
        await client.request("session/set_config_option", setting)
        yield server, client, session


async def test_a_remote_model_answers_without_modeld(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async with remote(bench, monkeypatch) as (server, client, session):
        done = await client.prompt(session, "hi")
        assert (done["stopReason"], client.text()) == ("end_turn", "Hello")
        assert done["_meta"]["modeld.turn"]["generated"] == 2
        assert server.bodies[0]["model"] == "big"
        assert server.bodies[0]["messages"][-1] == {"role": "user", "content": "hi"}
        assert "Bearer s3cret" in server.headers[-1]


async def test_images_go_to_a_remote_model_that_is_said_to_see(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = [{"type": "image", "data": "aGk=", "mimeType": "image/png"}, {"type": "text", "text": "what is it?"}]
    async with remote(bench, monkeypatch, "vision = true\n") as (server, client, session):
        await client.request("session/prompt", {"sessionId": session, "prompt": prompt})
        image, words = server.bodies[0]["messages"][-1]["content"]
        assert image == {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
        assert words["text"] == "what is it?"


async def test_a_filtered_answer_is_a_refusal(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def filtered(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        writer.write(head(200) + event(content="I", finish="content_filter") + b"data: [DONE]\n\n")

    async with remote(bench, monkeypatch) as (server, client, session):
        server.replies = [filtered]
        assert (await client.prompt(session, "hi"))["stopReason"] == "refusal"


async def test_tools_can_be_taken_from_a_remote_model(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async with remote(bench, monkeypatch) as (server, client, session):
        await client.prompt(session, "hi")
        await client.prompt(session, "/tools off")
        await client.prompt(session, "hi")
        assert "tools" in server.bodies[0]
        assert "tools" not in server.bodies[1]


async def test_a_busy_endpoint_is_tried_again_before_the_first_byte(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with remote(bench, monkeypatch) as (server, client, session):
        server.replies = [status(503, "starting"), status(429, "busy"), hello]
        assert (await client.prompt(session, "hi"))["stopReason"] == "end_turn"
        assert len(server.bodies) == 3


@pytest.mark.parametrize(
    ("reply", "kind", "tries"),
    [
        (status(401, "no"), "backend_unavailable", 1),
        (status(404, "no"), "model_not_found", 1),
        (status(429, "no"), "queue_full", 3),
        (status(500, "no"), "backend_unavailable", 3),
        (status(400, "maximum context length is 10"), "context_overflow", 1),
        (status(400, "bad field"), "unsupported_feature", 1),
        (cut, "engine_failed", 1),
    ],
)
async def test_each_failure_has_its_type(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, reply: Reply, kind: str, tries: int
) -> None:
    async with remote(bench, monkeypatch) as (server, client, session):
        server.replies = [reply]
        with pytest.raises(ModeldError) as failed:
            await client.prompt(session, "hi")
        assert failed.value.kind == kind
        assert "s3cret" not in failed.value.message
        assert len(server.bodies) == tries
        server.replies = [hello]
        assert (await client.prompt(session, "again"))["stopReason"] == "end_turn"


async def test_a_cancel_hangs_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async with remote(bench, monkeypatch) as (server, client, session):

        async def endless(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
            writer.write(head(200))
            while True:
                writer.write(event(content="x" * 1000))
                await writer.drain()
                await asyncio.sleep(0.001)

        server.replies = [endless]
        async with anyio.create_task_group() as group:

            async def prompt() -> None:
                assert (await client.prompt(session, "go"))["stopReason"] == "cancelled"

            group.start_soon(prompt)
            await client.wait_for(lambda: "agent_message_chunk" in client.kinds())
            client.notify("session/cancel", {"sessionId": session})
        with anyio.fail_after(5):
            await server.hung_up.wait()


async def test_a_local_failure_never_becomes_a_remote_call(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(bench) as daemon, remote(bench, monkeypatch) as (server, client, session):
        setting = {"sessionId": session, "configId": "model", "value": "alpha"}
        await client.request("session/set_config_option", setting)
        daemon.close()
        from shared.client.locate import Detection

        bench.records.detection = Detection(state="not_running", stopped=True)
        with pytest.raises(ModeldError) as failed:
            await client.prompt(session, "hi")
        assert failed.value.kind.startswith("daemon_")
        assert server.bodies == []


async def broken_call(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
    """One call that can be run and one that cannot; then the end."""
    if any(message["role"] == "tool" for message in body["messages"]):
        await hello(writer, body)
        return
    calls = [
        {"index": 0, "id": "good", "function": {"name": "list_folder", "arguments": "{}"}},
        {"index": 1, "id": "bad", "function": {"name": "read_file", "arguments": "{not json"}},
    ]
    writer.write(head(200) + event(tool_calls=calls, finish="tool_calls") + b"data: [DONE]\n\n")


async def test_a_call_that_cannot_be_run_is_a_failed_card_and_reported_to_the_model(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with remote(bench, monkeypatch) as (server, client, session):
        server.replies = [broken_call]
        assert (await client.prompt(session, "go"))["stopReason"] == "end_turn"
        reported = {message["tool_call_id"]: message["content"] for message in server.bodies[1]["messages"][-2:]}
        assert "its arguments are not a JSON object: {not json" in reported["bad"]
        assert "Error" not in reported["good"]
        shapes = next(message for message in server.bodies[1]["messages"] if message.get("tool_calls"))
        assert [json.loads(call["function"]["arguments"]) for call in shapes["tool_calls"]] == [{}, {}]
        cards = [update for _, update in client.updates if update["sessionUpdate"] == "tool_call"]
        failed = [card for card in cards if card["title"] == "read_file"]
        assert [card["status"] for card in failed] == ["failed"]
        assert "{not json" in str(failed[0]["content"])


async def test_what_is_odd_about_an_answer_is_reported_behind_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def odd(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        writer.write(head(200) + event(content="half") + b"data: {no json\n\n" + event(finish="repetition"))

    async with remote(bench, monkeypatch) as (server, client, session):
        server.replies = [odd]
        assert (await client.prompt(session, "go"))["stopReason"] == "end_turn"
        said = client.text()
        assert said.startswith("half")
        assert "ended the answer for a reason that is not known here: repetition" in said
        assert "A piece of the answer of lab could not be read" in said


async def test_an_error_in_the_middle_ends_the_turn_as_one_and_keeps_what_came(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        writer.write(head(200) + event(content="half") + b'data: {"error": "CUDA out of memory"}\n\ndata: [DONE]\n\n')

    async with remote(bench, monkeypatch) as (server, client, session):
        server.replies = [failing]
        with pytest.raises(ModeldError) as failed:
            await client.prompt(session, "go")
        assert (failed.value.kind, client.text()) == ("engine_failed", "half")
        assert "CUDA out of memory" in failed.value.message


async def test_a_call_that_cannot_be_run_is_not_given_to_an_editor_that_runs_calls(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with remote(bench, monkeypatch) as (server, _, _), window(bench) as editor:
        server.replies = [broken_call]
        with anyio.fail_after(10):
            while "lab/big" not in str(await editor.request("modeld/models")):
                await anyio.sleep(0.02)
        await editor.request("modeld/pick", {"model": "lab/big"})
        tools = [{"name": "read_file", "description": "", "parameters": {"type": "object"}}]
        ended = await editor.turn("lab/big", "go", tools=tools).end()
        assert [call["id"] for call in ended["toolCalls"]] == ["good"]
        assert "The call of read_file cannot be run" in ended["warnings"][0]
