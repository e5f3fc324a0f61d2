"""`--json`: one JSON object a line as the turn goes on; the last one holds the whole answer and its counts."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import msgspec

from acp_bridge.conversations.events import Staged, TurnEnded
from acp_bridge.faces.terminal.progress import Paces
from shared.text.console import draw
from shared.text.shown import escaped

#: Bumped when an event loses a field or changes its meaning.
VERSION = 1


class JsonScreen:
    """For programs. Implements `acp_bridge.faces.terminal.screen.Screen`."""

    def __init__(self) -> None:
        self.lost = anyio.Event()
        self.paces = Paces()
        self._error: OSError | None = None
        self._text: list[str] = []
        self._remarks: list[str] = []
        self._conversation = ""

    def begin(self, *, model: str, conversation: str, is_command: bool) -> None:
        """See Screen."""
        self._text, self._remarks = [], []
        self._conversation = conversation
        self._write("start", version=VERSION, conversation=conversation, model=model)

    def text(self, text: str) -> None:
        """See Screen."""
        self._text.append(text)
        self._write("text", text=text)

    def thought(self, text: str) -> None:
        """See Screen."""
        self._write("thought", text=text)

    def remark(self, text: str) -> None:
        """See Screen."""
        self._remarks.append(text)
        self._write("remark", text=text)

    def stage(self, event: Staged) -> None:
        """See Screen."""
        fields = msgspec.to_builtins(event.stage)
        name = fields.pop("type")
        self._write("stage", **{"stage": name, "model": event.model, **fields})

    def work(self, title: str) -> None:
        """See Screen. Its stages tell it."""

    def tick(self) -> None:
        """See Screen. Nothing goes with time."""

    def end(self, ended: TurnEnded) -> None:
        """See Screen."""
        self._write(
            "end",
            text="".join(self._text),
            stop_reason="end_turn" if ended.stop == "failed" else ended.stop,
            remarks=self._remarks,
            conversation=self._conversation,
            **ended.numbers,
        )
        if self._error is not None:
            raise self._error

    def fail(self) -> None:
        """See Screen. The error is the last line, written where it is known how the command ends."""

    def _write(self, event: str, **fields: Any) -> None:
        if self._error is not None:
            return
        line = msgspec.json.encode({"event": event, **fields}).decode()
        try:
            draw(f"{escaped(line)}\n", sys.stdout)
        except OSError as error:
            self._error = error
            self.lost.set()
