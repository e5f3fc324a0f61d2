"""An LSP window in the test's own process: the real face, the real core, and a modeld that answers from a script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from acp_bridge.faces.lsp.server import LspServer
from bridge_fakes import Bench
from memory_stream import memory_pair
from shared.paths import DataRoot
from shared.protocol.faults import MethodNotFound
from shared.protocol.framing import HeaderFramer
from shared.protocol.peer import Peer
from shared.protocol.requests import Call

JsonObject = dict[str, Any]


class Turn:
    """A running `modeld/turn`."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.id = 0
        self.events: list[JsonObject] = []
        self.result: JsonObject = {}
        self.error: Exception | None = None
        self.ended = anyio.Event()

    @property
    def text(self) -> str:
        return "".join(event["text"] for event in self.events if event["type"] == "text")

    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    async def end(self) -> JsonObject:
        """The result. Raises the typed error."""
        with anyio.fail_after(10):
            await self.ended.wait()
        if self.error is not None:
            raise self.error
        return self.result


class Window:
    """The editor's side."""

    def __init__(self) -> None:
        self.peer: Peer
        self.group: anyio.abc.TaskGroup
        self.reported: list[tuple[str, JsonObject]] = []
        self.asked: list[JsonObject] = []
        self.answer: Callable[[JsonObject], Awaitable[Any]] = self._dismiss
        self.turns: dict[str, Turn] = {}
        self.other_progress: list[JsonObject] = []
        self.server: LspServer
        self._moved = anyio.Event()

    @staticmethod
    async def _dismiss(params: JsonObject) -> Any:
        del params
        return {"answer": None}

    async def request(self, method: str, params: Any = None) -> Any:
        with anyio.fail_after(10):
            return await self.peer.request(method, params or {})

    async def initialize(self, **more: Any) -> JsonObject:
        params = {
            "processId": None,
            "capabilities": {"window": {"workDoneProgress": True}},
            "clientInfo": {"name": "Code"},
            "workspaceFolders": [{"uri": "file:///home/me/proj", "name": "proj"}],
            **more,
        }
        answer: JsonObject = await self.request("initialize", params)
        self.peer.notify("initialized", {})
        return answer

    def turn(self, model: str, text: str = "hello", **more: Any) -> Turn:
        """Begin a turn and go on."""
        turn = Turn(f"t{len(self.turns)}")
        self.turns[turn.token] = turn
        messages = more.pop("messages", [{"role": "user", "content": text}])
        params = {"model": model, "messages": messages, "partialResultToken": turn.token, **more}

        def started(number: int) -> None:
            turn.id = number

        async def run() -> None:
            try:
                turn.result = await self.peer.request("modeld/turn", params, on_id=started)
            except Exception as error:
                turn.error = error
            turn.ended.set()
            self.wake()

        self.group.start_soon(run)
        return turn

    def cancel(self, turn: Turn) -> None:
        """As an editor's Stop."""
        self.peer.notify("$/cancelRequest", {"id": turn.id})

    def of(self, method: str) -> list[JsonObject]:
        return [params for name, params in self.reported if name == method]

    def wake(self) -> None:
        self._moved.set()

    async def until(self, condition: Callable[[], Any]) -> None:
        """Until it holds; looked at after each message and each change at the daemon."""
        with anyio.fail_after(10):
            while not condition():
                self._moved = anyio.Event()
                with anyio.move_on_after(0.2):
                    await self._moved.wait()

    async def on_request(self, call: Call) -> Any:
        if call.method != "modeld/ask":
            raise MethodNotFound(method=call.method)
        params = call.params(dict[str, Any])
        self.asked.append(params)
        self.wake()
        return await self.answer(params)

    def on_notification(self, note: Any) -> None:
        params = note.params(dict[str, Any])
        if note.method == "$/progress":
            turn = self.turns.get(params["token"])
            (turn.events if turn is not None else self.other_progress).append(
                params["value"] if turn is not None else params
            )
        else:
            self.reported.append((note.method, params))
        self.wake()


@asynccontextmanager
async def window(bench: Bench, *, initialize: bool = True) -> AsyncIterator[Window]:
    """A running face and its editor."""
    core = bench.build()
    server = LspServer(lambda name: core, DataRoot(bench.folder), bench.settings)
    ours, theirs = memory_pair()
    editor = Window()
    editor.server = server
    bench.core = core
    async with anyio.create_task_group() as group:
        editor.group = group
        editor.peer = Peer(
            theirs,
            HeaderFramer(1 << 26),
            on_request=editor.on_request,
            on_notification=editor.on_notification,
            settings=bench.settings,
            cancel_method="$/cancelRequest",
        )
        core.daemon.on_change(editor.wake)
        group.start_soon(server.serve, ours)
        group.start_soon(editor.peer.run)
        if initialize:
            await editor.initialize()
        yield editor
        editor.peer.close()
        await editor.peer.closed.wait()
    server.close()
