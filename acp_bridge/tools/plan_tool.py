"""update_plan: the steps of a longer task, as the editor shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acp_bridge.conversations.events import PlanSet
from acp_bridge.conversations.face import ToolFailed
from acp_bridge.tools.base import Outcome, Plan, ShowItems

if TYPE_CHECKING:
    from acp_bridge.tools.workspace import Workspace

STATES = ("pending", "in_progress", "completed")
#: A longer list is no plan that anybody reads.
MOST_STEPS = 30


class UpdatePlan:
    """Replaces the plan: models say all steps each time, each with its state."""

    name = "update_plan"
    description = "Show the user the steps of a longer task and how far each is. Always give the whole list."
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "step": {"type": "string", "description": "what is to be done"},
                        "status": {"type": "string", "enum": list(STATES)},
                    },
                    "required": ["step", "status"],
                },
            }
        },
        "required": ["steps"],
    }
    changes = False

    async def plan(self, arguments: dict[str, Any], workspace: Workspace) -> Plan:
        """See Tool."""
        del workspace
        entries = [_entry(step) for step in _steps(arguments.get("steps"))]

        async def effect(show: ShowItems) -> Outcome:
            return Outcome(text="The plan is shown.", steps=PlanSet(entries=entries))

        return Plan(title="Update the plan", kind="think", effect=effect)


def _steps(value: object) -> list[object]:
    if not isinstance(value, list) or not 0 < len(value) <= MOST_STEPS:
        raise ToolFailed(f"`steps` is needed: a list of 1 to {MOST_STEPS} steps")
    return value


def _entry(step: object) -> tuple[str, str, str]:
    """(text, priority, status); small models leave the status out or write the text alone."""
    if isinstance(step, str) and step.strip():
        return step.strip(), "medium", "pending"
    text = step.get("step") if isinstance(step, dict) else None
    if not isinstance(step, dict) or not isinstance(text, str) or not text.strip():
        raise ToolFailed("each step needs its `step`, as text")
    status = step.get("status", "pending")
    if status not in STATES:
        raise ToolFailed(f"`status` is one of {', '.join(STATES)}")
    return text.strip(), "medium", status
