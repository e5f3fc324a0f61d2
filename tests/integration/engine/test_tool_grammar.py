"""Tool calls and JSON answers are valid by construction: real weights that would write something else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from engine_bench import identity

from modeld.engine.contract import AbortFlag, LoadRequest
from modeld.engine.factory import make_engine
from modeld.pipe.messages import Done, Turn
from modeld.worker.chat import Chat
from modeld.worker.template_limits import RenderGuard
from modeld.worker.turn import TurnRunner
from modeld.worker.turn_gate import Activity
from shared.errors import UnsupportedFeature
from shared.protocol.api import Sampling

pytestmark = [pytest.mark.integration, pytest.mark.model, pytest.mark.timeout(240)]
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "days", "unit"],
    "additionalProperties": False,
}
TIME: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
SCHEMAS: dict[str, dict[str, Any]] = {"get_weather": WEATHER, "get_time": TIME}
#: Marks by which the reader of templates knows a family; the text itself is ChatML.
CHATML = (
    "{% if false %}{{ 'MARK' }}{{ tools }}{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: What the examples in the history write: always broken, which small models copy faithfully.
BROKEN = {
    "<tool_call>": '<tool_call>{"city": "%s"',
    "[TOOL_CALLS]": '[TOOL_CALLS]get_weather[ARGS]{"town": "%s"',
    "<|python_tag|>": '{"name": "get_weather", "parameters": {"town": "%s"',
    "<TOOLCALL>": '<TOOLCALL>[{"city": "%s"',
}


def tools(schemas: dict[str, dict[str, Any]] = SCHEMAS) -> list[dict[str, Any]]:
    """As a client sends them."""
    return [
        {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}
        for name, schema in schemas.items()
    ]


def history(mark: str) -> list[dict[str, str]]:
    """A conversation that teaches to call in a broken way, and asks once more."""
    messages = [{"role": "system", "content": "Answer with a tool call."}]
    for city in ("Paris", "Oslo"):
        messages.append({"role": "user", "content": f"What is the weather in {city}?"})
        messages.append({"role": "assistant", "content": BROKEN[mark] % city})
    return [*messages, {"role": "user", "content": "What is the weather in Rome?"}]


Runner = Callable[[str], TurnRunner]


@pytest.fixture(scope="module", params=["llama", "openvino"])
def runner(request: pytest.FixtureRequest, engine_root: Path, smollm2: Path) -> Iterator[tuple[str, Runner]]:
    """The backend's name and its turns on SmolLM2, under a template of the family that a mark names."""
    backend = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODELD_DATA_ROOT", str(engine_root))
        weights = request.getfixturevalue("converted_smollm2") if backend == "openvino" else smollm2
        engine = make_engine(backend, AbortFlag())
        engine.prepare()
        asked = LoadRequest(
            identity=identity(weights, backend), model={}, num_ctx=2048, threads=1, parked_bytes=64 << 20
        )
        loaded = engine.load(asked, lambda done, of: None)

    def of(mark: str) -> TurnRunner:
        from msgspec.structs import replace

        reported = replace(loaded, template=mark if mark.startswith("{") else CHATML.replace("MARK", mark))
        chat, _ = Chat.for_model(engine, reported, "smollm2", RenderGuard(10.0))
        return TurnRunner(engine, chat, reported, Activity())

    yield backend, of
    engine.close()


def ask(runner: TurnRunner, mark: str, offered: list[dict[str, Any]], **sampling: Any) -> Done:
    """One turn; greedy unless asked otherwise."""
    params = Sampling(**{"temperature": 0.0, "max_tokens": 80, **sampling})
    return runner.turn(Turn(turn=1, messages=history(mark), tools=offered, params=params), lambda events: None)


@pytest.mark.parametrize("mark", ["<tool_call>", "[TOOL_CALLS]", "<TOOLCALL>"])
def test_a_call_that_was_begun_is_one_of_the_tools_with_arguments_of_its_schema(
    runner: tuple[str, Runner], mark: str
) -> None:
    done = ask(runner[1](mark), mark, tools())
    assert done.finish_reason == "tool_calls"
    assert len(done.tool_calls) >= 1
    for call in done.tool_calls:
        jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])


def test_arguments_are_held_where_a_family_writes_no_mark_at_all(runner: tuple[str, Runner]) -> None:
    backend, of = runner
    done = ask(of("<|python_tag|>"), "<|python_tag|>", tools())
    if backend == "llama":
        assert [call.name for call in done.tool_calls] == ["get_weather"]
        jsonschema.validate(json.loads(done.tool_calls[0].arguments), WEATHER)
    else:
        assert all(call.fault for call in done.tool_calls), "the pipeline watches for marks only: none can be run"


@pytest.mark.parametrize("seed", [0, 3])
def test_calls_hold_under_sampling_too_and_repeat_with_the_seed(runner: tuple[str, Runner], seed: int) -> None:
    mark = "<tool_call>"
    turns = runner[1](mark)
    sampled = {"temperature": 1.2, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": seed, "max_tokens": 56}
    ask(turns, mark, tools(), max_tokens=1)  # both below evaluate one token
    once, again = (ask(turns, mark, tools(), **sampled).tool_calls for _ in range(2))
    for call in once:
        jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])
    assert [(call.name, call.arguments) for call in once] == [(call.name, call.arguments) for call in again]


