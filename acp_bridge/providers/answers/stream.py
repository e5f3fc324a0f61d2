"""Chat-completion streams as the events of a turn. Pure: the data of server-sent events in, events out.

Servers differ in how they say an error, an end, a refusal and a call. What is unknown is reported, not taken for good.
"""

from __future__ import annotations

from typing import Any

import msgspec

from acp_bridge.providers.answers.calls import Calls
from acp_bridge.providers.answers.think import ThinkSplitter
from shared.protocol import api
from shared.text.nesting import decode_json
from shared.text.secret import Cleaner, StreamCleaner

DONE = "[DONE]"
#: Ends by the words that servers use (OpenAI, vLLM, SGLang, TGI, Mistral, Gemini, Anthropic, Cohere), in lower case.
FINISH: dict[str, api.FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "complete": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "max_length": "length",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refusal",
    "refusal": "refusal",
    "safety": "refusal",
    "recitation": "refusal",
    "blocklist": "refusal",
    "prohibited_content": "refusal",
}
#: Ends that are failures of the server: what came before them is no whole answer.
FAILURES = frozenset(
    {"abort", "aborted", "cancel", "cancelled", "canceled", "error", "failed", "insufficient_system_resource",
     "malformed_function_call", "network_error", "timeout"}
)  # fmt: skip
#: Of a reason that nobody knows, what is shown.
REASON_SHOWN = 60


class StreamReader:
    """The events of one completion, cleaned of what was sent to get it. All but its events is known at the end.

    Tokens: `prompt_tokens`, of them `cached_tokens`; `generated`. `begun`: some of the answer was given.
    """

    def __init__(self, clean: Cleaner) -> None:
        self.finish: api.FinishReason | None = None
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generated = 0
        self.error = ""
        self.ended = False
        self._clean = clean
        self._text = StreamCleaner(clean)
        self._reasoning = StreamCleaner(clean)
        self._split = ThinkSplitter()
        self._calls = Calls()
        self.begun = False
        self._thought = False
        self._refused = False
        self._unread = 0
        self._unknown = ""

    def event(self, data: str, kind: str = "message") -> list[api.Event]:
        """One server-sent event: its data, and its name. Whatever it holds, this raises nothing."""
        if data.strip() == DONE:
            self.ended = True
            return []
        if not data.strip():
            return []
        chunk = _decoded(data)
        if kind == "error" or _is_error(chunk):
            self.error = self.error or error_text(data)
            return []
        if not isinstance(chunk, dict):
            self._unread += 1
            return []
        return self._chunk(chunk)

    def end(self) -> list[api.Event]:
        """What was kept back: it might have been the begin of a mark or of a secret."""
        thinking, text = self._split.end()
        return [*self._think(thinking), *self._say(text), *self._think("", last=True), *self._say("", last=True)]

    def tool_calls(self) -> list[api.ToolCall]:
        """Every call; one that cannot be run has a `fault`."""
        return self._calls.finished(self._clean)

    def reason(self) -> api.FinishReason:
        """How the answer ended. A call is run only where the server says that all of it came."""
        finish = self.finish or "stop"
        if self._refused and finish == "stop":
            return "refusal"
        return "tool_calls" if self._calls and finish == "stop" else finish

    def warnings(self, name: str) -> list[str]:
        """What is odd about this answer of the endpoint `name`, in sentences."""
        said = []
        if self._unknown:
            said.append(f"{name} ended the answer for a reason that is not known here: {self._unknown}.")
        elif self.finish is None:
            said.append(f"{name} did not say why the answer ended: it may be cut.")
        if self._unread:
            pieces = "A piece" if self._unread == 1 else f"{self._unread} pieces"
            said.append(f"{pieces} of the answer of {name} could not be read.")
        if self._calls and self.reason() != "tool_calls":
            said.append(f"A tool call was cut off by the end of the answer ({self.reason()}); it is not run.")
        if not (self.begun or self._calls):
            said.append(f"{name} thought, and gave no answer." if self._thought else f"{name} gave an empty answer.")
        return said

    # --- pieces --------------------------------------------------------------------------------

    def _chunk(self, chunk: dict[str, Any]) -> list[api.Event]:
        self._count(chunk.get("usage"))
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            self._unread += choices is not None
            return []
        if not choices:
            return []
        choice = choices[0]
        if not isinstance(choice, dict):
            self._unread += 1
            return []
        if _is_error(choice):
            self.error = self.error or _said(choice) or str(choice)
            return []
        events = self._delta(choice)
        self._ends(choice.get("finish_reason"))
        return events

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self.prompt_tokens = _whole(usage.get("prompt_tokens")) or self.prompt_tokens
            self.generated = _whole(usage.get("completion_tokens")) or self.generated
            self.cached_tokens = _cached(usage) or self.cached_tokens

    def _ends(self, reason: Any) -> None:
        if reason is None or reason == "":
            return
        word = reason.lower() if isinstance(reason, str) else ""
        if word in FAILURES:
            self.error = self.error or f"it ended the answer: {word}"
        self.finish = FINISH.get(word, "stop")
        if word not in FINISH:
            self._unknown = self._clean(str(reason))[:REASON_SHOWN]

    def _delta(self, choice: dict[str, Any]) -> list[api.Event]:
        delta = choice.get("delta")
        if not isinstance(delta, dict) or not delta:
            whole = choice.get("message")  # an answer in one piece
            self._unread += delta is not None and not isinstance(delta, dict)
            delta = whole if isinstance(whole, dict) else {}
        events: list[api.Event] = []
        for name in ("reasoning_content", "reasoning", "thinking"):
            if isinstance(delta.get(name), str):
                events += self._think(delta[name])
                break
        thinking, text = parts_text(delta.get("content"))
        events += self._think(thinking)
        thinking, text = self._split.feed(text) if text else ("", "")
        events += [*self._think(thinking), *self._say(text)]
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            events += self._say(refusal)
        self._call(delta)
        return events

    def _call(self, delta: dict[str, Any]) -> None:
        pieces = delta.get("tool_calls")
        older = delta.get("function_call")
        for piece in pieces if isinstance(pieces, list) else [] if pieces is None else [pieces]:
            self._unread += not self._calls.add(piece)
        if isinstance(older, dict):
            self._unread += not self._calls.add({"index": 0, "function": older})

    def _think(self, text: str, *, last: bool = False) -> list[api.Event]:
        shown = self._reasoning.end() if last else self._reasoning.feed(text) if text else ""
        self._thought = self._thought or bool(shown)
        return [api.ReasoningDelta(text=shown)] if shown else []

    def _say(self, text: str, *, last: bool = False) -> list[api.Event]:
        shown = self._text.end() if last else self._text.feed(text) if text else ""
        if not shown:
            return []
        first: list[api.Event] = [] if self.begun else [api.Generating()]
        self.begun = True
        return [*first, api.TextDelta(text=shown)]


