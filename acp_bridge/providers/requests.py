"""Turns, completions and embeddings as requests of OpenAI's protocol. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.providers.config import ModelFacts

#: Options by the name that the protocol, or its usual extensions (vLLM, llama-server), give them. An endpoint that
#: does not know one refuses it in words of its own, which are told: none is dropped here.
_OPTIONS = {
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "top_k": ("top_k",),
    "min_p": ("min_p",),
    "repeat_penalty": ("repetition_penalty", "repeat_penalty"),
    "presence_penalty": ("presence_penalty",),
    "frequency_penalty": ("frequency_penalty",),
    "seed": ("seed",),
    "max_tokens": ("max_tokens",),
}
#: Characters of a conversation's head that name it where the editor gives no id.
_HEAD = 4096


def chat_body(params: api.TurnParams, served: str, thinking: str = "") -> dict[str, Any]:
    """One turn as a chat-completion request; `thinking`: how the model is told to think (`config.Thinking`)."""
    body: dict[str, Any] = {
        "model": served,
        "messages": params.messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    sampling = params.params
    if params.tools:
        body["tools"] = params.tools
        body.update(_tool_choice(sampling.tool_choice))
    if sampling.json_schema is not None:
        schema = {"name": "answer", "strict": True, "schema": sampling.json_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    body.update(options(sampling))
    body.update(_thinking(sampling.thinking, thinking))
    return body


def options(sampling: api.Sampling) -> dict[str, Any]:
    """What was set of a turn's options."""
    body: dict[str, Any] = {"stop": list(sampling.stop)} if sampling.stop else {}
    for name, sent in _OPTIONS.items():
        value = getattr(sampling, name)
        body.update({one: value for one in sent if value is not None})
    return {**body, "logit_bias": sampling.logit_bias} if sampling.logit_bias else body


def fill_body(served: str, prefix: str, suffix: str, sampling: api.Sampling, facts: ModelFacts) -> dict[str, Any]:
    """A text between two as a completion request."""
    body = {"model": served, "stream": False, **options(sampling)}
    shape = facts.inline_completion
    if not suffix:
        return {**body, "prompt": prefix}
    if isinstance(shape, str):
        before, _, rest = shape.partition("{prefix}")
        middle, _, after = rest.partition("{suffix}")
        return {**body, "prompt": f"{before}{prefix}{middle}{suffix}{after}"}
    return {**body, "prompt": prefix, "suffix": suffix}


def embed_body(served: str, texts: Sequence[str]) -> dict[str, Any]:
    """Texts as an embedding request."""
    return {"model": served, "input": list(texts), "encoding_format": "float"}


def affinity(params: api.TurnParams) -> str:
    """A name that stays the same over a conversation, and tells nothing of it: a router in front of several replicas
    sends it where its prefix is warm.
    """
    head = params.messages[:2] if params.conversation is None else params.conversation
    try:
        raw = msgspec.json.encode(head)
    except UnicodeEncodeError:
        raw = repr(head).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(raw[: _HEAD * 4], digest_size=16, person=b"modeld-affinity").hexdigest()


def filled(answer: Any) -> tuple[str | None, api.Usage]:
    """The text of a completion, None where it has none, and what it took."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    text = choice.get("text") if isinstance(choice, dict) else None
    usage = answer.get("usage") if isinstance(answer, dict) else None
    prompt, generated = _counts(usage, "prompt_tokens"), _counts(usage, "completion_tokens")
    return (text if isinstance(text, str) else None), api.Usage(prefilled=prompt, generated=generated)


def embedded(answer: Any) -> tuple[list[list[float]], int]:
    """The vectors of an answer in the order of their texts, and the tokens; those that are none are left out."""
    data = answer.get("data") if isinstance(answer, dict) else None
    entries = [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
    entries.sort(key=lambda entry: _counts(entry, "index"))
    vectors = [entry.get("embedding") for entry in entries]
    usable = [vector for vector in vectors if isinstance(vector, list) and vector and all(map(_is_number, vector))]
    return usable, _counts(answer.get("usage") if isinstance(answer, dict) else None, "prompt_tokens")


def _counts(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else 0
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _tool_choice(choice: str | None) -> dict[str, Any]:
    """Nothing for the default; the name of a tool becomes the protocol's object."""
    if choice in (None, "auto"):
        return {}
    if choice in ("none", "required"):
        return {"tool_choice": choice}
    return {"tool_choice": {"type": "function", "function": {"name": choice}}}


def _thinking(level: str | None, how: str) -> dict[str, Any]:
    """A level in the words of the endpoint, nothing for the model's own."""
    if level is None or not how:
        return {}
    if how == "effort":
        return {"reasoning_effort": "none" if level == "off" else level}
    if level == "off":
        return {"chat_template_kwargs": {"enable_thinking": False}}
    return {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": level}}
