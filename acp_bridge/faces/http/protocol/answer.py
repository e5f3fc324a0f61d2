"""Answers in the shapes of the OpenAI protocol: whole, and in chunks. Pure."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from shared.protocol import api

DONE = b"data: [DONE]\n\n"
_FINISH = {"context_full": "length", "refusal": "content_filter"}


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What every chunk of one answer repeats. `created` in Unix seconds."""

    id: str
    created: int
    model: str


def head(prefix: str, model: str, now: float) -> Head:
    """A fresh id."""
    return Head(id=f"{prefix}-{secrets.token_hex(12)}", created=int(now), model=model)


def event(value: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def comment(text: str) -> bytes:
    """A line that every reader of server-sent events skips: the connection lives, and who looks sees why it waits."""
    return b": " + " ".join(text.split()).encode() + b"\n\n"


def finish_reason(result: api.TurnResult) -> str:
    """The protocol's word."""
    return _FINISH.get(result.finish_reason, result.finish_reason)


def usage(one: api.Usage) -> dict[str, Any]:
    """Tokens; `cached_tokens` are those of the prompt that were warm."""
    prompt = one.reused + one.prefilled
    return {
        "prompt_tokens": prompt,
        "completion_tokens": one.generated,
        "total_tokens": prompt + one.generated,
        "prompt_tokens_details": {"cached_tokens": one.reused},
    }


def summed(parts: Sequence[api.Usage]) -> api.Usage:
    """Of several prompts in one request."""
    return api.Usage(
        reused=sum(one.reused for one in parts),
        prefilled=sum(one.prefilled for one in parts),
        generated=sum(one.generated for one in parts),
    )


def remarks(result: api.TurnResult, notices: Sequence[str]) -> dict[str, Any]:
    """What the protocol has no word for, as a field of our own: only where there is something to say."""
    told: dict[str, Any] = {}
    if result.ended_by:
        told["ended_by"] = result.ended_by
    if notices or result.warnings:
        told["notices"] = [*notices, *result.warnings]
    return {"modeld": told} if told else {}


# --- chat --------------------------------------------------------------------------------------------


def chat_whole(
    top: Head, text: str, reasoning: str, calls: Sequence[api.ToolCall], result: api.TurnResult, notices: Sequence[str]
) -> dict[str, Any]:
    """The answer at once."""
    message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(result)}
    return {
        **_top(top, "chat.completion"),
        "choices": [choice],
        "usage": usage(result.usage),
        **remarks(result, notices),
    }


def chat_chunk(top: Head, delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A piece of the answer."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**_top(top, "chat.completion.chunk"), "choices": [choice], **more}


def usage_chunk(top: Head, kind: str, used: api.Usage) -> dict[str, Any]:
    """The last chunk where the usage was asked for: it has no choices."""
    return {**_top(top, kind), "choices": [], "usage": usage(used)}


def call_delta(piece: api.ToolCallDelta, *, first: bool) -> dict[str, Any]:
    """A piece of a call: id and name come with its first."""
    function: dict[str, Any] = {"arguments": piece.arguments}
    call: dict[str, Any] = {"index": piece.index, "function": function}
    if first:
        call |= {"id": piece.id, "type": "function"}
        function["name"] = piece.name
    return {"tool_calls": [call]}


# --- completions -------------------------------------------------------------------------------------


def text_choice(text: str, index: int, finish: str | None) -> dict[str, Any]:
    """One prompt's answer, or a piece of it."""
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish}


def text_answer(top: Head, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Chunks and whole answers have one shape."""
    return {**_top(top, "text_completion"), "choices": choices, **more}


def _top(top: Head, kind: str) -> dict[str, Any]:
    return {"id": top.id, "object": kind, "created": top.created, "model": top.model}
