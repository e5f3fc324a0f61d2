"""The typed wire of the LSP face, and the TypeScript made from it."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import msgspec
import pytest

from acp_bridge.faces.lsp import wire
from shared.catalog.advertised.fit import Fit
from shared.protocol import api

pytestmark = pytest.mark.unit
ROOT = Path(__file__).resolve().parents[3]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("typescript", ROOT / "scripts" / "typescript.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_typescript_is_in_step() -> None:
    made = (ROOT / "editors" / "vscode" / "src" / "wire.ts").read_text(encoding="utf-8")
    assert made == generator().render(), "run `python scripts/typescript.py`"


def test_every_method_is_in_the_typescript_once() -> None:
    text = generator().render()
    for method in wire.METHODS:
        assert text.count(f"'{method.name}':") == 1


def test_method_names_are_unique_and_ours() -> None:
    names = [method.name for method in wire.METHODS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("modeld/") for name in names)


def test_reported_values_leave_no_field_out() -> None:
    usage = msgspec.to_builtins(wire.Usage())
    assert usage == {"reused": 0, "prefilled": 0, "generated": 0}


def test_asked_values_ignore_what_a_newer_editor_adds() -> None:
    params = msgspec.convert({"messages": [], "fromTheFuture": {"a-b": 1}}, wire.TurnParams)
    assert params.model == ""


def test_parts_of_messages_are_distinguished_by_type() -> None:
    raw = {
        "role": "assistant",
        "content": [
            {"type": "reasoning", "text": "hm"},
            {"type": "text", "text": "yes"},
            {"type": "tool_call", "id": "1", "name": "read", "input": {"jsonrpc": "2.0", "id": 3, "error": {}}},
        ],
    }
    message = msgspec.convert(raw, wire.Message)
    assert [type(part) for part in message.content] == [wire.Reasoning, wire.Text, wire.CallPart]


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"role": "user", "content": [{"type": "video", "data": ""}]}, wire.Message)


TWINS = [
    (wire.Model, api.LibraryRow, {"state"}),
    (wire.Fit, Fit, {"source"}),
    (wire.Busy, api.BusyOperation, set()),
    (wire.Memory, api.MemoryStatus, set()),
    (wire.Waiting, api.Waiting, set()),
    (wire.Status, api.Status, {"memory", "queue", "busy", "last_error"}),
    (wire.TurnResult, api.TurnResult, {"usage", "timings", "tool_calls"}),
    (wire.ToolCall, api.ToolCall, set()),
    (wire.Usage, api.Usage, set()),
    (wire.Timings, api.Timings, set()),
]


@pytest.mark.parametrize(("kind", "source", "said"), TWINS, ids=lambda value: getattr(value, "__name__", ""))
def test_fields_of_one_name_mean_one_thing_on_both_wires(kind: Any, source: Any, said: set[str]) -> None:
    """What `mirrored` takes over; the others are said in another type (a state more, a list of this wire's own)."""
    ours, theirs = ({each.name: each.type for each in msgspec.structs.fields(one)} for one in (kind, source))
    shared = ours.keys() & theirs.keys()
    assert shared
    assert {name for name in shared if ours[name] != theirs[name]} == said


def test_every_event_that_an_editor_is_shown_has_the_fields_of_the_daemons() -> None:
    shown = {each.__struct_config__.tag: each for each in get_args(wire.TurnEvent)}
    theirs = {each.__struct_config__.tag: each for each in get_args(api.Event)}
    assert shown.keys() - theirs.keys() == {"waiting", "notice"}
    for tag in shown.keys() & theirs.keys():
        assert set(shown[tag].__struct_fields__) == set(theirs[tag].__struct_fields__), tag
