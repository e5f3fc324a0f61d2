"""Remote models of a real server process: llama-cpp-python's own, with its routes, its stream and its errors."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from bridge_fakes import Bench, Client, bridge
from llama_server import BREAK
from shared.errors import ModeldError
from tiny_gguf import write_tiny_gguf

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.llama, pytest.mark.timeout(120)]

KEY = "s3cret"
UP_SECONDS = 60.0


class Server:
    """One server process on a loopback port."""

    def __init__(self, model: Path, chat_format: str = "", key: str = "") -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._command = [
            sys.executable, str(Path(__file__).parents[2] / "llama_server.py"), str(self.port), str(model), chat_format,
            key,
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)

    def up(self) -> None:
        """Return when it listens."""
        deadline = time.monotonic() + UP_SECONDS
        while True:
            assert self.process is not None
            assert self.process.poll() is None, "the server ended"
            with socket.socket() as probe:
                probe.settimeout(1.0)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert time.monotonic() < deadline, "the server does not come up"
            time.sleep(0.05)

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", context=512)


@pytest.fixture(scope="module")
def scripted(tiny_file: Path) -> Iterator[Server]:
    server = Server(tiny_file, "scripted", KEY)
    server.start()
    server.up()
    yield server
    server.end()


@pytest.fixture(scope="module")
def plain(tiny_file: Path) -> Iterator[Server]:
    """The model's own template and its own noise."""
    server = Server(tiny_file)
    server.start()
    server.up()
    yield server
    server.end()


@asynccontextmanager
async def remote(bench: Bench, server: Server, *lines: str) -> AsyncIterator[tuple[Client, str]]:
    """A bridge with that endpoint, and a session on its model."""
    config = [f'[providers.lab]\nbase_url = "{server.url}"', *lines]
    (bench.folder / "config.toml").write_text("\n".join(config) + "\n")
    work = bench.folder / "work"
    work.mkdir(exist_ok=True)
    (work / "notes.txt").write_text("the answer is 42\n")
    async with bridge(bench) as client:
        await client.initialize()
        made = await client.request("session/new", {"cwd": str(work), "mcpServers": []})
        session = str(made["sessionId"])
        await client.wait_for(lambda: "lab/tiny" in str([made, client.updates]))
        await client.request(
            "session/set_config_option", {"sessionId": session, "configId": "model", "value": "lab/tiny"}
        )
        yield client, session


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LAB_KEY", KEY)
    return 'key_env = "LAB_KEY"'


async def test_its_models_are_listed_and_its_answer_is_streamed(bench: Bench, plain: Server) -> None:
    async with remote(bench, plain) as (client, session):
        done = await client.prompt(session, "hi")
        assert done["stopReason"] in ("end_turn", "max_tokens")
        assert client.text()
        assert client.kinds().count("agent_message_chunk") > 1, "in pieces"


async def test_reasoning_and_calls_are_distinguished(bench: Bench, scripted: Server, keyed: str) -> None:
    async with remote(bench, scripted, keyed) as (client, session):
        assert (await client.prompt(session, "what is in the notes?"))["stopReason"] == "end_turn"
        assert client.text("agent_thought_chunk") == "Let me think." * 2
        assert client.text() == "The answer is 42."
        cards = [update for _, update in client.updates if update["sessionUpdate"].startswith("tool_call")]
        assert (cards[0]["title"], cards[-1]["status"]) == ("Read notes.txt", "completed")
        assert len({card["toolCallId"] for card in cards}) == 1


async def test_a_wrong_key_is_refused_once(bench: Bench, scripted: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", "wrong")
    async with remote(bench, scripted, 'key_env = "LAB_KEY"', 'models = ["tiny"]') as (client, session):
        with pytest.raises(ModeldError) as failed:
            await client.prompt(session, "hi")
        assert failed.value.kind == "backend_unavailable"
        assert "the key was refused" in failed.value.message
        monkeypatch.setenv("LAB_KEY", KEY)  # stored again: the next prompt uses it
        assert (await client.prompt(session, "hi"))["stopReason"] == "end_turn"


async def test_a_prompt_that_the_server_breaks_on_is_typed(bench: Bench, plain: Server) -> None:
    """This server answers 200 and then ends the stream when a prompt is larger than its window."""
    async with remote(bench, plain) as (client, session):
        with pytest.raises(ModeldError) as failed:
            await client.prompt(session, "many words " * 400)
        assert failed.value.kind == "engine_failed"
        assert "broke the answer off" in failed.value.message
        assert client.text() == ""


async def test_an_answer_that_breaks_is_not_begun_again(bench: Bench, scripted: Server, keyed: str) -> None:
    async with remote(bench, scripted, keyed) as (client, session):
        with pytest.raises(ModeldError) as failed:
            await client.prompt(session, BREAK)
        assert failed.value.kind == "engine_failed"
        assert client.text() == "half"
        assert (await client.prompt(session, "again"))["stopReason"] == "end_turn"


async def test_a_server_that_stands_still_is_a_timeout(bench: Bench, scripted: Server, keyed: str) -> None:
    async with remote(bench, scripted, keyed, "timeout_s = 0.5") as (client, session):
        assert scripted.process is not None
        scripted.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(ModeldError) as failed:
                await client.prompt(session, "hi")
        finally:
            scripted.process.send_signal(signal.SIGCONT)
        assert failed.value.kind == "wait_timeout"


async def test_a_server_that_is_not_up_yet_is_tried_again(
    bench: Bench, tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_bridge.providers.config.MOST_RETRIES", 500)
    monkeypatch.setattr("acp_bridge.providers.retry.MOST_S", 0.1)
    server = Server(tiny_file, "scripted")
    try:
        async with remote(bench, server, 'models = ["tiny"]', "max_retries = 500") as (client, session):
            async with anyio.create_task_group() as group:

                async def prompt() -> None:
                    assert (await client.prompt(session, "hi"))["stopReason"] == "end_turn"

                group.start_soon(prompt)
                await anyio.to_thread.run_sync(server.start)
            assert client.text() == "The answer is 42."
    finally:
        server.end()


async def test_a_server_that_dies_in_an_answer_is_typed(bench: Bench, tiny_file: Path) -> None:
    server = Server(tiny_file)
    server.start()
    try:
        await anyio.to_thread.run_sync(server.up)
        async with remote(bench, server) as (client, session):
            async with anyio.create_task_group() as group:

                async def prompt() -> None:
                    with pytest.raises(ModeldError) as failed:
                        await client.prompt(session, "hi")
                    assert failed.value.kind == "engine_failed"

                group.start_soon(prompt)
                await client.wait_for(lambda: client.text() != "")
                server.end()
    finally:
        server.end()
