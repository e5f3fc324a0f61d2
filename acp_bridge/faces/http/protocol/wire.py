"""What programs send to the HTTP face: the requests of the OpenAI protocol as typed values. Pure.

A parameter that changes the answer is taken or refused. One that only informs a service in a cloud is taken and listed
in the header `x-modeld-ignored`. Nothing else is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from acp_bridge.faces.http.protocol.errors import Refusal, unsupported
from shared.protocol.api import Stops, Tokens
from shared.text.nesting import TOO_DEEP, too_deep

R = TypeVar("R", bound="Request")

Messages = list[dict[str, Any]]
Level = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
Unit = Annotated[float, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]


class Request(msgspec.Struct, kw_only=True):
    """Base: `model` is the exact name of a model of this machine."""

    model: str


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`include_obfuscation` pads chunks against listeners on a network: there is none."""

    include_usage: bool = False
    include_obfuscation: bool = False


class SamplingRequest(Request, kw_only=True):
    """What chat and completions share. Penalties and probabilities as in the protocol; `top_k`, `min_p` and
    `repeat_penalty` are those of local engines.
    """

    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Share | None = None
    top_k: Annotated[int, msgspec.Meta(ge=0)] | None = None
    min_p: Share | None = None
    repeat_penalty: Unit | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: int | None = None
    stop: str | Stops | None = None
    max_tokens: Tokens | None = None
    logit_bias: dict[str, Annotated[float, msgspec.Meta(ge=-100, le=100)]] = {}
    stream: bool = False
    stream_options: StreamOptions | None = None


class JsonSchema(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`strict` makes no difference: an answer is always held to the schema."""

    name: str = ""
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class NamedFunction(msgspec.Struct, kw_only=True):
    """A tool by its name."""

    name: str


class NamedChoice(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`tool_choice` that names one tool."""

    type: Literal["function"]
    function: NamedFunction


class FunctionTool(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`strict` makes no difference: where the model's notation allows it, calls are held to the parameters."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A tool that the program runs."""

    type: Literal["function"]
    function: FunctionTool


class ChatRequest(SamplingRequest, kw_only=True):
    """`POST /v1/chat/completions`. `prompt_cache_key` names the conversation, a hint of what may be warm."""

    messages: Annotated[Messages, msgspec.Meta(min_length=1)]
    tools: list[Tool] = []
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool = True
    response_format: ResponseFormat | None = None
    max_completion_tokens: Tokens | None = None
    reasoning_effort: Level | None = None
    prompt_cache_key: str | None = None


class CompletionRequest(SamplingRequest, kw_only=True):
    """`POST /v1/completions`. With `suffix` the text between is filled in."""

    prompt: str | Annotated[list[str], msgspec.Meta(min_length=1, max_length=64)]
    suffix: str | None = None


class EmbeddingRequest(Request, kw_only=True):
    """`POST /v1/embeddings`."""

    input: str | Annotated[list[str], msgspec.Meta(min_length=1, max_length=2048)]
    encoding_format: Literal["float", "base64"] = "float"


#: Taken and listed: they tell a cloud who asks, what it may keep and how it may route, and change no answer here.
IGNORED = frozenset(
    {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_retention", "cache_prompt",
     "prompt_cache_key"}
)  # fmt: skip
#: Taken with the value that asks for nothing; any other is refused.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "echo": (False,),
    "modalities": (["text"],),
    "functions": ([],),
    "function_call": ("none", "auto"),
}


def read(body: bytes, kind: type[R]) -> tuple[R, list[str]]:
    """The request, and the names of the parameters that were taken and have no effect. A null is as if it were absent.

    Raises Refusal naming the parameter.
    """
    fields = set(kind.__struct_fields__)
    kept, ignored = {}, []
    for name, value in _object(body).items():
        if value is None:
            continue
        if name in fields:
            kept[name] = value
        elif name in IGNORED:
            ignored.append(name)
        elif value not in NEUTRAL.get(name, ()) or isinstance(value, bool) != isinstance(NEUTRAL[name][0], bool):
            raise unsupported(name, value if name in NEUTRAL else None)
    try:
        return msgspec.convert(kept, kind), sorted(ignored)
    except msgspec.ValidationError as error:
        raise _misshapen(error) from error


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = _decoded(body)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors too
        raise Refusal(400, "the body is not valid JSON", code="invalid_json") from error
    if not isinstance(value, dict):
        raise Refusal(400, "the body is not a JSON object", code="invalid_json")
    if too_deep(value):
        raise Refusal(400, f"the body cannot be read: {TOO_DEEP}", code="invalid_json")
    return value


def _decoded(body: bytes) -> Any:
    """By way of the standard decoder where JavaScript sent half of a surrogate pair, which becomes U+FFFD."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        text = json.dumps(json.loads(body, parse_constant=_no_constant), ensure_ascii=False)
        return json.loads(text.encode("utf-8", "replace").decode("utf-8", "replace"))


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _misshapen(error: msgspec.ValidationError) -> Refusal:
    """In the decoder's own words, which name the place and never the value."""
    reason, _, place = str(error).partition(" - at ")
    at = place.strip("`").removeprefix("$.")
    if not at and "`" in reason:  # a field is missing: only the sentence names it
        at = reason.split("`")[-2]
    return Refusal(400, f"{reason}{f', at {at}' if place else ''}", param=at or None, code="invalid_value")


def stops(asked: SamplingRequest) -> list[str]:
    """The stop strings as a list; empty ones are none."""
    given = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
    return [text for text in given if text]


def wants_usage(asked: SamplingRequest) -> bool:
    """Whether a last chunk tells the usage."""
    return asked.stream_options is not None and asked.stream_options.include_usage


def refuse_stream_options(asked: SamplingRequest) -> None:
    """Raises Refusal: they belong to a stream."""
    if asked.stream_options is not None and not asked.stream:
        raise Refusal(400, "stream_options are for stream: true alone", param="stream_options", code="invalid_value")


def listed(ignored: list[str]) -> Mapping[str, str]:
    """The header that names what had no effect."""
    return {"x-modeld-ignored": ", ".join(ignored)} if ignored else {}
