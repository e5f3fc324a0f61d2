"""Who allows what: the mode of the conversation, what was allowed for the session, and the user. Pure."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any, Literal

from acp_bridge.conversations.face import Answer, Question
from acp_bridge.conversations.state import ModeName
from acp_bridge.tools.base import Plan
from acp_bridge.tools.consent.grants import EDITS, Grant

Verdict = Literal["allow", "ask", "refuse"]

ONCE = "allow_once"
ALWAYS = "allow_always"
REJECT = "reject_once"


def judge(mode: ModeName, plan: Plan, *, changes: bool, allowed: AbstractSet[Grant]) -> Verdict:
    """Ask mode changes nothing; auto edits unasked; what was allowed for the session is not asked again.

    What has no grant is asked for each time, in every mode.
    """
    if not changes:
        return "allow"
    if mode == "ask":
        return "refuse"
    if plan.grant is not None and plan.grant in allowed:
        return "allow"
    return "allow" if mode == "auto" and plan.grant == EDITS else "ask"


def question(card: str, plan: Plan, arguments: dict[str, Any]) -> Question:
    """What the user is asked before a change; `arguments` are the call's own."""
    answers = [Answer(id=ONCE, name="Allow", kind="allow_once")]
    if plan.grant is not None:
        name = f"Always allow {plan.grant.shown} in this session"
        answers.append(Answer(id=ALWAYS, name=name, kind="allow_always"))
    answers.append(Answer(id=REJECT, name="Reject", kind="reject_once"))
    return Question(
        card=card,
        title=plan.title,
        kind=plan.kind,
        items=[*plan.items, *plan.details],
        locations=plan.locations,
        input=arguments,
        answers=answers,
    )
