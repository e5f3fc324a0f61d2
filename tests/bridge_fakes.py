"""A modeld that answers from a script, and a bridge wired to it inside the test's own process.

The sockets, the framing, the handshake and the fences are the real ones; only the engine behind them is a script.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import msgspec

from acp_bridge.conversations.store import Claimant, Store
from acp_bridge.core.core import Core
from acp_bridge.daemon.client import Daemon, Dialler
from acp_bridge.faces.acp.server import AcpServer
from acp_bridge.models.library_view import LibraryView
from acp_bridge.models.view import Advertised, Models
from acp_bridge.providers.registry import Providers
from clients.npm import node_modules
from clients.schema import WireCheck
from memory_stream import memory_pair
from shared.client.errors import unreached
from shared.client.locate import Detection, Target
from shared.clock import SystemClock
from shared.endpoint.endpoint import connect, listen
from shared.endpoint.faults import EndpointError
from shared.endpoint.folder import RuntimeFolder
from shared.errors import StaleFence, Unauthenticated
from shared.protocol import api
from shared.protocol.faults import MethodNotFound
from shared.protocol.framing import LineFramer
from shared.protocol.peer import Peer
from shared.protocol.requests import Call
from shared.settings import Settings

TOKEN = "secret"

#: A script gets the params, a way to emit events, and an event that is set by a cancel.
Emit = Callable[[api.Event], None]
Script = Callable[[api.TurnParams, Emit, anyio.Event], Awaitable[api.TurnResult]]


def row(name: str, **more: Any) -> api.LibraryRow:
    """A servable local model."""
    facts = {
        "title": name.title(),
        "backend": "llama",
        "format": "gguf",
        "path": f"/m/{name}.gguf",
        "size_bytes": 92_000_000,
        "has_template": True,
    }
    return api.LibraryRow(name=name, **{**facts, "context_train": 2048, **more})


def active(name: str, num_ctx: int = 2048) -> api.ActiveModel:
    return api.ActiveModel(
        name=name, backend="llama", digest="d", path="p", device="cpu", num_ctx=num_ctx, num_batch=512, gpu_layers=0,
        flash_attention=False, kv_type="f16", template_digest="t", bos_policy="auto", reasoning_format="none",
        runtime_digest="r",
    )  # fmt: skip


def result(params: api.TurnParams, reason: api.FinishReason = "stop", **more: Any) -> api.TurnResult:
    usage = more.pop("usage", api.Usage(reused=0, prefilled=11, generated=3))
    timings = api.Timings(first_token_s=0.05, tokens_per_s=40.0)
    return api.TurnResult(
        finish_reason=reason, model=params.model, usage=usage, timings=timings, generation=1, num_ctx=2048, **more
    )


def conversation(params: api.TurnParams) -> list[dict[str, Any]]:
    """The messages of a turn behind the system message, which every turn begins with."""
    first, *rest = params.messages
    assert first["role"] == "system"
    return rest


def says(*pieces: str) -> Script:
    """Answers with these pieces."""

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        del cancelled
        emit(api.Generating())
        for piece in pieces:
            emit(api.TextDelta(text=piece))
        return result(params)

    return script


async def until_cancelled(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
    """Says one word and goes on until it is cancelled."""
    emit(api.Generating())
    emit(api.TextDelta(text="one"))
    await cancelled.wait()
    return result(params, "cancelled")


class FakeDaemon:
    """One instance at a real socket. `script` runs the turns; `turns` holds their params."""

    def __init__(self, folder: Path, instance: str = "aaaaaaaa-0000") -> None:
        self.instance = instance
        self.script: Script = says("Hello", " world")
        self.turns: list[api.TurnParams] = []
        self.methods: list[str] = []
        self.hung = False
        self.frozen = False
        self.status = api.Status(
            instance=instance, role="owner", pid=1, backend="llama", state="Ready", generation=1, active=None
        )
        self.count = api.CountResult(each=[], total=0)
        self.answers: dict[str, Any] = {}
        self._listener = listen(RuntimeFolder(folder), instance)
        self.peers: list[Peer] = []

    @property
    def target(self) -> Target:
        return Target(instance=self.instance, address=self._listener.address, token_file="", pid=1, owner=True)

    async def serve(self) -> None:
        await self._listener.serve(self._connection)

    def close(self) -> None:
        """Gone, as after a kill: every connection breaks, nobody listens."""
        self._listener.close()
        for peer in self.peers:
            peer.close()

    def push(self, **changes: Any) -> None:
        """A new status, pushed to who watches."""
        self.status = msgspec.structs.replace(self.status, **changes)
        for peer in self.peers:
            peer.notify("status/changed", self.status)

    async def _connection(self, stream: anyio.abc.ByteStream) -> None:
        if self.hung:
            await anyio.sleep_forever()
        peer = Peer(
            stream,
            LineFramer(1 << 26),
            on_request=self._request,
            on_notification=lambda note: None,
            settings=Settings(),
        )
        self.peers.append(peer)
        await peer.run()

    async def _request(self, call: Call) -> Any:
        self.methods.append(call.method)
        if call.method == "hello":
            params = call.params(api.HelloParams)
            if params.token != TOKEN:
                raise Unauthenticated
            return api.HelloResult(protocol=1, instance=self.instance, role="owner", backend="llama", version="1")
        fenced = call.params(api.Fenced)
        if fenced.fence != self.instance:
            raise StaleFence(expected=fenced.fence, actual=self.instance)
        if call.method in self.answers:
            answer = self.answers[call.method]
            return await answer(call) if callable(answer) else answer
        if call.method == "ping":
            if self.frozen:
                await anyio.sleep_forever()
            return api.PingResult(instance=self.instance)
        if call.method in ("status", "status/watch"):
            return self.status
        if call.method == "model/count":
            return self.count
        if call.method == "session/turn":
            return await self._turn(call)
        raise MethodNotFound(method=call.method)

    async def _turn(self, call: Call) -> api.TurnResult:
        params = call.params(api.TurnParams)
        self.turns.append(params)
        cancelled = anyio.Event()
        call.on_cancel(cancelled.set)

        def emit(event: api.Event) -> None:
            assert call.id is not None
            call.peer.notify("session/event", api.EventParams(request=call.id, event=event))

        return await self.script(params, emit, cancelled)


class FixedInventory:
    """Advertises what the test says."""

    def __init__(self, *rows: api.LibraryRow) -> None:
        self.advertised = Advertised(rows=rows)
        self.refreshed = 0
        self.looks = 0
        self.on_refresh: Callable[[], None] = lambda: None

    def on_change(self, listener: Callable[[], None]) -> None:
        self.changed = listener

    def recall(self) -> Advertised | None:
        return None

    def look(self, status: api.Status | None, connected_backend: str) -> Advertised:
        del status, connected_backend
        self.looks += 1
        return self.advertised

    def poke(self) -> None:
        pass

    def refresh(self, wait: float = 0.0) -> None:
        del wait
        self.refreshed += 1
        self.on_refresh()

    def missing(self, name: str) -> str:
        return f"{name} is gone"

    def library_view(self) -> LibraryView:
        return LibraryView(rows=self.advertised.rows, complete=True)


class Records:
    """What the records under the data root would say."""

    def __init__(self, detection: Detection) -> None:
        self.detection = detection

    def dialler(self) -> Dialler:
        async def dial(target: Target, timeout: float) -> anyio.abc.ByteStream:
            try:
                return await connect(target.address, timeout=timeout)
            except EndpointError as error:
                raise unreached(error) from error

        return Dialler(
            detect=lambda: self.detection,
            change_key=lambda: self.detection,
            connect=dial,
            read_token=lambda target: TOKEN,
        )


class Client:
    """The editor's side of the bridge: asks, keeps every message in order, and has each judged by the schema."""

    def __init__(self, peer: Peer, check: WireCheck) -> None:
        self.peer = peer
        self.check = check
        self.updates: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer: Callable[[str, dict[str, Any]], Awaitable[Any]] = self._no_answer
        self.arrived = anyio.Event()

    @staticmethod
    async def _no_answer(method: str, params: dict[str, Any]) -> Any:
        del params
        raise MethodNotFound(method=method)

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = await self.peer.request(method, params or {})
        return answer

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.peer.notify(method, params)

    async def initialize(self, **capabilities: Any) -> dict[str, Any]:
        info = {"name": "tester", "version": "1"}
        return await self.request(
            "initialize", {"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": info}
        )

    async def new(self, cwd: str = "/tmp") -> str:
        made = await self.request("session/new", {"cwd": cwd, "mcpServers": []})
        return str(made["sessionId"])

    async def prompt(self, session: str, text: str) -> dict[str, Any]:
        return await self.request("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]})

    def kinds(self) -> list[str]:
        return [update["sessionUpdate"] for _, update in self.updates]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"]["text"] for _, update in self.updates if update["sessionUpdate"] == kind)

    def wake(self) -> None:
        """Have `wait_for` look again."""
        self.arrived.set()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until it holds; looked at after each update."""
        with anyio.fail_after(5):
            while not condition():
                self.arrived = anyio.Event()
                await self.arrived.wait()

    async def _request_of_agent(self, call: Call) -> Any:
        params = call.params(dict[str, Any])
        self.asked.append((call.method, params))
        return await self.answer(call.method, params)

    def _notified(self, note: Any) -> None:
        params = note.params(dict[str, Any])
        if note.method == "session/update":
            self.updates.append((params["sessionId"], params["update"]))
            self.arrived.set()


class Tapped:
    """A byte stream whose lines are shown to the judge."""

    def __init__(self, stream: anyio.abc.ByteStream, check: WireCheck) -> None:
        self._stream = stream
        self._check = check
        self._in = b""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        data = await self._stream.receive(max_bytes)
        self._in += data
        *lines, self._in = self._in.split(b"\n")
        for line in lines:
            self._check.from_agent(line.decode() + "\n")
        return data

    async def send(self, item: bytes) -> None:
        for line in item.splitlines():
            self._check.to_agent(line.decode())
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


class Bench:
    """A bridge under test, with everything around it."""

    def __init__(self, folder: Path, *rows: api.LibraryRow, settings: Settings | None = None) -> None:
        self.folder = folder
        self.settings = settings or Settings()
        self.inventory = FixedInventory(*(rows or (row("alpha"), row("beta"))))
        self.records = Records(Detection(state="not_running"))
        self.daemon: FakeDaemon | None = None
        self.core: Core
        self.client: Client

    def attach(self, daemon: FakeDaemon) -> None:
        """From now on the records name this daemon."""
        self.daemon = daemon
        self.records.detection = Detection(state="running", targets=(daemon.target,))

    def build(self, pid: int = 1) -> Core:
        """The core as the app wires it, on fakes."""
        clock = SystemClock()

        def holder() -> Claimant:
            return Claimant(pid=pid, token="t", holder="tester")

        store = Store(self.folder / "bridge.db", lambda other, token: True)

        def client() -> api.ClientInfo:
            return api.ClientInfo(name="tester", pid=pid)

        daemon = Daemon(self.records.dialler(), self.settings, clock, client)
        models = Models(self.inventory, daemon, self.settings, clock)
        return Core(
            store=store,
            daemon=daemon,
            models=models,
            settings=self.settings,
            clock=clock,
            claimant=holder,
            providers=Providers(self.folder / "config.toml"),
        )


@asynccontextmanager
async def bridge(bench: Bench, *, pid: int = 1) -> AsyncIterator[Client]:
    """A running bridge and the editor on its other side; at the end everything it sent must have been valid."""
    core = bench.build(pid)
    server = AcpServer(lambda: core, bench.settings)
    ours, theirs = memory_pair()
    schema = node_modules() / "sdk-2.4/schema/v1/schema.json"
    check = WireCheck(schema)
    async with anyio.create_task_group() as group:
        client = Client.__new__(Client)
        peer = Peer(
            Tapped(theirs, check),  # type: ignore[arg-type]
            LineFramer(1 << 26),
            on_request=client._request_of_agent,
            on_notification=client._notified,
            settings=bench.settings,
        )
        client.__init__(peer, check)  # type: ignore[misc]
        bench.core, bench.client = core, client
        core.daemon.on_change(client.wake)
        group.start_soon(server.serve, ours)
        group.start_soon(peer.run)
        yield client
        peer.close()
        await peer.closed.wait()
    core.close()
    assert not check.problems, json.dumps(check.problems, indent=1)


@asynccontextmanager
async def opened(bench: Bench, **capabilities: Any) -> AsyncIterator[tuple[Client, str]]:
    """A running bridge, its editor, and a new session in it."""
    async with bridge(bench) as client:
        await client.initialize(**capabilities)
        yield client, await client.new()


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[FakeDaemon]:
    """A fake daemon at a real socket."""
    daemon = FakeDaemon(bench.folder / "run")
    bench.attach(daemon)
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.serve)
        yield daemon
        daemon.close()
        group.cancel_scope.cancel()


@asynccontextmanager
async def pair(bench: Bench) -> AsyncIterator[tuple[FakeDaemon, FakeDaemon]]:
    """Two fake daemons at real sockets: the first is the one that the records name."""
    folder = bench.folder / "run"
    first, second = FakeDaemon(folder, "aaaaaaaa-1"), FakeDaemon(folder, "bbbbbbbb-2")
    bench.attach(first)
    async with anyio.create_task_group() as group:
        group.start_soon(first.serve)
        group.start_soon(second.serve)
        yield first, second
        first.close()
        second.close()
        group.cancel_scope.cancel()


async def bound_pages(store: Store, more: int) -> None:
    """Room for this many pages besides those there are, as on a disk that is nearly full."""

    def bound(db: sqlite3.Connection) -> None:
        (pages,) = db.execute("pragma page_count").fetchone()
        db.execute(f"pragma max_page_count = {pages + more}")

    await store._ask(bound)