def test_without_tools_the_same_answer_is_free_text(runner: tuple[str, Runner]) -> None:
    done = ask(runner[1]("<tool_call>"), "<tool_call>", [])
    assert done.tool_calls == []
    assert done.finish_reason in ("stop", "length")


def test_a_schema_that_no_grammar_can_say_still_gives_an_object(runner: tuple[str, Runner]) -> None:
    odd = {
        "type": "object",
        "properties": {"city": {"type": "string", "pattern": "^(?=R)Rome$"}, "more": {"$ref": "#/elsewhere/x"}},
    }
    done = ask(runner[1]("<tool_call>"), "<tool_call>", tools({"get_weather": odd}))
    for call in done.tool_calls:
        assert isinstance(json.loads(call.arguments), dict)
    assert ask(runner[1]("<tool_call>"), "<tool_call>", tools()).finish_reason == "tool_calls"


def test_definitions_of_two_tools_with_one_name_are_kept_apart(runner: tuple[str, Runner]) -> None:
    def shaped(kind: str) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"it": {"$ref": "#/$defs/Item"}},
            "required": ["it"],
            "additionalProperties": False,
            "$defs": {"Item": {"type": kind}},
        }

    schemas = {"get_time": shaped("boolean"), "get_weather": shaped("integer")}
    done = ask(runner[1]("<tool_call>"), "<tool_call>", tools(schemas))
    assert done.finish_reason == "tool_calls"
    for call in done.tool_calls:
        jsonschema.validate(json.loads(call.arguments), schemas[call.name])


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_whole_answer_follows_its_schema(runner: tuple[str, Runner], temperature: float) -> None:
    events: list[Any] = []
    params = Sampling(temperature=temperature, max_tokens=120, seed=3, json_schema=SCHEMA)
    messages = [{"role": "user", "content": "Tell me about a person, in plain words."}]
    done = runner[1]("<tool_call>").turn(Turn(turn=1, messages=messages, tools=[], params=params), events.extend)
    assert done.finish_reason == "stop"
    jsonschema.validate(json.loads("".join(getattr(one, "text", "") for one in events)), SCHEMA)


def test_a_schema_that_cannot_be_is_refused_and_the_next_turn_works(runner: tuple[str, Runner]) -> None:
    turns = runner[1]("<tool_call>")
    broken = Sampling(temperature=0.0, max_tokens=8, json_schema={"type": "nonsense"})
    messages = [{"role": "user", "content": "Hello."}]
    with pytest.raises(UnsupportedFeature, match="json_schema"):
        turns.turn(Turn(turn=1, messages=messages, tools=[], params=broken), lambda events: None)
    plain = Sampling(temperature=0.0, max_tokens=8)
    assert turns.turn(Turn(turn=2, messages=messages, tools=[], params=plain), lambda events: None).usage.generated


# --- an answer that has to be a call ------------------------------------------------------------

PLAIN = [{"role": "user", "content": "Say hello to me in one short sentence."}]


def must(runner: TurnRunner, choice: str, offered: list[dict[str, Any]], **sampling: Any) -> Done:
    """One turn on a question that needs no tool."""
    params = Sampling(**{"temperature": 0.0, "max_tokens": 80, "tool_choice": choice, **sampling})
    return runner.turn(Turn(turn=1, messages=PLAIN, tools=offered, params=params), lambda events: None)


@pytest.mark.parametrize("mark", ["<tool_call>", "[TOOL_CALLS]", "<|python_tag|>"])
def test_a_turn_that_must_call_calls_whatever_was_asked(runner: tuple[str, Runner], mark: str) -> None:
    turns = runner[1](mark)
    assert ask(turns, mark, [], max_tokens=8).tool_calls == []
    done = must(turns, "required", tools())
    assert done.finish_reason == "tool_calls"
    for call in done.tool_calls:
        jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_named_tool_is_the_one_that_is_called(runner: tuple[str, Runner], name: str) -> None:
    done = must(runner[1]("<tool_call>"), name, tools())
    assert {call.name for call in done.tool_calls} == {name}
    jsonschema.validate(json.loads(done.tool_calls[0].arguments), SCHEMAS[name])


def test_a_model_that_writes_no_marks_begins_with_the_call_as_its_template_does(runner: tuple[str, Runner]) -> None:
    """Llama 3 writes JSON alone: read off the template, arguments held from there on."""
    llama3 = (
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
        "{% if message.tool_calls %}{% set call = message.tool_calls[0].function %}"
        '{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}'
        "{% else %}{{ message['content'] }}{% endif %}<|im_end|>\n"
        "{% if loop.first %}{{ tools | tojson if tools else '' }}<|python_tag|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    turns = runner[1](llama3)
    done = must(turns, "get_weather", tools())
    assert [call.name for call in done.tool_calls] == ["get_weather"]
    jsonschema.validate(json.loads(done.tool_calls[0].arguments), WEATHER)


@pytest.mark.parametrize(("choice", "offered"), [("required", []), ("no_such_tool", tools())])
def test_a_call_that_nobody_can_make_is_refused_by_name(
    runner: tuple[str, Runner], choice: str, offered: list[dict[str, Any]]
) -> None:
    with pytest.raises(UnsupportedFeature, match=choice):
        must(runner[1]("<tool_call>"), choice, offered)


def test_a_schema_for_the_whole_answer_and_a_call_exclude_each_other(runner: tuple[str, Runner]) -> None:
    with pytest.raises(UnsupportedFeature, match="json_schema"):
        must(runner[1]("<tool_call>"), "required", tools(), json_schema={"type": "object"})
