"""Conversations as bridges and other clients write them, with the words that a prompt of them must hold."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

Message = dict[str, Any]


class Told(NamedTuple):
    """One conversation: `words` must stand in every prompt that is made of it."""

    messages: list[Message]
    tools: list[dict[str, Any]]
    words: tuple[str, ...]


def tool(name: str, description: str | None, parameters: Any = None) -> dict[str, Any]:
    """One tool; what is None is left out."""
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": {key: value for key, value in function.items() if value is not None}}


def one(schema: Any, **more: Any) -> Any:
    """Parameters with one property."""
    return {"type": "object", "properties": {"quantity": schema}, **more}


WEATHER = tool(
    "get_weather",
    "Weather of a city — naïve “quotes” <b>",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "the city"},
            "unit": {"type": "string", "enum": ["c", "f"], "description": "which"},
        },
        "required": ["city"],
    },
)
ADD = tool("add", "Add", {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}})
TOOLS = [WEATHER, ADD]


def said(role: str, content: Any, **more: Any) -> Message:
    """One message."""
    return {"role": role, "content": content, **more}


def call(name: str, arguments: Any, call_id: str = "abcdefgh1") -> dict[str, Any]:
    """One call of a model."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content: Any, call_id: str = "abcdefgh1", name: str | None = "get_weather") -> Message:
    """What a tool answered."""
    return said("tool", content, tool_call_id=call_id, **({} if name is None else {"name": name}))


def calls(*made: dict[str, Any], content: Any = "", **more: Any) -> Message:
    """A message of a model that calls."""
    return said("assistant", content, tool_calls=list(made), **more)


SYSTEM, USER, ANSWER, NEXT = (
    said("system", "SYSWORD be brief"),
    said("user", "USERWORD what?"),
    said("assistant", "ASSTWORD"),
    said("user", "SECONDWORD ok"),
)
ASKED = call("get_weather", {"city": "ZURICHWORD"})
AS_TEXT = call("get_weather", '{"city": "ZURICHWORD"}')
ADDED = call("add", {"a": 1, "b": 2.5}, "abcdefgh2")
GOT, SUM = result("RESULTWORD 5°"), result("RESULTTWO 3.5", "abcdefgh2", "add")
STOPPED, REFUSED = result("(interrupted)"), result("REFUSEDWORD the user rejected this")
CALLED = calls(AS_TEXT)
BOTH = ("USERWORD", "ZURICHWORD", "get_weather")


def foreign(call_id: str) -> list[Message]:
    """A history whose calls are numbered in another model's way."""
    asked = calls(call("get_weather", '{"city": "ZURICHWORD"}', call_id))
    return [SYSTEM, USER, asked, result("RESULTWORD", call_id), ANSWER, NEXT]


