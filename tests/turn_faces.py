"""A face of the bridge as the rules of a turn see it: asked in words, answered in words, whatever the protocol.

A new face is one more subclass of `Face` in `FACES`; every rule is then tested over it too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import anyio

from acp_bridge.conversations.events import ImagePart, Part, TextPart
from acp_bridge.faces.terminal.chat import Chat, Wanted
from acp_bridge.faces.terminal.face import TerminalFace
from acp_bridge.faces.terminal.interrupts import Interrupts
from acp_bridge.faces.terminal.plain import PlainScreen
from acp_bridge.faces.terminal.questions import Questions
from bridge_fakes import Bench, Client, bridge
from lsp_fakes import Window, window
from shared.errors import ModeldError

IMAGE = "aGVsbG8="


class Outcome:
    """How one turn ended: `finish` in the daemon's words, or `error`. `reported` is all that the bridge said in it."""

    def __init__(self, finish: str = "", reported: str = "", error: ModeldError | None = None) -> None:
        self.finish = finish
        self.error = error
        self.reported = reported if error is None else f"{reported}\n{error.message}"


class Face:
    """An editor behind one protocol. `asked` counts its turns."""

    name: ClassVar[str]
    me: str

    @classmethod
    def open(cls, bench: Bench) -> Any:
        """A context manager: the running face of this bench."""
        raise NotImplementedError

    async def ask(self, text: str, *, model: str = "", image: bool = False, thinking: str = "") -> Outcome:
        """One turn to its end, in the one conversation there is. `thinking` was chosen for the model `deep` before."""
        raise NotImplementedError

    async def ask_with_tool(self, text: str) -> Outcome:
        """A turn in which the model calls `list_folder` once and then answers, whoever runs the tool."""
        raise NotImplementedError

    async def ask_and_cancel(self, text: str, reached: anyio.Event) -> Outcome:
        """A turn that the user stops once `reached` is set."""
        raise NotImplementedError

    def reported(self) -> str:
        """Everything the bridge ever said by itself to this editor."""
        raise NotImplementedError

    async def until(self, condition: Any) -> None:
        """Until it holds, wherever that is decided: no message to this editor need tell of it."""
        with anyio.fail_after(5):
            while not condition():
                await anyio.sleep(0.005)


class Acp(Face):
    """Zed, JetBrains: the bridge keeps the conversation."""

    name = "acp"
    me = "tester"

    def __init__(self, client: Client, session: str) -> None:
        self._client = client
        self._session = session

    @classmethod
    @asynccontextmanager
    async def open(cls, bench: Bench) -> AsyncIterator[Acp]:
        async with bridge(bench) as client:
            await client.initialize()
            yield cls(client, await client.new())

    async def _set(self, option: str, value: str) -> None:
        setting = {"sessionId": self._session, "configId": option, "value": value}
        await self._client.request("session/set_config_option", setting)

    async def ask(self, text: str, *, model: str = "", image: bool = False, thinking: str = "") -> Outcome:
        if thinking:
            await self._set("model", "deep")
            await self._set("thought_level", thinking)
        if model:
            await self._set("model", model)
        parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
        if image:
            parts.insert(0, {"type": "image", "mimeType": "image/png", "data": IMAGE})
        before = len(self.reported())
        params = {"sessionId": self._session, "prompt": parts}
        try:
            ended = await self._client.request("session/prompt", params)
        except ModeldError as error:
            return Outcome(reported=self.reported()[before:], error=error)
        finish = {"end_turn": "stop"}.get(ended["stopReason"], ended["stopReason"])
        return Outcome(finish, self.reported()[before:])

    async def ask_with_tool(self, text: str) -> Outcome:
        return await self.ask(text)

    async def ask_and_cancel(self, text: str, reached: anyio.Event) -> Outcome:
        outcomes: list[Outcome] = []

        async def run() -> None:
            outcomes.append(await self.ask(text))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await reached.wait()
            self._client.notify("session/cancel", {"sessionId": self._session})
        return outcomes[0]

    def reported(self) -> str:
        return self._client.text()


