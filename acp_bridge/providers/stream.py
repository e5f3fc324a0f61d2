"""Chat-completion streams as the events of a turn. Pure: lines in, events out."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.protocol import api

FINISH: dict[str, api.FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refusal",
}


class StreamReader:
    """Server-sent events of one completion. `finish` and `usage` are known at the end."""

    def __init__(self) -> None:
        self.finish: api.FinishReason | None = None
        self.prompt_tokens = 0
        self.generated = 0
        self.error = ""
        self.ended = False
        self._calls: dict[int, dict[str, str]] = {}
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
            chunk = msgspec.json.decode(data, type=dict[str, Any])
        except msgspec.DecodeError:
            return []
        if chunk.get("error"):
            self.error = str(chunk["error"].get("message", chunk["error"]) if isinstance(chunk["error"], dict) else "")
            return []
        self._count(chunk.get("usage"))
        return [event for choice in (chunk.get("choices") or [])[:1] for event in self._choice(choice)]

    def tool_calls(self) -> list[api.ToolCall]:
        """The finished calls; one whose arguments are no JSON object is left out."""
        calls = []
        for index in sorted(self._calls):
            call = self._calls[index]
            try:
                msgspec.json.decode(call["arguments"] or "{}", type=dict[str, Any])
            except msgspec.DecodeError:
                continue
            number = call["id"] or f"call-{index}"
            calls.append(api.ToolCall(id=number, name=call["name"], arguments=call["arguments"] or "{}"))
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
        if isinstance(reasoning, str) and reasoning:
            events.append(api.ReasoningDelta(text=reasoning))
        if isinstance(delta.get("content"), str) and delta["content"]:
            if not self._begun:
                events.append(api.Generating())
            events.append(api.TextDelta(text=delta["content"]))
            self._begun = True
        for part in delta.get("tool_calls") or []:
            self._call(part)
        return events

    def _call(self, part: dict[str, Any]) -> None:
        index = int(part.get("index") or 0)
        call = self._calls.setdefault(index, {"id": "", "name": "", "arguments": ""})
        function = part.get("function") or {}
        call["id"] = call["id"] or str(part.get("id") or "")
        call["name"] += str(function.get("name") or "")
        call["arguments"] += str(function.get("arguments") or "")
