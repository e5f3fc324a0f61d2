"""The pure parts of a turn: messages from events, fitting the window, stages as cards, commands, titles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.conversations.commands import COMMANDS, parse_command
from acp_bridge.conversations.events import (
    Compacted,
    LinkPart,
    Part,
    ResourcePart,
    Said,
    Saved,
    TextPart,
    Thought,
    ToolAnswered,
    ToolsCalled,
    TurnEnded,
    UserSaid,
)
from acp_bridge.conversations.state import messages_of, title_of, user_content
from acp_bridge.turn import context
from acp_bridge.turn.model.switch_question import switch_question
from acp_bridge.turn.stages import Stages
from shared.errors import ContextOverflow
from shared.protocol import api
from shared.text.words import switch_sentence

pytestmark = pytest.mark.unit


def user(text: str) -> UserSaid:
    return UserSaid(message="m", parts=[TextPart(text=text)])


def test_messages_follow_the_events() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    events: list[Saved] = [
        user("hi"),
        Thought(message="t", text="hm"),
        Said(message="a", text="one "),
        Said(message="a", text="two"),
        ToolsCalled(message="a", calls=[call]),
        ToolAnswered(call="c", name="read", text="done"),
        Said(message="b", text="three"),
        TurnEnded(stop="end_turn"),
    ]
    assert messages_of(events) == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "one two", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": "read", "content": "done"},
        {"role": "assistant", "content": "three"},
    ]


def test_a_call_nobody_answered_is_answered() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    events: list[Saved] = [user("x"), ToolsCalled(message="a", calls=[call])]
    assert [message["role"] for message in messages_of(events)] == [
        "user",
        "assistant",
        "tool",
    ]


def test_a_refused_message_does_not_spoil_the_conversation() -> None:
    events: list[Saved] = [user("too long"), TurnEnded(stop="failed"), user("short")]
    assert messages_of(events) == [{"role": "user", "content": "short"}]


def test_a_half_answer_is_kept() -> None:
    events: list[Saved] = [user("a"), Said(message="m", text="half"), TurnEnded(stop="failed"), user("b")]
    assert [message["content"] for message in messages_of(events)] == ["a", "half", "b"]


def test_two_user_messages_in_a_row_are_one() -> None:
    events: list[Saved] = [user("a"), TurnEnded(stop="cancelled"), user("b")]
    assert messages_of(events) == [{"role": "user", "content": "a\n\nb"}]


def test_a_summary_replaces_what_came_before() -> None:
    events: list[Saved] = [user("a"), Said(message="m", text="b"), Compacted(summary="we spoke"), user("c")]
    contents = [message["content"] for message in messages_of(events)]
    assert "we spoke" in contents[0]
    assert contents[-1] == "c"
    assert [message["role"] for message in messages_of(events)] == ["user", "assistant", "user"]


def test_files_come_before_the_words() -> None:
    file, link = ResourcePart(uri="file:///a.py", text="x = 1"), LinkPart(uri="u", name="n")
    parts: list[Part] = [TextPart(text="explain"), file, link]
    content = user_content(parts)
    assert isinstance(content, str)
    assert content.index("x = 1") < content.index("explain")
    assert "[n](u)" in content


def test_titles_are_short_and_whole_words() -> None:
    assert title_of([TextPart(text="Fix  the\nbug")]) == "Fix the bug"
    long = title_of([TextPart(text="word " * 50)])
    assert len(long) <= 60
    assert long.endswith("word…")


# --- the window --------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 400), min_size=1, max_size=20), st.integers(64, 4096))
def test_what_stays_fits_and_starts_with_a_user(sizes: list[int], window: int) -> None:
    messages = [{"role": "user" if place % 2 == 0 else "assistant", "content": ""} for place in range(len(sizes))]
    total = sum(sizes) + 7
    last = context.starts(messages)[-1]
    if sum(sizes[last:]) + 7 > window - context.reserve(window):
        with pytest.raises(ContextOverflow):
            context.drop(messages, sizes, total, window)
        return
    dropped = context.drop(messages, sizes, total, window)
    assert sum(sizes[dropped:]) + 7 <= window - context.reserve(window)
    assert messages[dropped]["role"] == "user"


def test_nothing_is_dropped_while_it_fits() -> None:
    assert context.drop([{"role": "user"}], [10], 20, 100) == 0


# --- stages ------------------------------------------------------------------------------------


def test_a_load_is_one_card_that_counts_and_closes() -> None:
    stages = Stages("t", "alpha")
    first = stages.see(api.Loading(fraction=0.0, model="alpha"))
    again = stages.see(api.Loading(fraction=0.42, model="alpha"))
    assert stages.see(api.Loading(fraction=0.42, model="alpha")) == []
    ended = stages.see(api.Generating())
    assert [card.title for card in [*first, *again]] == ["Loading alpha (0 %)", "Loading alpha (42 %)"]
    assert {card.card for card in [*first, *again, *ended]} == {first[0].card}
    assert ended[0].status == "completed"


def test_waiting_names_who_is_ahead() -> None:
    (card,) = Stages("t", "m").see(api.Queued(position=2, ahead=["Zed", "Zed"]))
    assert card.title == "Waiting for the model (place 2, behind Zed)"


def test_a_short_prefill_is_not_worth_a_card() -> None:
    stages = Stages("t", "m")
    assert stages.see(api.Prefix(reused=1000, total=1100)) == []
    assert stages.see(api.Prefill(done=50, total=1100)) == []


def test_a_long_prefill_is() -> None:
    stages = Stages("t", "m")
    stages.see(api.Prefix(reused=0, total=3000))
    (card,) = stages.see(api.Prefill(done=500, total=3000))
    assert "500 of 3,000" in card.title


# --- commands and questions --------------------------------------------------------------------


@pytest.mark.parametrize("text", ["/usr/bin/env is a path", "/nothing", "say /help", "/helpful", "//help", "/"])
def test_what_is_no_command(text: str) -> None:
    assert parse_command([TextPart(text=text)]) is None


def test_commands_take_an_argument() -> None:
    assert parse_command([TextPart(text="/model  beta ")]) == ("model", "beta")
    assert {command.name for command in COMMANDS} >= {"help", "start", "doctor", "compact"}


def test_the_switch_sentence() -> None:
    assert switch_sentence("A", "B") == "Switching from A to B will unload A and drop its warm context"
    question = switch_question("c", "A", "B", ["Zed", "Zed"])
    assert switch_sentence("A", "B") in question.title
    assert "in use by Zed" in question.title
    assert [answer.kind for answer in question.answers] == ["allow_once", "allow_always", "allow_once", "reject_once"]
