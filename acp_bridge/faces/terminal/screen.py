"""What every way of showing a conversation has (plain, rendered, JSON), and what a turn is for it."""

from __future__ import annotations

from typing import Any, Protocol

import anyio

from acp_bridge.conversations.events import Staged, TurnEnded


class Screen(Protocol):
    """Shows one turn after the other. Nothing here waits."""

    #: Set when what is shown can no longer be written: nobody reads it.
    lost: anyio.Event

    def begin(self, *, model: str, conversation: str, is_command: bool) -> None:
        """A prompt is sent. `is_command`: the bridge answers it, in remarks."""
        ...

    def text(self, text: str) -> None:
        """A piece of the answer."""
        ...

    def thought(self, text: str) -> None:
        """A piece of the model's reasoning."""
        ...

    def remark(self, text: str) -> None:
        """The bridge's own words, in Markdown."""
        ...

    def stage(self, event: Staged) -> None:
        """How far the turn is."""
        ...

    def work(self, title: str) -> None:
        """What is waited for or done meanwhile; "" when that has ended."""
        ...

    def tick(self) -> None:
        """Some tenths of a second have passed: show what goes with time."""
        ...

    def end(self, ended: TurnEnded) -> None:
        """The turn has ended. Raises the OSError that kept the answer from being written."""
        ...

    def fail(self) -> None:
        """It ended with an error, which is told on a line of its own."""
        ...


def summary(numbers: dict[str, Any]) -> str:
    """One line: model, tokens, time to first token (load and queue included), tokens a second. Pure."""
    times = numbers.get("timings", {})
    waited = times.get("queued_s", 0.0) + times.get("load_s", 0.0)
    parts = [
        str(numbers.get("model", "")),
        f"{numbers.get('reused', 0) + numbers.get('prefilled', 0)} prompt tokens ({numbers.get('reused', 0)} reused)",
        f"{numbers.get('generated', 0)} generated",
    ]
    if not numbers.get("generated"):
        return " · ".join(part for part in parts if part)
    parts += [
        f"first token after {times.get('first_token_s', 0.0):.2f} s"
        + (f" (+ {waited:.1f} s of loading and waiting)" if waited >= 0.05 else ""),
        f"{times.get('tokens_per_s', 0.0):.1f} tokens/s" if numbers["generated"] > 1 else "",
    ]
    return " · ".join(part for part in parts if part)
