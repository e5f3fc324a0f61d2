"""A defect in reading or writing text costs its turn: the model, its generation and what is warm stay."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest

from converted import share
from modeld_process import Client, Modeld, Turn, write_models, write_script
from planted import ENGINE, PLACES, Planted
from scripted_engine import CHATML
from shared.errors import EngineFailed, ModelLoadFailed, TemplateFailed, TextFailed, UnsupportedFeature
from shared.paths import DataRoot
from shared.protocol import api

pytestmark = [pytest.mark.integration, pytest.mark.llama, pytest.mark.anyio, pytest.mark.timeout(120)]

PARAMS = api.Sampling(max_tokens=8, temperature=0.0)
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}
STORY = "Here is a long story that two editors talk about: " + "once upon a time there was a model, " * 8


def ask(client: Client, who: str, more: str = "") -> Turn:
    """A turn of the conversation of `who`, with a tool, so that every place of the worker is passed."""
    return client.turn("a", f"I am {who}. {STORY}{more}", tools=[TOOL], params=PARAMS, conversation=who)


async def test_a_defect_at_any_place_costs_one_turn(data_root: DataRoot, tmp_path: Path) -> None:
    """For each place: the same generation, the next turn of both clients reuses what was warm, the same answer."""
    write_models(data_root, "a")
    planted = Planted(tmp_path / "planted", PLACES)
    async with Modeld(data_root, "llama", **planted.environ) as modeld:
        async with modeld.client("Zed") as zed, modeld.client("VS Code") as code:
            sound = {}
            for client, who in ((zed, "Zed"), (code, "Code")):
                turn = ask(client, who)
                sound[who] = (await turn.end(), turn.text)
            for place in PLACES:
                planted.arm(place)
                struck = ask(zed, "Zed", "?")
                with pytest.raises((TextFailed, TemplateFailed)) as failed:
                    await struck.end()
                assert "RuntimeError" in failed.value.message
                assert "planted" not in failed.value.message or place == "template"
                planted.disarm()
                for client, who in ((zed, "Zed"), (code, "Code")):
                    turn = ask(client, who)
                    after = await turn.end()
                    assert (place, after.generation, after.session_valid) == (place, 1, True)
                    assert after.usage.prefilled < 40 < after.usage.reused, (place, who, after.usage)
                    assert (place, turn.text) == (place, sound[who][1])


async def test_a_defect_of_the_engine_still_costs_the_model(data_root: DataRoot, tmp_path: Path) -> None:
    """The control: where the engine's own memory may be wrong, nothing that is warm is trusted."""
    write_models(data_root, "a")
    planted = Planted(tmp_path / "planted", ENGINE)
    async with Modeld(data_root, "llama", **planted.environ) as modeld, modeld.client() as client:
        for generation, place in ((1, "prefix"), (3, "prefill")):
            assert (await ask(client, "Zed").end()).generation == generation
            planted.arm(place)
            with pytest.raises(EngineFailed):
                await ask(client, "Zed", place).end()
            planted.disarm()
        after = await ask(client, "Zed").end()
        assert (after.generation, after.usage.reused) == (5, 0)


async def test_what_came_before_the_defect_is_shown(data_root: DataRoot, tmp_path: Path) -> None:
    write_models(data_root, "a")
    script = write_script(data_root.path, [{"pieces": ["one ", "two ", "three ", "four "]}])
    planted = Planted(tmp_path / "planted", {"parser": PLACES["parser"]})
    async with Modeld(data_root, "scripted", **script, **planted.environ) as modeld, modeld.client() as client:
        planted.arm("parser", "3")
        turn = client.turn("a", params=PARAMS)
        with pytest.raises(TextFailed) as failed:
            await turn.end()
        assert failed.value.reason.startswith("RuntimeError at modeld.output.parser:")
        assert turn.text == "one two three"
        planted.disarm()
        after = await client.turn("a", params=PARAMS).end()
        assert (after.generation, after.usage.prefilled) == (1, 1)
    assert "planted" not in modeld.log()


