"""The protocol's values: content both ways, cards that only move forward, options that are always complete."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from acp_bridge.conversations.events import Card, Change, Said, Shown, TextItem, UserSaid
from acp_bridge.core.attachments import path_of
from acp_bridge.faces.acp.content import block_of, parts_of
from acp_bridge.faces.acp.methods.folders import checked_folders
from acp_bridge.faces.acp.options import config_options
from acp_bridge.faces.acp.updates import Updates
from acp_bridge.models.picker import Choice, Group, Picker
from shared.protocol.faults import InvalidParams

pytestmark = pytest.mark.unit


def wire(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_the_baseline_goes_both_ways() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "hi"},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "x"}},
        {"type": "image", "data": "AA==", "mimeType": "image/png"},
    ]
    assert [wire(block_of(part)) for part in parts_of(blocks)] == blocks


@pytest.mark.parametrize(
    ("blocks", "at"),
    [
        ([], "$.prompt"),
        ([{"type": "text", "text": " \n"}], "$.prompt"),
        ([{"type": "text"}], "$.prompt[0].text"),
        ([{"type": "text", "text": "a"}, {"type": "audio"}], "$.prompt[1].type"),
        ([{"type": "resource", "resource": 7}], "$.prompt[0].resource"),
    ],
)
def test_what_cannot_be_used_is_named(blocks: list[dict[str, Any]], at: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        parts_of(blocks)
    assert refused.value.at == at


def test_paths_of_uris() -> None:
    assert path_of("file:///a%20b") == "/a b"
    assert path_of("file:///C:/x") == "C:/x"
    assert path_of("/plain") == "/plain"
    assert path_of("https://example.org") is None
    assert path_of("http://[x") is None


def test_folders_are_absolute() -> None:
    assert checked_folders("/w", ["/a"]) == ["/a"]
    assert checked_folders("C:\\w", None) == []
    with pytest.raises(InvalidParams) as refused:
        checked_folders("/w", ["/a", "b"])
    assert refused.value.at == "$.additionalDirectories[1]"


def test_a_card_is_opened_then_changed() -> None:
    updates = Updates()
    (first,) = updates.of(Card(card="c", title="Read", status="in_progress"))
    (second,) = updates.of(Card(card="c", title="Read", status="completed", items=[TextItem(text="x")]))
    assert wire(first)["sessionUpdate"] == "tool_call"
    assert wire(second) == {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "c",
        "status": "completed",
        "content": [{"type": "content", "content": {"type": "text", "text": "```\nx\n```"}}],
    }


def test_a_status_never_goes_back() -> None:
    updates = Updates()
    updates.of(Card(card="c", title="t", status="completed"))
    assert updates.of(Card(card="c", title="t", status="in_progress")) == []


def test_a_new_file_has_no_old_text() -> None:
    (card,) = Updates().of(Card(card="c", title="t", items=[Change(path="/a", new="x")]))
    assert wire(card)["content"] == [{"type": "diff", "path": "/a", "newText": "x", "oldText": None}]


def test_a_replay_shows_the_user_too() -> None:
    hello = UserSaid(message="m", parts=parts_of([{"type": "text", "text": "hi"}]))
    events: list[Shown] = [hello, Said(message="a", text="yo")]
    assert [wire(update)["sessionUpdate"] for update in Updates().replay(events)] == [
        "user_message_chunk",
        "agent_message_chunk",
    ]


def test_options_are_complete_with_their_current_values() -> None:
    picker = Picker(current="a", groups=(Group(id="g", name="G", choices=(Choice(value="a", name="A"),)),))
    two = wire(config_options(picker, "code", "", [], None))
    three = wire(config_options(picker, "code", "bogus", ["default", "off"], True))
    assert [option["id"] for option in two] == ["model", "mode"]
    assert [option.get("category") for option in three] == ["model", "mode", "thought_level", None]
    assert (three[3]["type"], three[3]["currentValue"]) == ("boolean", True)
    assert three[2]["currentValue"] == "default"
