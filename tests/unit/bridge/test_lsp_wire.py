"""The typed wire of the LSP face, and the TypeScript made from it."""

import importlib.util
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from acp_bridge.faces.lsp import wire

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


def test_told_values_leave_no_field_out() -> None:
    usage = msgspec.to_builtins(wire.Usage())
    assert usage == {"reused": 0, "prefilled": 0, "generated": 0}


def test_asked_values_ignore_what_a_newer_editor_adds() -> None:
    params = msgspec.convert({"messages": [], "fromTheFuture": {"a-b": 1}}, wire.TurnParams)
    assert params.model == ""


def test_parts_of_messages_are_told_apart_by_type() -> None:
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