class Lsp(Face):
    """VS Code: the editor keeps the conversation and runs the tools."""

    name = "lsp"
    me = "Code (proj)"

    def __init__(self, editor: Window) -> None:
        self._editor = editor
        self._history: list[dict[str, Any]] = []

    @classmethod
    @asynccontextmanager
    async def open(cls, bench: Bench) -> AsyncIterator[Lsp]:
        async with window(bench) as editor:
            yield cls(editor)

    def _begin(self, content: list[dict[str, Any]], **more: Any) -> Any:
        self._history.append({"role": "user", "content": content})
        more.setdefault("model", "")
        return self._editor.turn(messages=list(self._history), overflow="trim", **more)

    async def _end(self, turn: Any) -> Outcome:
        def reported() -> str:
            return "\n".join(event["text"] for event in turn.events if event["type"] == "notice")

        try:
            ended = await turn.end()
        except ModeldError as error:
            self._history.pop()
            return Outcome(reported=reported(), error=error)
        answer: list[dict[str, Any]] = [{"type": "text", "text": turn.text}]
        answer += [
            {"type": "tool_call", "id": call["id"], "name": call["name"], "input": {}} for call in ended["toolCalls"]
        ]
        self._history.append({"role": "assistant", "content": answer})
        return Outcome(ended["finishReason"], reported())

    async def ask(self, text: str, *, model: str = "", image: bool = False, thinking: str = "") -> Outcome:
        content: list[dict[str, Any]] = [{"type": "text", "text": text}]
        if image:
            content.insert(0, {"type": "image", "mimeType": "image/png", "data": IMAGE})
        options = {"thinking": thinking} if thinking else {}
        return await self._end(self._begin(content, model=model, options=options))

    async def ask_with_tool(self, text: str) -> Outcome:
        tool = {"name": "list_folder", "description": "lists", "inputSchema": {"type": "object", "properties": {}}}
        first = await self._end(self._begin([{"type": "text", "text": text}], tools=[tool]))
        assert first.finish == "tool_calls"
        calls = [part for part in self._history[-1]["content"] if part["type"] == "tool_call"]
        answers = [{"type": "tool_result", "id": call["id"], "text": "a.py"} for call in calls]
        return await self._end(self._begin(answers, tools=[tool]))

    async def ask_and_cancel(self, text: str, reached: anyio.Event) -> Outcome:
        turn = self._begin([{"type": "text", "text": text}])
        await reached.wait()
        await self._editor.request("modeld/cancel", {"token": turn.token})
        return await self._end(turn)

    def reported(self) -> str:
        notices = [params["text"] for params in self._editor.of("modeld/notice")]
        events = [event["text"] for turn in self._editor.turns.values() for event in turn.events if "text" in event]
        return "\n".join([*notices, *events])


class Recording(PlainScreen):
    """Keeps what the bridge says by itself."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.remarks: list[str] = []

    def text(self, text: str) -> None:
        """Nobody looks."""

    def remark(self, text: str) -> None:
        self.remarks.append(text)


class AtTerminal(Face):
    """`acp-bridge chat`: the bridge keeps the conversation, a person types."""

    name = "terminal"
    me = "acp-bridge chat"

    def __init__(self, chat: Chat, screen: Recording) -> None:
        self._chat = chat
        self._screen = screen

    @classmethod
    @asynccontextmanager
    async def open(cls, bench: Bench) -> AsyncIterator[AtTerminal]:
        core = bench.core = bench.build()
        screen = Recording()
        core.audience.attach(TerminalFace(screen, Questions(None, switch=False).answer))
        core.store.start()
        async with anyio.create_task_group() as group:
            group.start_soon(core.run)
            await core.daemon.looked.wait()
            chat = Chat(core, screen, Interrupts(), Wanted())
            await chat.open()
            yield cls(chat, screen)
            group.cancel_scope.cancel()
        core.close()

    async def ask(self, text: str, *, model: str = "", image: bool = False, thinking: str = "") -> Outcome:
        chat = self._chat
        if thinking:
            await chat.pick("deep")
            chat.core.selection.set_thinking(chat.live, thinking)
        if model:
            await chat.pick(model)
        parts: list[Part] = [ImagePart(data=IMAGE, mime_type="image/png")] if image else []
        before = len(self.reported())
        try:
            ended = await chat.ask([*parts, TextPart(text=text)])
        except ModeldError as error:
            return Outcome(reported=self.reported()[before:], error=error)
        finish = {"end_turn": "stop"}.get(ended.stop, ended.stop)
        return Outcome(finish, self.reported()[before:])

    async def ask_with_tool(self, text: str) -> Outcome:
        self._chat.core.selection.set_tools(self._chat.live, True)
        return await self.ask(text)

    async def ask_and_cancel(self, text: str, reached: anyio.Event) -> Outcome:
        outcomes: list[Outcome] = []

        async def run() -> None:
            outcomes.append(await self.ask(text))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await reached.wait()
            self._chat.live.cancel()
        return outcomes[0]

    def reported(self) -> str:
        return "\n".join(self._screen.remarks)


FACES: dict[str, type[Face]] = {face.name: face for face in (Acp, Lsp, AtTerminal)}