def parts_text(content: Any) -> tuple[str, str]:
    """(thinking, text) of a message's content: a text, or a list of typed parts."""
    if isinstance(content, str):
        return "", content
    if not isinstance(content, list):
        return "", ""
    thinking, text = "", ""
    for part in content:
        if isinstance(part, str):
            text += part
        elif isinstance(part, dict):
            inner = part.get("thinking")
            thinking += parts_text(inner)[1] if part.get("type") in ("thinking", "reasoning") else ""
            said = part.get("text") if isinstance(part.get("text"), str) else part.get("refusal")
            text += said if isinstance(said, str) else ""
    return thinking, text


def error_text(text: str) -> str:
    """What an error says: in each of the shapes that servers give it, else as it is."""
    body = _decoded(text)
    return (_said(body) if isinstance(body, (dict, list)) else "") or text.strip()


def _said(body: Any) -> str:
    """The words of an error object, "" where it has none."""
    if isinstance(body, str):
        return body.strip()
    if isinstance(body, list):
        return next((said for item in body if (said := _said(item))), "")
    if not isinstance(body, dict):
        return ""
    for name in ("error", "message", "detail", "msg", "error_message", "errors", "reason", "type", "code"):
        said = _said(body.get(name))
        if said:
            return said
    return ""


def _is_error(chunk: Any) -> bool:
    """Whether a chunk tells an error: `{"error": ...}` (text or object), `{"object": "error"}`, `{"type": "error"}`, or
    words in the place of an answer.
    """
    if not isinstance(chunk, dict):
        return False
    if chunk.get("error") or "error" in (chunk.get("object"), chunk.get("type")):
        return True
    answers = any(name in chunk for name in ("choices", "usage", "delta", "message", "object"))
    return not answers and any(name in chunk for name in ("detail", "errors", "error_message"))


def _cached(usage: dict[str, Any]) -> int:
    """Tokens of the prompt that a server had ready (OpenAI, vLLM, SGLang; Anthropic and DeepSeek by other names)."""
    for name in ("prompt_tokens_details", "input_tokens_details"):
        details = usage.get(name)
        if isinstance(details, dict) and _whole(details.get("cached_tokens")):
            return _whole(details["cached_tokens"])
    return _whole(usage.get("prompt_cache_hit_tokens")) or _whole(usage.get("cache_read_input_tokens"))


def _decoded(text: str) -> Any:
    try:
        return decode_json(text, Any)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def _whole(value: Any) -> int:
    """A count of tokens; 0 for what is none."""
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12
    return int(value) if usable else 0