CONVERSATIONS: dict[str, Told] = {
    "a question": Told([USER], [], ("USERWORD",)),
    "a system message": Told([SYSTEM, USER], [], ("SYSWORD", "USERWORD")),
    "several turns": Told([SYSTEM, USER, ANSWER, NEXT], [], ("SYSWORD", "USERWORD", "ASSTWORD", "SECONDWORD")),
    "tools": Told([SYSTEM, USER], TOOLS, ("SYSWORD", "USERWORD", "get_weather", "add")),
    "a call and its result": Told([SYSTEM, USER, CALLED, GOT], TOOLS, (*BOTH, "RESULTWORD", "SYSWORD")),
    "arguments as an object": Told([SYSTEM, USER, calls(ASKED), GOT], TOOLS, (*BOTH, "RESULTWORD")),
    "the turn after it": Told(
        [SYSTEM, USER, CALLED, GOT, ANSWER, NEXT], TOOLS, (*BOTH, "RESULTWORD", "ASSTWORD", "SECONDWORD")
    ),
    "stop while a tool asks": Told([SYSTEM, USER, CALLED, STOPPED, NEXT], TOOLS, (*BOTH, "interrupted", "SECONDWORD")),
    "stop after a result": Told([SYSTEM, USER, CALLED, GOT, NEXT], TOOLS, (*BOTH, "RESULTWORD", "SECONDWORD")),
    "stop between two results": Told(
        [SYSTEM, USER, calls(AS_TEXT, ADDED), GOT, result("(interrupted)", "abcdefgh2", "add"), NEXT],
        TOOLS,
        (*BOTH, "RESULTWORD", "2.5", "interrupted", "SECONDWORD"),
    ),
    "stop before any answer": Told([SYSTEM, USER, NEXT], TOOLS, ("USERWORD", "SECONDWORD")),
    "stop after some words": Told([SYSTEM, USER, ANSWER, NEXT], TOOLS, ("ASSTWORD", "SECONDWORD")),
    "stop twice": Told(
        [SYSTEM, USER, CALLED, STOPPED, NEXT, calls(ADDED), result("(interrupted)", "abcdefgh2", "add"), USER],
        TOOLS,
        (*BOTH, "SECONDWORD", "2.5"),
    ),
    "a call without a result": Told([SYSTEM, USER, CALLED, NEXT], TOOLS, (*BOTH, "SECONDWORD")),
    "a call at the end": Told([SYSTEM, USER, CALLED], TOOLS, BOTH),
    "a refused call": Told([SYSTEM, USER, CALLED, REFUSED], TOOLS, (*BOTH, "REFUSEDWORD")),
    "two calls": Told(
        [SYSTEM, USER, calls(AS_TEXT, ADDED), GOT, SUM], TOOLS, (*BOTH, "RESULTWORD", "RESULTTWO", "2.5")
    ),
    "two calls, one result": Told(
        [SYSTEM, USER, calls(AS_TEXT, ADDED), GOT, NEXT], TOOLS, (*BOTH, "RESULTWORD", "2.5", "SECONDWORD")
    ),
    "two calls, results the other way round": Told(
        [SYSTEM, USER, calls(AS_TEXT, ADDED), SUM, GOT, ANSWER, NEXT],
        TOOLS,
        (*BOTH, "RESULTWORD", "RESULTTWO", "2.5", "ASSTWORD", "SECONDWORD"),
    ),
    "three rounds": Told(
        [
            *[SYSTEM, USER, CALLED, GOT],
            *[calls(ADDED), SUM, calls(call("add", {"a": 77, "b": 88}, "abcdefgh3"))],
            result("THIRDWORD", "abcdefgh3", "add"),
        ],
        TOOLS,
        (*BOTH, "RESULTWORD", "RESULTTWO", "2.5", "77", "THIRDWORD"),
    ),
    "text beside a call": Told([SYSTEM, USER, calls(AS_TEXT, content="CALLTEXT"), GOT], TOOLS, (*BOTH, "CALLTEXT")),
    "text beside calls, and on": Told(
        [SYSTEM, USER, calls(AS_TEXT, ADDED, content="CALLTEXT"), GOT, SUM, ANSWER, NEXT],
        TOOLS,
        (*BOTH, "CALLTEXT", "RESULTWORD", "RESULTTWO", "2.5", "ASSTWORD", "SECONDWORD"),
    ),
    "text beside calls, stopped": Told(
        [SYSTEM, USER, calls(AS_TEXT, content="CALLTEXT"), STOPPED, NEXT], TOOLS, (*BOTH, "CALLTEXT", "SECONDWORD")
    ),
    "thoughts": Told(
        [USER, said("assistant", "ASSTWORD", reasoning_content="T"), NEXT], [], ("ASSTWORD", "SECONDWORD")
    ),
    "thoughts beside a call": Told(
        [USER, calls(AS_TEXT, content="CALLTEXT", reasoning_content="T"), GOT], TOOLS, (*BOTH, "CALLTEXT", "RESULTWORD")
    ),
    "no content beside a call": Told([SYSTEM, USER, calls(AS_TEXT, content=None), GOT], TOOLS, (*BOTH, "RESULTWORD")),
    "ids of Kimi": Told(foreign("functions.get_weather:0"), TOOLS, (*BOTH, "RESULTWORD", "ASSTWORD", "SECONDWORD")),
    "ids of OpenAI": Told(
        foreign("call_0123456789abcdef01234567"), TOOLS, (*BOTH, "RESULTWORD", "ASSTWORD", "SECONDWORD")
    ),
    "results without names": Told(
        [SYSTEM, USER, CALLED, result("RESULTWORD", name=None), ANSWER, NEXT],
        TOOLS,
        (*BOTH, "RESULTWORD", "SECONDWORD"),
    ),
    "results in parts": Told(
        [SYSTEM, USER, CALLED, result([{"type": "text", "text": "RESULTWORD"}])], TOOLS, (*BOTH, "RESULTWORD")
    ),
    "an empty result": Told([SYSTEM, USER, CALLED, result("")], TOOLS, BOTH),
    "calls, and no tools any more": Told(
        [SYSTEM, USER, CALLED, GOT, ANSWER, NEXT], [], ("USERWORD", "RESULTWORD", "ASSTWORD", "SECONDWORD")
    ),
    "arguments that are a list": Told(
        [SYSTEM, USER, calls(call("get_weather", [1, 77])), GOT], TOOLS, ("77", "RESULTWORD")
    ),
    "arguments that are no JSON": Told(
        [SYSTEM, USER, calls(call("get_weather", '{"city": "CUTWORD')), GOT], TOOLS, ("CUTWORD", "RESULTWORD")
    ),
    "two system messages": Told([SYSTEM, said("system", "SYSTWO"), USER], [], ("SYSWORD", "SYSTWO", "USERWORD")),
    "a later system message": Told(
        [SYSTEM, USER, ANSWER, said("system", "MIDSYS"), NEXT],
        [],
        ("SYSWORD", "USERWORD", "ASSTWORD", "MIDSYS", "SECONDWORD"),
    ),
    "a system message behind a result": Told(
        [SYSTEM, USER, CALLED, GOT, said("system", "MIDSYS"), NEXT],
        TOOLS,
        (*BOTH, "RESULTWORD", "MIDSYS", "SECONDWORD"),
    ),
    "a system message at the end": Told(
        [USER, ANSWER, said("system", "MIDSYS")], [], ("USERWORD", "ASSTWORD", "MIDSYS")
    ),
    "a developer": Told([said("developer", "DEVWORD"), USER], [], ("DEVWORD", "USERWORD")),
    "a developer behind a system message": Told(
        [SYSTEM, said("developer", "DEVWORD"), USER, ANSWER, NEXT],
        TOOLS,
        ("SYSWORD", "DEVWORD", "USERWORD", "SECONDWORD"),
    ),
    "an assistant first": Told([ANSWER, USER], [], ("ASSTWORD", "USERWORD")),
    "an assistant first behind a system message": Told(
        [SYSTEM, ANSWER, USER, ANSWER, NEXT], [], ("SYSWORD", "ASSTWORD", "USERWORD", "SECONDWORD")
    ),
    "a call first": Told([CALLED, GOT, NEXT], TOOLS, ("ZURICHWORD", "RESULTWORD", "SECONDWORD")),
    "a result first": Told([SYSTEM, GOT, ANSWER, NEXT], TOOLS, ("RESULTWORD", "ASSTWORD", "SECONDWORD")),
    "an assistant last": Told([SYSTEM, USER, ANSWER], [], ("USERWORD", "ASSTWORD")),
    "an assistant alone": Told([ANSWER], [], ("ASSTWORD",)),
    "a system message alone": Told([SYSTEM], [], ("SYSWORD",)),
    "two users": Told([SYSTEM, USER, NEXT], [], ("USERWORD", "SECONDWORD")),
    "two assistants": Told(
        [USER, ANSWER, said("assistant", "ASSTTWO"), NEXT], [], ("ASSTWORD", "ASSTTWO", "SECONDWORD")
    ),
    "an empty user": Told([SYSTEM, said("user", ""), ANSWER, NEXT], [], ("SYSWORD", "ASSTWORD", "SECONDWORD")),
    "an empty assistant": Told([USER, said("assistant", ""), NEXT], [], ("USERWORD", "SECONDWORD")),
    "parts": Told(
        [said("user", [{"type": "text", "text": "PARTONE"}, {"type": "text", "text": "PARTTWO"}])],
        [],
        ("PARTONE", "PARTTWO"),
    ),
    "odd characters": Told([said("user", "漢字 😀 {{ 7*7 }} \u202e '\"")], [], ("漢字", "😀", "{{ 7*7 }}")),
}

