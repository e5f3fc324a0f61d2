"""Settings with comments are changed in one place and stay themselves everywhere else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.install.edit import remove_value, set_value
from acp_bridge.install.jsonc import Malformed, read

pytestmark = pytest.mark.unit

PATH = ("agent_servers", "modeld")
AGENT = {"type": "custom", "command": "/opt/py thon/bin/python", "args": ["-P", "-m", "acp_bridge", "acp"], "env": {}}

ZED = """// Zed settings
//
// For information on how to configure Zed, see the Zed documentation
{
  "theme": "One Dark", // the dark one
  /* fonts */
  "buffer_font_size": 15,
  "agent_servers": {
    // mine
    "other": { "type": "custom", "command": "other" }
  },
  "vim_mode": true,
}
"""


def test_comments_formatting_and_order_survive() -> None:
    changed = set_value(ZED, PATH, AGENT)
    removed = [line for line in ZED.splitlines() if line not in changed.splitlines()]
    assert removed == ['    "other": { "type": "custom", "command": "other" }'], "it got a comma, nothing else moved"
    assert read(changed)["agent_servers"] == {"other": {"type": "custom", "command": "other"}, "modeld": AGENT}
    assert list(read(changed)) == list(read(ZED))


def test_a_second_time_changes_nothing_and_removal_restores_the_bytes() -> None:
    changed = set_value(ZED, PATH, AGENT)
    assert set_value(changed, PATH, AGENT) == changed
    assert remove_value(changed, PATH) == ZED
    assert remove_value(ZED, PATH) == ZED


@pytest.mark.parametrize(
    "text",
    [
        "", "\n", "// only a comment\n", "{}", "{}\n", "{\n}\n", "{ }", '{"a": 1}', '{"a": 1,}', '{\n\t"a": 1\n}',
        '{\n\t"a": 1, // last\n}', '{\r\n    "a": [1, 2]\r\n}\r\n', '{"agent_servers": {}}', '{"agent_servers": null}',
        '{\n  "a": 1 /* c */\n  // end\n}', '\ufeff{\n  "a": 1\n}', '{"agent_servers": {"modeld": {"command": "old"}}}',
        '{"a": "// no comment", "b": "/* nor this */"}',
    ],
)  # fmt: skip
def test_shapes_of_settings(text: str) -> None:
    before = read(text) or {}
    changed = set_value(text, PATH, AGENT)
    assert read(changed)["agent_servers"]["modeld"] == AGENT
    assert {key: value for key, value in read(changed).items() if key != "agent_servers"} == {
        key: value for key, value in before.items() if key != "agent_servers"
    }
    assert comments(changed) == comments(text)
    assert ("\r\n" in changed) == ("\r\n" in text)
    assert set_value(changed, PATH, AGENT) == changed
    assert "modeld" not in (read(remove_value(changed, PATH)).get("agent_servers") or {})


def test_the_files_own_indentation_is_used() -> None:
    assert '\n\t"agent_servers": {\n\t\t"modeld": {\n\t\t\t"type"' in set_value('{\n\t"a": 1\n}\n', PATH, AGENT)
    assert '\n    "agent_servers": {\n        "modeld": {' in set_value('{\n    "a": 1\n}\n', PATH, AGENT)


@pytest.mark.parametrize(
    ("text", "line"),
    [("{", 1), ('{\n "a": }', 2), ('{"a" 1}', 1), ("[]", 1), ('{"a": 1} x', 1), ("{\n /* never ends", 2), ("nope", 1),
     ('{"a": 1 "b": 2}', 1), ('{"agent_servers": []}', 1), ('{"a": "no end}', 1)],
)  # fmt: skip
def test_broken_settings_are_refused_with_their_place(text: str, line: int) -> None:
    with pytest.raises(Malformed) as caught:
        set_value(text, PATH, AGENT)
    assert caught.value.line == line


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(Malformed, match="deeply"):
        read("[" * 5000)


def comments(text: str) -> list[str]:
    """Every comment, strings aside."""
    found = re.findall(r'"(?:[^"\\]|\\.)*"|//[^\r\n]*|/\*.*?\*/', text, re.DOTALL)
    return [one for one in found if one[0] == "/"]


KEYS = st.sampled_from(["a", "b", "agent_servers", "modeld", 'naïve " key', "x/*y"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
SPACE = st.sampled_from(["", " ", "\n", "\n  ", "\n\t\t", " // note\n", "/* a */", "\n  /* b\n */ "])


@st.composite
def documents(draw: st.DrawFn) -> str:
    """An object written with odd spacing, comments and trailing commas."""
    import json

    def write(value: Any) -> str:
        if not isinstance(value, dict | list):
            return json.dumps(value)
        keys = [f"{json.dumps(key)}{draw(SPACE)}:{draw(SPACE)}" for key in value] if isinstance(value, dict) else None
        items = list(value.values()) if isinstance(value, dict) else value
        parts = [f"{draw(SPACE)}{keys[at] if keys else ''}{write(item)}{draw(SPACE)}" for at, item in enumerate(items)]
        body = ",".join(parts) + ("," + draw(SPACE) if draw(st.booleans()) and parts else "")
        marks = "{}" if isinstance(value, dict) else "[]"
        return f"{marks[0]}{body}{marks[1]}"

    return draw(SPACE) + write(draw(st.dictionaries(KEYS, VALUES, max_size=4))) + draw(SPACE)


@given(documents())
def test_any_document_keeps_its_values_and_comments(text: str) -> None:
    before = read(text)
    if isinstance(before.get("agent_servers"), dict | None):
        changed = set_value(text, PATH, AGENT)
        others = {key: value for key, value in (before.get("agent_servers") or {}).items() if key != "modeld"}
        assert read(changed) == {**before, "agent_servers": {**others, "modeld": AGENT}}
        if "modeld" not in (before.get("agent_servers") or {}):
            assert comments(changed) == comments(text)
        after = read(remove_value(changed, PATH))
        assert {key: value for key, value in after.items() if key != "agent_servers"} == {
            key: value for key, value in before.items() if key != "agent_servers"
        }
        assert (after.get("agent_servers") or {}) == others
    else:
        with pytest.raises(Malformed):
            set_value(text, PATH, AGENT)