async def test_a_template_past_its_deadline_is_reported_as_one(data_root: DataRoot) -> None:
    """In a turn it is the template's error; in a load the model is kept as rejected."""
    write_models(data_root, "a")
    slow = "{% if 'HANG' in messages[0]['content'] %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
    slow += "{% endfor %}{% endif %}"
    script = write_script(data_root.path, template=slow + CHATML)
    environ = {**script, "MODELD_TEMPLATE_DEADLINE": "1"}
    async with Modeld(data_root, "scripted", **environ) as modeld, modeld.client() as client:
        assert (await client.turn("a", params=PARAMS).end()).generation == 1
        with pytest.raises(TemplateFailed, match="the chat template took too long") as failed:
            await client.turn("a", "HANG", params=PARAMS).end()
        assert "None" not in failed.value.message
        assert (await client.turn("a", params=PARAMS).end()).generation == 3
        assert (await client.status()).rejected == []
    write_script(data_root.path, template=slow.replace("'HANG'", "''") + CHATML)
    async with Modeld(data_root, "scripted", **environ) as modeld, modeld.client() as client:
        with pytest.raises(ModelLoadFailed) as refused:
            await client.load("a")
        assert (refused.value.stage, refused.value.model) == ("template", "a")
        assert [one.name for one in (await client.status()).rejected] == ["a"]


def test_a_refusal_without_a_place_names_none() -> None:
    assert TemplateFailed(message="no", index=None).message == "the model's chat template refused the conversation: no"
    assert "message 3 of" in TemplateFailed(message="no", index=3).message


def test_the_stack_tells_text_from_engine() -> None:
    from modeld.worker.place import Call, of_error, of_frame, place_of

    turn = Call("modeld.worker.turn", "decode", 1)
    engine = Call("modeld.engine.llama.engine", "decode", 2)
    cases = {
        (turn, Call("modeld.output.calls.gemmacall", "_items", 3)): (False, "modeld.output.calls.gemmacall:3"),
        (turn, engine): (True, "modeld.engine.llama.engine:2"),
        (turn, engine, Call("llama_cpp._x", "f", 4)): (True, "modeld.engine.llama.engine:2"),
        (turn, engine, turn): (False, "modeld.worker.turn:1"),
        (turn, Call("modeld.engine.llama.engine", "piece", 5), Call("modeld.engine.llama.vocabulary", "piece", 6)): (
            False,
            "modeld.engine.llama.vocabulary:6",
        ),
        (Call("json", "loads", 1),): (True, ""),
    }
    for stack, reported in cases.items():
        assert place_of(stack) == reported
    assert of_frame(sys._getframe()) == (True, "")
    assert of_error(ValueError()) == (True, "")


def _of(x: object, **more: object) -> dict[str, object]:
    return {"type": "object", "properties": {"x": x}, "required": ["x"], **more}


HOSTILE = {
    "a string of a billion": _of({"type": "string", "minLength": 10**5, "maxLength": 10**9}),
    "a list of a billion": _of({"type": "array", "minItems": 10**9, "items": {"type": "string"}}),
    "a pattern that counts": _of({"type": "string", "pattern": "^((a{0,99999}){0,99999}){0,99999}$"}),
    "a number of a thousand digits": _of({"type": "integer", "maximum": 10**1000}),
    "a reference to itself": _of({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"$ref": "#/$defs/a"}}}),
    "a circle of references": _of(
        {"$ref": "#/$defs/a"}, **{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    ),
    "a choice of itself": _of({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {}]}}}),
    "a chain of references": _of(
        {"$ref": "#/$defs/d0"}, **{"$defs": {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(60)}}
    ),
    "a tree": _of({"type": "array", "items": {"$ref": "#"}}),
}


@pytest.mark.parametrize("backend", ["llama", pytest.param("openvino", marks=pytest.mark.model)])
async def test_no_schema_of_a_tool_costs_the_model(
    data_root: DataRoot, request: pytest.FixtureRequest, backend: str
) -> None:
    """The model is held to each from its first token; what no grammar can say is refused by its name, or any object."""
    if backend == "llama":
        write_models(data_root, "a")
    else:
        data_root.models.mkdir(parents=True, exist_ok=True)
        (data_root.models / "a.gguf").symlink_to(request.getfixturevalue("smollm2"))
        share(request.getfixturevalue("smollm2_ir"), data_root.path)  # converted already: a busy machine takes long
    async with Modeld(data_root, backend) as modeld, modeld.client() as client:
        for label, schema in HOSTILE.items():
            tool = {"type": "function", "function": {"name": "read", "parameters": schema}}
            for params in (
                api.Sampling(max_tokens=12, temperature=0.0, tool_choice="required"),
                api.Sampling(max_tokens=12, temperature=0.0, json_schema=schema),
            ):
                with suppress(UnsupportedFeature):
                    await client.turn("a", tools=[tool], params=params).end()
            done = await client.turn("a", tools=[tool], params=PARAMS).end()
            assert (label, done.generation) == (label, 1)
