"""Who allows what: the mode of the conversation, what was allowed for the session, and the user. Pure."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Literal

from acp_bridge.session.face import Answer, Question
from acp_bridge.session.state import ModeName
from acp_bridge.tools.base import Plan
from acp_bridge.tools.changing import GRANT

Verdict = Literal["allow", "ask", "refuse"]

ONCE = "allow_once"
ALWAYS = "allow_always"
REJECT = "reject_once"


def judge(mode: ModeName, plan: Plan, *, changes: bool, allowed: AbstractSet[str]) -> Verdict:
    """Ask mode changes nothing; auto edits unasked; what was allowed for the session is not asked again."""
    if not changes:
        return "allow"
    if mode == "ask":
        return "refuse"
    if plan.grant and plan.grant in allowed:
        return "allow"
    return "allow" if mode == "auto" and plan.grant == GRANT else "ask"


def question(card: str, plan: Plan) -> Question:
    """What the user is asked before a change."""
    answers = [Answer(id=ONCE, name="Allow", kind="allow_once")]
    if plan.grant:
        what = "all edits" if plan.grant == GRANT else f"`{plan.grant.removeprefix('run ')}`"
        answers.append(Answer(id=ALWAYS, name=f"Always allow {what} in this session", kind="allow_always"))
    answers.append(Answer(id=REJECT, name="Reject", kind="reject_once"))
    return Question(card=card, title=plan.title, kind=plan.kind, items=plan.items, places=plan.places, answers=answers)
