"""The switch question: what it says, and what its answers mean. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from acp_bridge.conversations.face import Answer, Question
from shared.text.words import switch_sentence, use_sentence, users_named

SWITCH = "switch"
SWITCH_ALWAYS = "switch_always"
WAIT = "wait"
DECLINE = "decline"


def switch_question(card: str, active: str, wanted: str, in_use_by: Sequence[str]) -> Question:
    """Asked at the turn, when another client uses the active model."""
    return Question(
        card=card,
        title=f"{switch_sentence(active, wanted)}. {use_sentence(active, in_use_by)}.",
        answers=[
            Answer(id=SWITCH, name="Switch now", kind="allow_once"),
            Answer(id=SWITCH_ALWAYS, name="Always switch in this session", kind="allow_always"),
            Answer(id=WAIT, name=f"Wait for {users_named(in_use_by)}", kind="allow_once"),
            Answer(id=DECLINE, name="Cancel", kind="reject_once"),
        ],
        active=active,
        wanted=wanted,
        in_use_by=list(dict.fromkeys(in_use_by)),
    )