SCHEMAS: dict[str, list[dict[str, Any]]] = {
    "no parameters": [tool("ping", "PINGWORD")],
    "null parameters": [
        {"type": "function", "function": {"name": "ping", "description": "PINGWORD", "parameters": None}}
    ],
    "no description": [tool("ping", None, {"type": "object", "properties": {}})],
    "nothing but a name": [tool("ping", None)],
    "empty parameters": [tool("ping", "PINGWORD", {})],
    "a property without description": [tool("ping", "PINGWORD", one({"type": "string"}))],
    "a property without type": [tool("ping", "PINGWORD", one({"description": "PROPWORD"}))],
    "a property that is anything": [tool("ping", "PINGWORD", one({}))],
    "a property that is true": [tool("ping", "PINGWORD", one(True))],
    "anyOf": [tool("ping", "PINGWORD", one({"anyOf": [{"type": "string"}, {"type": "null"}], "description": "d"}))],
    "anyOf of objects": [
        tool(
            "ping",
            "PINGWORD",
            one({"anyOf": [one({"type": "string"}), {"type": "array", "items": {"type": "integer"}}]}),
        )
    ],
    "oneOf at the top": [tool("ping", "PINGWORD", {"oneOf": [one({"type": "string"}), one({"type": "integer"})]})],
    "allOf": [tool("ping", "PINGWORD", one({"allOf": [{"type": "string"}, {"minLength": 1}], "description": "d"}))],
    "a list of types": [tool("ping", "PINGWORD", one({"type": ["string", "null"], "description": "d"}))],
    "$ref": [tool("ping", "PINGWORD", one({"$ref": "#/$defs/Z"}, **{"$defs": {"Z": {"type": "integer"}}}))],
    "$ref to nothing": [tool("ping", "PINGWORD", one({"$ref": "#/$defs/Z"}))],
    "$ref to itself": [
        tool("ping", "PINGWORD", one({"$ref": "#/$defs/Z"}, **{"$defs": {"Z": one({"$ref": "#/$defs/Z"})}}))
    ],
    "arrays": [tool("ping", "PINGWORD", one({"type": "array", "items": {"type": "string"}}))],
    "arrays of anything": [tool("ping", "PINGWORD", one({"type": "array"}))],
    "objects within": [tool("ping", "PINGWORD", one(one(one({"type": "string", "description": "d"}))))],
    "an enum without type": [tool("ping", "PINGWORD", one({"enum": ["x", 1, None]}))],
    "a const": [tool("ping", "PINGWORD", one({"const": 3}))],
    "defaults of all kinds": [tool("ping", "PINGWORD", one({"type": "array", "default": [], "description": "d"}))],
    "required that is nothing": [tool("ping", "PINGWORD", one({"type": "string", "description": "d"}, required=None))],
    "no properties": [tool("ping", "PINGWORD", {"type": "object", "additionalProperties": True})],
    "properties that are null": [tool("ping", "PINGWORD", {"type": "object", "properties": None})],
    "a bad one beside a good one": [WEATHER, tool("ping", "PINGWORD", one({"$ref": "#/$defs/Z"}))],
    "a name with odd characters": [tool("päng-1.x", "PINGWORD", one({"type": "string", "description": "d"}))],
}


def schema_conversation(name: str) -> Told:
    """A question with these tools."""
    tools = SCHEMAS[name]
    names = [each["function"]["name"] for each in tools]
    return Told([SYSTEM, USER], tools, ("USERWORD", "SYSWORD", *names))


def missing(text: str, words: tuple[str, ...]) -> list[str]:
    """Words that a prompt does not hold, also not as JSON writes them."""
    return [word for word in words if word not in text and json.dumps(word)[1:-1] not in text]
