"""Runs the tool calls of a turn, one after another: card, permission, effect, answer to the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from acp_bridge.cancel import TurnCancelled
from acp_bridge.conversations.events import Card, CardStatus, Item, TextItem, ToolAnswered, ToolsCalled
from acp_bridge.conversations.face import CannotAsk, ToolFailed
from acp_bridge.tools.base import Outcome, Plan, Tool, schema_of
from acp_bridge.tools.consent import permission
from shared.text.nesting import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from acp_bridge.cancel import Cancel
    from acp_bridge.conversations.events import Shown
    from acp_bridge.conversations.face import Question
    from acp_bridge.conversations.recorder import Recorder
    from acp_bridge.conversations.state import Conversation
    from acp_bridge.tools.consent.grants import Grant
    from acp_bridge.tools.workspace import Workspace
    from shared.protocol import api

#: The same call with the same arguments: reported from the second time on, the turn ends at the fourth.
REPEATS_TOLD = 2
REPEATS_END = 4


class Turn(Protocol):
    """What tools need of the turn that they run in."""

    recorder: Recorder
    cancel: Cancel

    @property
    def show(self) -> Callable[[Shown], None]:
        """Shows an event of the conversation."""
        ...

    async def ask(self, question: Question) -> str | None:
        """The id of the answer, None when the user cancelled. Raises CannotAsk, TurnCancelled."""
        ...

    def remark(self, text: str) -> None:
        """Say something to the user that is not the model's."""
        ...


class ToolRunner:
    """The tools of one turn. `schemas` is what the model is offered; `allowed` is what the user granted so far."""

    def __init__(
        self, conversation: Conversation, allowed: set[Grant], tools: Sequence[Tool], workspace: Workspace
    ) -> None:
        self._conversation = conversation
        self._allowed = allowed
        self._tools = {tool.name: tool for tool in tools}
        self._workspace = workspace
        self._seen: Counter[tuple[str, str]] = Counter()
        looking = conversation.mode == "ask"
        self.schemas = [schema_of(tool) for tool in tools if not (looking and tool.changes)]

    async def run(self, calls: Sequence[api.ToolCall], message: str, turn: Turn) -> bool:
        """Run the calls and record their answers. False ends the turn (the model goes in circles)."""
        shapes = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
        turn.recorder.add(ToolsCalled(message=message, calls=shapes))
        goes_on = True
        for place, call in enumerate(calls):
            goes_on = await self._one(call, f"{message}-call-{place}", turn) and goes_on
        return goes_on

    async def _one(self, call: api.ToolCall, card: str, turn: Turn) -> bool:
        turn.cancel.check()
        self._seen[call.name, call.arguments] += 1
        times = self._seen[call.name, call.arguments]
        try:
            text = await self._run_call(call, card, turn)
        except ToolFailed as error:
            text = f"Error: {error}"
        if times >= REPEATS_TOLD:
            text += f"\nThis very call has been made {times} times. Do something else, or answer the user."
        turn.recorder.add(ToolAnswered(call=call.id, name=call.name, text=text))
        if times >= REPEATS_END:
            turn.remark(f"Stopped: the model called {call.name} with the same arguments {times} times.")
        return times < REPEATS_END

    async def _run_call(self, call: api.ToolCall, card: str, turn: Turn) -> str:
        if call.fault:
            self._show(turn, Card(card=card, title=call.name, status="failed", items=[TextItem(text=call.fault)]))
            raise ToolFailed(f"{call.fault}\nNothing was done. Call it again with one JSON object")
        arguments = _arguments(call.arguments)
        tool = self._tools.get(call.name)
        if tool is None:
            self._show(turn, Card(card=card, title=call.name, status="failed", input=arguments))
            raise ToolFailed(f"there is no tool {call.name}; there are {', '.join(self._tools)}")
        shown = Card(card=card, title=call.name, status="pending", input=arguments)
        try:
            plan = await turn.cancel.race(lambda: tool.plan(arguments, self._workspace))
            shown = Card(
                card=card, title=plan.title, kind=plan.kind, locations=plan.locations, items=plan.items, input=arguments
            )
            self._show(turn, shown)
            await self._permit(tool, plan, card, arguments, turn)
            running = _with(shown, "in_progress")
            self._show(turn, running)
            outcome: Outcome = await turn.cancel.race(
                lambda: plan.effect(lambda items: turn.show(_more(running, items)))
            )
        except TurnCancelled:
            self._show(turn, _with(shown, "failed"))
            raise
        except ToolFailed as error:
            self._show(turn, _with(shown, "failed", [TextItem(text=str(error))]))
            raise
        turn.recorder.add(_with(shown, "completed", outcome.items if outcome.saved is None else outcome.saved))
        turn.show(_with(shown, "completed", outcome.items))
        if outcome.steps is not None:
            turn.recorder.add(outcome.steps)
            turn.show(outcome.steps)
        return outcome.text

    async def _permit(self, tool: Tool, plan: Plan, card: str, arguments: dict[str, Any], turn: Turn) -> None:
        """Raises ToolFailed when it may not be done: the model is informed, and the turn goes on."""
        verdict = permission.judge(self._conversation.mode, plan, changes=tool.changes, allowed=self._allowed)
        if verdict == "refuse":
            raise ToolFailed("the conversation is in ask mode, which changes nothing")
        if verdict == "allow":
            return
        try:
            answer = await turn.ask(permission.question(card, plan, arguments))
        except CannotAsk as error:
            turn.cancel.check()
            raise ToolFailed(f"nothing was done: it needs the user's permission, and {error}") from error
        if answer == permission.ALWAYS and plan.grant is not None:
            self._allowed.add(plan.grant)
        elif answer != permission.ONCE:
            turn.cancel.check()
            raise ToolFailed("the user rejected this. Do not try it again; ask what to do instead, or go on without it")

    @staticmethod
    def _show(turn: Turn, card: Card) -> None:
        turn.recorder.add(card)
        turn.show(card)


def _with(card: Card, status: CardStatus, items: list[Item] | None = None) -> Card:
    kept = [*card.items, *items] if items else card.items
    return msgspec.structs.replace(card, status=status, items=kept)


def _more(card: Card, items: list[Item]) -> Card:
    return _with(card, card.status, items)


def _arguments(text: str) -> dict[str, Any]:
    """The arguments as an object; what is not one is an error the tool reports by its missing arguments."""
    try:
        return decode_json(text or "{}", dict[str, Any])
    except msgspec.DecodeError:
        return {}
