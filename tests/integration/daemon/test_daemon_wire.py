"""What a connection may and may not do: handshake, fence, versions, pushes, and its end."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from modeld_process import ENDLESS, Client, Modeld, write_script
from shared.endpoint.endpoint import connect
from shared.errors import ModeldError, ProtocolUnsupported, SessionClosed, SlotGenerationStale, StaleFence
from shared.lease.presence import read_token
from shared.paths import DataRoot
from shared.protocol import api
from shared.protocol.faults import InvalidParams, MethodNotFound, PeerGone
from tiny_gguf import write_tiny_gguf

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(60)]

FOREVER = api.Sampling(max_tokens=10**6)


def scripted(root: DataRoot, *replies: dict[str, Any], **environ: str) -> Modeld:
    return Modeld(root, "scripted", **write_script(root.path, replies, token_s=0.005), **environ)


class Raw:
    """Lines over the socket, with nothing between the test and the bytes."""

    def __init__(self, modeld: Modeld) -> None:
        self.modeld = modeld
        self.buffer = b""

    async def open(self) -> None:
        view = self.modeld.view()
        assert view is not None
        self.view = view
        self.stream = await connect(view.endpoint, timeout=5.0, expected_pid=view.pid)

    async def ask(self, method: str, params: dict[str, Any], number: int = 1) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        await self.stream.send(json.dumps(message).encode() + b"\n")
        return await self.line()

    async def line(self) -> dict[str, Any]:
        with anyio.fail_after(5.0):
            while b"\n" not in self.buffer:
                self.buffer += await self.stream.receive()
        line, _, self.buffer = self.buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def hello(self, token: str | None = None, protocol: int = 1) -> dict[str, Any]:
        secret = read_token(self.view.token_file) if token is None else token
        return {"protocol": protocol, "token": secret, "client": {"name": "raw"}}


async def test_a_wrong_token_is_refused_and_the_connection_closed(models: DataRoot) -> None:
    async with scripted(models) as modeld:
        raw = Raw(modeld)
        await raw.open()
        answer = await raw.ask("hello", raw.hello(token="0" * 64))
        assert answer["error"]["data"]["kind"] == "unauthenticated"
        with pytest.raises(anyio.EndOfStream), anyio.fail_after(5.0):
            await raw.stream.receive()
        await raw.stream.aclose()


@pytest.mark.parametrize("method", ["status", "ping", "session/turn", "daemon/shutdown", "no/such"])
async def test_nothing_is_answered_before_hello(models: DataRoot, method: str) -> None:
    async with scripted(models) as modeld:
        raw = Raw(modeld)
        await raw.open()
        answer = await raw.ask(method, {})
        assert answer["error"]["data"]["kind"] == "unauthenticated"
        await raw.stream.aclose()


async def test_a_conversation_of_the_wrong_shape_is_named_before_anything_is_loaded(models: DataRoot) -> None:
    wrong: list[dict[str, Any]] = [{"role": "user", "content": [5, None]}]
    asked: list[tuple[str, api.Fenced]] = [
        ("session/turn", api.TurnParams(model="a", messages=wrong, allow_load=True)),
        ("session/warm", api.WarmParams(model="a", messages=wrong)),
        ("model/count", api.CountParams(model="a", messages=wrong)),
    ]
    async with scripted(models) as modeld, modeld.client() as client:
        for method, params in asked:
            with pytest.raises(InvalidParams) as caught:
                await client.call(method, params, api.Value)
            assert caught.value.at == "$.messages[0].content[0]"
        assert (await client.status()).generation == 0


async def test_unknown_methods_and_wrong_params_are_named(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client() as client:
        with pytest.raises(MethodNotFound) as caught:
            await client.call("no/such", api.Fenced(), api.Value)
        assert caught.value.code == -32601
        with pytest.raises(InvalidParams):
            await client.peer.request("model/load", {"fence": client.hello.instance, "model": 7})
        assert (await client.status()).state == "Empty"


async def test_every_call_is_meant_for_one_instance(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client() as client:
        for fence in ("", "another-instance"):
            with pytest.raises(StaleFence) as caught:
                await client.peer.request("status", {"fence": fence}, api.Status)
            assert caught.value.actual == client.hello.instance
        with pytest.raises(StaleFence):
            await client.turn("a", fence="another-instance").end()


@pytest.mark.parametrize("protocol", [0, 99])
async def test_neighbouring_versions_can_at_least_greet_look_and_stop(models: DataRoot, protocol: int) -> None:
    async with scripted(models) as modeld:
        async with modeld.client(protocol=protocol) as client:
            assert client.hello.protocol == api.PROTOCOL
            assert (await client.call("ping", api.Fenced(), api.PingResult)).instance == client.hello.instance
            assert (await client.status()).state == "Empty"
            with pytest.raises(ProtocolUnsupported) as caught:
                await client.load("a")
            assert (caught.value.min, caught.value.max) == (api.PROTOCOL_MIN, api.PROTOCOL_MAX)
            await client.call("daemon/shutdown", api.ShutdownParams(), api.Value)
        assert await modeld.end() == 0


async def test_status_answers_while_a_turn_runs(models: DataRoot) -> None:
    async with scripted(models, ENDLESS) as modeld, modeld.client() as client, modeld.client("other") as other:
        running = client.turn("a", params=FOREVER)
        await running.until(api.TextDelta)
        for _ in range(20):
            status = await other.status()
            assert status.state == "Busy"
        assert status.active is not None
        assert status.memory.measured_bytes
        client.cancel(running)
        ended = await running.end()
        assert (await other.status()).last_turn == ended


async def test_pushes_come_on_change_only_and_carry_the_latest(models: DataRoot) -> None:
    async with scripted(models, ENDLESS) as modeld, modeld.client("watcher") as watcher, modeld.client() as client:
        await watcher.call("status/watch", api.WatchParams(), api.Status)
        running = client.turn("a", params=FOREVER)
        await running.until(api.TextDelta)
        await running.until(api.TextDelta)
        while not any(status.busy and status.busy.stage == "generating" for status in watcher.statuses):
            await anyio.sleep(0.01)
        count = len(watcher.statuses)
        before = len(running.events)
        while len(running.events) < before + 20:  # twenty more pieces of text, and nothing for people to see
            await anyio.sleep(0.01)
        assert len(watcher.statuses) <= count + 1
        client.cancel(running)
        await running.end()
        while watcher.statuses[-1].state != "Ready":
            await anyio.sleep(0.01)
        await watcher.call("status/watch", api.WatchParams(stop=True), api.Status)


async def test_handles_act_only_on_their_instance_and_generation(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client() as client:
        opened = await client.call("session/open", api.OpenParams(model="a", allow_load=True), api.OpenResult)
        assert opened.handle == f"{client.hello.instance}/{opened.generation}/1"
        explained = await client.call("session/explain", api.HandleParams(handle=opened.handle), api.Status)
        assert explained.sessions == 1
        stale = opened.handle.replace(client.hello.instance, "another")
        with pytest.raises(StaleFence):
            await client.call("session/explain", api.HandleParams(handle=stale), api.Status)
        await client.load("b", allow_switch=True)
        with pytest.raises(SlotGenerationStale):
            await client.call("session/explain", api.HandleParams(handle=opened.handle), api.Status)
        second = await client.call("session/open", api.OpenParams(model="b"), api.OpenResult)
        await client.call("session/close", api.HandleParams(handle=second.handle), api.Value)
        with pytest.raises(SessionClosed):
            await client.call("session/explain", api.HandleParams(handle=second.handle), api.Status)
        with pytest.raises(SessionClosed):
            await client.call("session/close", api.HandleParams(handle="nonsense"), api.Value)


async def test_sessions_end_with_their_client(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client() as stays:
        async with modeld.client() as goes:
            await goes.call("session/open", api.OpenParams(model="a", allow_load=True), api.OpenResult)
            assert (await stays.status()).sessions == 1
        with anyio.fail_after(5.0):
            while (await stays.status()).sessions:
                await anyio.sleep(0.005)


async def test_an_oversized_message_is_a_typed_error_and_the_stream_goes_on(models: DataRoot) -> None:
    async with scripted(models, MODELD_MESSAGE_LIMIT="4096") as modeld, modeld.client() as client:
        turn = client.turn("a", "x" * 9000)
        with pytest.raises(ModeldError) as caught:
            await turn.end()
        assert caught.value.kind == "message_too_large"
        assert (await client.status()).state == "Empty"


async def test_workspaces_and_backends_are_kept_by_the_owner(models: DataRoot) -> None:
    async with scripted(models) as modeld, modeld.client("Zed") as zed, modeld.client("VS Code") as code:
        claim = api.WorkspaceParams(workspace="/w", ttl_s=30.0)
        held = await zed.call("workspace/lease", claim, api.WorkspaceResult)
        assert held.holder == "Zed"
        with pytest.raises(ModeldError) as caught:
            await code.call("workspace/lease", claim, api.WorkspaceResult)
        assert caught.value.kind == "model_in_use"
        await zed.call(
            "workspace/lease", api.WorkspaceParams(workspace="/w", ttl_s=0, release=True), api.WorkspaceResult
        )
        assert (await code.call("workspace/lease", claim, api.WorkspaceResult)).holder == "VS Code"
        await code.call("backend/register", api.BackendParams(name="llama", config={"threads": 2}), api.Value)


async def test_prompts_and_tokens_never_reach_the_logs(models: DataRoot) -> None:
    secret = "a very private sentence"
    async with scripted(models, {"pieces": ["private answer"]}) as modeld, modeld.client() as client:
        await client.turn("a", secret).end()
        with pytest.raises(ModeldError):
            await client.turn("a", secret, params=api.Sampling(json_schema={"type": 7})).end(5.0)
        view = modeld.view()
        assert view is not None
        token = read_token(view.token_file)
    for log in models.logs.iterdir():
        text = log.read_text(errors="replace")
        assert secret not in text
        assert "private answer" not in text
        assert token not in text


async def test_a_pull_survives_its_caller_and_is_shared(models: DataRoot, tmp_path: Any) -> None:
    source = write_tiny_gguf(tmp_path / "c.gguf", name="c", seed=5)
    async with scripted(models) as modeld, modeld.client() as stays:
        async with modeld.client() as goes:
            params = api.PullParams(source=str(source), fence=goes.hello.instance)
            goes.tasks.start_soon(_ignore_end, goes, params)
            await goes.status()  # it has been read: requests are started in order
        with anyio.fail_after(10.0):
            while True:
                rows = (await stays.call("library/refresh", api.LibraryParams(), api.LibraryResult)).rows
                if any(row.path.endswith("c.gguf") for row in rows):
                    break
                await anyio.sleep(0.05)


async def _ignore_end(client: Client, params: api.PullParams) -> None:
    with pytest.raises(PeerGone):  # its connection goes on purpose
        await client.peer.request("library/pull", params)
