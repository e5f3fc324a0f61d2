"""Text from outside acts nowhere in what an editor of ACP or LSP is shown: titles, cards, options, forms, remarks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from acp_bridge.conversations.database import Listed
from acp_bridge.conversations.events import Card, PlanSet, Remark, Saved, TextItem, Titled
from acp_bridge.conversations.export import markdown
from acp_bridge.conversations.state import Conversation
from acp_bridge.faces.acp.editor import labelled
from acp_bridge.faces.acp.errors import shown
from acp_bridge.faces.acp.methods.session_list import _info
from acp_bridge.faces.acp.options import config_options
from acp_bridge.faces.acp.updates import Updates
from acp_bridge.faces.lsp.progress import WorkDone
from acp_bridge.models.picker import RemoteModel, build_picker
from hostile import HOSTILE, markup, raw
from shared.errors import ModelNotFound
from shared.text.shown import TITLE_MOST

pytestmark = pytest.mark.unit

KINDS = pytest.mark.parametrize("kind", HOSTILE)


def wire(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def is_plain(text: str) -> bool:
    return raw(text) == [] and markup(text) == []


def is_title(text: str) -> bool:
    return is_plain(text) and "\n" not in text and len(text) <= 2 * TITLE_MOST


@KINDS
def test_the_title_and_the_texts_of_a_card(kind: str) -> None:
    text = HOSTILE[kind]
    updates = Updates()
    card = Card(card="c", title=f"Read {text}", status="pending", items=[TextItem(text=text)])
    (opened,) = map(wire, updates.of(card))
    (changed,) = map(wire, updates.of(msgspec.structs.replace(card, title=f"server: {text}", status="failed")))
    assert is_title(opened["title"])
    assert is_title(changed["title"])
    body = opened["content"][0]["content"]["text"]
    assert is_plain(body)
    assert body.startswith("```"), "what was printed stands in a fence"


@KINDS
def test_a_remark_a_plan_and_the_title_of_a_conversation(kind: str) -> None:
    text = HOSTILE[kind]
    updates = Updates()
    (remark,) = map(wire, updates.of(Remark(message="m", text=f"The server {text} is not available.")))
    (plan,) = map(wire, updates.of(PlanSet(entries=[(text, "medium", "pending")])))
    (titled,) = map(wire, updates.of(Titled(title=text)))
    assert is_plain(remark["content"]["text"])
    assert is_title(plan["entries"][0]["content"])
    assert raw(titled["title"]) == []
    assert "\n" not in titled["title"]
    listed = wire(_info(Listed(id="i", cwd="/w", roots=[], title=text, updated=0.0)))
    assert raw(listed["title"]) == []


@KINDS
def test_an_error_is_reported_without_links(kind: str) -> None:
    error = ModelNotFound(requested=HOSTILE[kind], near=[])
    reported = shown(error).to_wire()
    assert is_plain(reported["message"])
    assert "\n" not in reported["message"]
    assert reported["data"]["requested"] == HOSTILE[kind], "a field is the value itself"
    assert shown(error).message == shown(error).message, "telling it twice is telling the same"


@KINDS
def test_the_options(kind: str) -> None:
    text = HOSTILE[kind]
    remote = RemoteModel(id="p/m", name=text, provider="p")
    options = wire(config_options(build_picker([], [remote], "p/gone", "p/m", text), "code", "", [], None))
    shown = [choice for group in options[0]["options"] for choice in group["options"]]
    assert all(raw(found) == [] and "\n" not in found for found in strings(shown))


@KINDS
def test_a_form_of_a_server(kind: str) -> None:
    text = HOSTILE[kind]
    schema = {"type": "object", "title": text, "properties": {"description": {"type": "string", "description": text}}}
    made = labelled({**schema, "required": ["description"]})
    assert made["properties"].keys() == {"description"}, "a field may be called so"
    assert all(raw(found) == [] and "\n" not in found for found in strings(made))
    kept = labelled({"properties": {"x": {"enum": [text]}}})
    assert kept["properties"]["x"]["enum"] == [text], "a value is given back as it is"


@KINDS
def test_the_progress_of_an_editor_of_lsp(kind: str) -> None:
    reported: list[dict[str, Any]] = []

    class Protocol:
        def tell(self, method: str, params: dict[str, Any]) -> None:
            reported.append(params)

    work = WorkDone(Protocol(), "t", HOSTILE[kind])  # type: ignore[arg-type]
    work.report(HOSTILE[kind])
    work.end(HOSTILE[kind])
    assert len(reported) == 3
    assert all(raw(text) == [] and "\n" not in text for text in strings(reported))


@KINDS
def test_an_exported_conversation_holds_no_link_in_its_title_and_cards(kind: str) -> None:
    text = HOSTILE[kind]
    events: list[Saved] = [Remark(message="m", text=text), Card(card="c", title=text, items=[TextItem(text=text)])]
    document = markdown(Conversation(id="i" * 8, cwd=f"/w/{text}", title=text, events=events, created=0.0))
    assert markup(document) == []


def test_plain_titles_stay_as_they_are() -> None:
    for title in ("Read app.py", "`make test`", "echo: change", "Find `**/*.py`", "Edit src/naïve (1).txt"):
        (card,) = map(wire, Updates().of(Card(card="c", title=title)))
        assert card["title"] == title
