"""Chat-completion streams as the events of a turn. Pure: lines in, events out."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.nesting import decode_json
from shared.protocol import api
from shared.secret import Cleaner, StreamCleaner

FINISH: dict[str, api.FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refusal",
}


class StreamReader:
    """Server-sent events of one completion, cleaned of what was sent to get it.

    `finish` and `usage` are known at the end.
    """

    def __init__(self, clean: Cleaner) -> None:
        self._clean = clean
        self._text = StreamCleaner(clean)
        self._reasoning = StreamCleaner(clean)
        self.finish: api.FinishReason | None = None
        self.prompt_tokens = 0
        self.generated = 0
        self.error = ""
        self.ended = False
        self._calls: dict[int, dict[str, str]] = {}
        self._arguments: dict[int, list[str]] = {}  # in parts: a long one comes in thousands
        self._begun = False

    def line(self, line: str) -> list[api.Event]:
        """One line; comments and other fields are nothing. A chunk that is not JSON is nothing either."""
        if not line.startswith("data:"):
            return []
        data = line[5:].strip()
        if data == "[DONE]":
            self.ended = True
            return []
        try:
            chunk = decode_json(data, dict[str, Any])
        except msgspec.DecodeError:
            return []
        if chunk.get("error"):
            self.error = str(chunk["error"].get("message", chunk["error"]) if isinstance(chunk["error"], dict) else "")
            return []
        self._count(chunk.get("usage"))
        return [event for choice in (chunk.get("choices") or [])[:1] for event in self._choice(choice)]

    def end(self) -> list[api.Event]:
        """What was kept back because it might have been the beginning of a secret."""
        return [*self._thought(self._reasoning.end()), *self._said(self._text.end())]

    def tool_calls(self) -> list[api.ToolCall]:
        """The finished calls; one whose arguments are no JSON object is left out."""
        calls = []
        for index in sorted(self._calls):
            call, written = self._clean.value(self._calls[index]), "".join(self._arguments[index])
            try:
                arguments = decode_json(written or "{}", dict[str, Any])
            except msgspec.DecodeError:
                continue
            cleaned = self._clean.value(arguments)
            text = self._clean.value(written) if cleaned == arguments else msgspec.json.encode(cleaned).decode()
            calls.append(api.ToolCall(id=call["id"] or f"call-{index}", name=call["name"], arguments=text or "{}"))
        return calls

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self.prompt_tokens = int(usage.get("prompt_tokens") or 0)
            self.generated = int(usage.get("completion_tokens") or 0)

    def _choice(self, choice: dict[str, Any]) -> list[api.Event]:
        reason = choice.get("finish_reason")
        if reason:
            self.finish = FINISH.get(str(reason), "stop")
        delta = choice.get("delta") or {}
        events: list[api.Event] = []
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(reasoning, str):
            events += self._thought(self._reasoning.feed(reasoning))
        if isinstance(delta.get("content"), str):
            events += self._said(self._text.feed(delta["content"]))
        for part in delta.get("tool_calls") or []:
            self._call(part)
        return events

    @staticmethod
    def _thought(text: str) -> list[api.Event]:
        return [api.ReasoningDelta(text=text)] if text else []

    def _said(self, text: str) -> list[api.Event]:
        if not text:
            return []
        first: list[api.Event] = [] if self._begun else [api.Generating()]
        self._begun = True
        return [*first, api.TextDelta(text=text)]

    def _call(self, part: dict[str, Any]) -> None:
        index = int(part.get("index") or 0)
        call = self._calls.setdefault(index, {"id": "", "name": ""})
        function = part.get("function") or {}
        call["id"] = call["id"] or str(part.get("id") or "")
        call["name"] += str(function.get("name") or "")
        self._arguments.setdefault(index, []).append(str(function.get("arguments") or ""))
