"""The conversation that is typed: read a message or a command, do it, until the person leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from rich.text import Text

from acp_bridge.conversations.events import Part, TextPart
from acp_bridge.faces.terminal import attach
from acp_bridge.faces.terminal.commands import NAMES, help_text, options_text, parse, with_option
from acp_bridge.faces.terminal.prompt_line import Leave, PromptLine
from acp_bridge.faces.terminal.rendered import Answer
from shared.errors import ModeldError
from shared.text.shown import code_span, one_line, title
from shared.text.words import counted

if TYPE_CHECKING:
    from acp_bridge.faces.terminal.chat import Chat
    from acp_bridge.faces.terminal.rendered import RenderedScreen

#: `/list` shows this many.
LISTED = 20


class Dialogue:
    """Over one `Chat`. `attached` goes with the next message; `start` starts modeld."""

    def __init__(
        self,
        chat: Chat,
        screen: RenderedScreen,
        history: Path | None,
        start: Callable[[], Awaitable[str]],
        attached: list[Part],
    ) -> None:
        self._chat = chat
        self._screen = screen
        self._start = start
        self._attached = attached
        self.line = PromptLine(
            history,
            [f"/{name}" for name in NAMES],
            lambda: chat.core.selection.picker(chat.live).values(),
            of_models=("/model", "/load", "/switch"),
            of_files=("/file", "/image", "/export"),
        )

    async def run(self) -> None:
        """Until the person leaves."""
        await self._begin()
        while True:
            try:
                text = await self.line.read()
            except Leave:
                return
            if not text:
                if self.line.interrupted:
                    self._say("Press Ctrl-C again, or Ctrl-D, to leave.")
                continue
            try:
                if not await self._do(text):
                    return
            except ModeldError as error:
                self._say(error.message, style="red")

    async def _begin(self) -> None:
        chat = self._chat
        if not chat.core.daemon.connected and chat.core.daemon.detection.state in ("not_running", "stale"):
            answer = await self.line.ask("modeld is not running. Start it now? [Y/n] ")
            if answer.strip().casefold() in ("", "y", "yes"):
                self._say(await self._start())
        self._say(f"{chat.model or 'No model yet'} · /help for the commands, Ctrl-D to leave")

    async def _do(self, text: str) -> bool:
        """One line that was typed; False to leave."""
        typed = parse(text)
        if typed.name == "exit":
            return False
        if typed.name:
            await getattr(self, f"_{typed.name}")(typed.argument)
            return True
        parts, self._attached = [*self._attached, TextPart(text=typed.argument)], []
        await self._chat.ask(parts)
        return True

    # --- commands of the terminal --------------------------------------------------------------

    async def _help(self, argument: str) -> None:
        self._screen.show(Answer(help_text()))

    async def _new(self, argument: str) -> None:
        await self._chat.reopen()
        self._say("A new conversation.")

    async def _list(self, argument: str) -> None:
        rows = await self._chat.saved()
        if not rows:
            self._say("No conversation is saved for this folder.")
            return
        lines = [
            f"- {code_span(row.id[:8])} {_day(row.updated)} {title(row.title or '(no title)')}" for row in rows[:LISTED]
        ]
        more = [f"- and {len(rows) - LISTED} more: `acp-bridge export --list`"] if len(rows) > LISTED else []
        self._screen.show(Answer("\n".join([*lines, *more])))

    async def _continue(self, argument: str) -> None:
        chat = self._chat
        await chat.reopen(await chat.find(argument))
        self._say(continued(chat))

    async def _file(self, argument: str) -> None:
        await self._attach(attach.text_file, argument)

    async def _image(self, argument: str) -> None:
        await self._attach(attach.image_file, argument)

    async def _attach(self, read: Callable[[str], Part], name: str) -> None:
        if name:
            self._attached.append(await anyio.to_thread.run_sync(read, name))
        which = counted(len(self._attached), "attachment")
        self._say(f"{which} will go with the next message." if self._attached else "Name a file.")

    async def _system(self, argument: str) -> None:
        if argument:
            self._chat.instruct("" if argument == "none" else argument)
        system = self._chat.live.conversation.instructions
        self._say(f"System message: {system or 'none of yours'}")

    async def _set(self, argument: str) -> None:
        chat = self._chat
        if argument:
            chat.wanted.sampling = chat.live.sampling = with_option(chat.live.sampling, argument)
        self._screen.show(Answer(options_text(chat.live.sampling)))

    def _say(self, text: str, style: str = "dim") -> None:
        self._screen.show(Text(one_line(text), style=style))


def _day(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M}"


def continued(chat: Chat) -> str:
    """What is said when a saved conversation goes on."""
    conversation = chat.live.conversation
    return f"Continuing “{one_line(conversation.title or conversation.id)}” ({conversation.id[:8]}), {chat.model}"
