"""Options of a request as those of a turn. Pure."""

from __future__ import annotations

from typing import Any

from acp_bridge.faces.http.protocol import wire
from acp_bridge.faces.http.protocol.errors import Refusal
from shared.protocol import api

#: What the protocol calls the levels of thinking, and what we do.
_LEVELS = {"none": "off", "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high"}


def common(asked: wire.SamplingRequest) -> dict[str, Any]:
    """What every kind of answer takes."""
    return {
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": asked.top_k,
        "min_p": asked.min_p,
        "repeat_penalty": asked.repeat_penalty,
        "presence_penalty": asked.presence_penalty,
        "frequency_penalty": asked.frequency_penalty,
        "seed": asked.seed,
        "stop": wire.stops(asked),
        "max_tokens": asked.max_tokens,
        "logit_bias": asked.logit_bias,
    }


def of_chat(asked: wire.ChatRequest, *, thinks: bool) -> api.Sampling:
    """`thinks`: the model has levels of thinking. Raises Refusal."""
    options = common(asked)
    if asked.max_completion_tokens is not None:
        options["max_tokens"] = asked.max_completion_tokens
    return api.Sampling(
        **options,
        tool_choice=_tool_choice(asked),
        json_schema=_schema(asked.response_format),
        thinking=_thinking(asked.reasoning_effort, thinks=thinks),
    )


def chat_tools(asked: wire.ChatRequest) -> list[dict[str, Any]]:
    """The tools in the shape that templates are written for."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.function.name,
                "description": tool.function.description or "",
                "parameters": tool.function.parameters or {"type": "object", "properties": {}},
            },
        }
        for tool in asked.tools
    ]


def _tool_choice(asked: wire.ChatRequest) -> str | None:
    choice = asked.tool_choice
    if choice is None or choice == "auto":
        return None
    if isinstance(choice, str):
        if choice == "required" and not asked.tools:
            raise Refusal(
                400, "tool_choice asks for a call, and there are no tools", param="tool_choice", code="invalid_value"
            )
        return choice
    if choice.function.name not in [tool.function.name for tool in asked.tools]:
        raise Refusal(400, "tool_choice names none of the tools", param="tool_choice", code="invalid_value")
    return choice.function.name


def _schema(wanted: wire.ResponseFormat | None) -> dict[str, Any] | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"type": "object"}
    if wanted.json_schema is None or wanted.json_schema.schema is None:
        raise Refusal(
            400, "a json_schema needs its schema", param="response_format.json_schema.schema", code="invalid_value"
        )
    return wanted.json_schema.schema


def _thinking(effort: wire.Level | None, *, thinks: bool) -> str | None:
    """A model that does not think satisfies `none` and `minimal`; more is refused by the turn itself."""
    if effort is None or (not thinks and effort in ("none", "minimal")):
        return None
    return _LEVELS[effort]
