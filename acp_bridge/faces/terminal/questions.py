"""A question of a turn at a terminal: shown with its answers, answered by a number, a letter or a word."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Awaitable, Callable, Sequence

from acp_bridge.conversations.events import Change, Item, TextItem
from acp_bridge.conversations.face import Answer, Question
from acp_bridge.turn.model.switch_question import DECLINE, SWITCH
from shared.text.shown import escaped, one_line

Ask = Callable[[str], Awaitable[str]]


class Questions:
    """Answers for a turn. `ask` shows a prompt and gives the line that was typed; None where nobody can answer.

    `switch`: the person has said yes to a switch beforehand.
    """

    def __init__(self, ask: Ask | None, *, switch: bool) -> None:
        self._ask = ask
        self._switch = switch

    async def answer(self, question: Question) -> str | None:
        """The id of the answer, None for a cancel."""
        offered = [answer.id for answer in question.answers]
        if self._switch and SWITCH in offered:
            return SWITCH
        sys.stderr.write(f"{one_line(question.title)}\n")
        for line in _shown(question.items):
            sys.stderr.write(f"  {line}\n")
        if self._ask is None:
            sys.stderr.write("Not switched; `--switch` says yes.\n" if SWITCH in offered else "Not done.\n")
            return DECLINE if DECLINE in offered else None
        choices = "\n".join(f"  {place}. {one_line(one.name)}" for place, one in enumerate(question.answers, start=1))
        sys.stderr.write(f"{choices}\n")
        typed = await self._ask(f"1 to {len(offered)} [{len(offered)}] ")
        return chosen(typed, question.answers)


def chosen(typed: str, answers: Sequence[Answer]) -> str:
    """What was meant: a number, or how the answer's words begin; everything else is the last answer, which changes
    nothing. Pure.
    """
    word = typed.strip().casefold()
    if word.isdecimal() and 1 <= int(word) <= len(answers):
        return answers[int(word) - 1].id
    if word in ("y", "yes"):
        return answers[0].id
    begun = [answer.id for answer in answers if word and answer.name.casefold().startswith(word)]
    return begun[0] if len(begun) == 1 else answers[-1].id


def _shown(items: Sequence[Item]) -> list[str]:
    lines: list[str] = []
    for item in items:
        if isinstance(item, Change):
            before, after = (item.old or "").splitlines(), item.new.splitlines()
            lines += difflib.unified_diff(before, after, item.path, item.path, lineterm="")
        elif isinstance(item, TextItem):
            lines += item.text.splitlines()
    return [escaped(line) for line in lines]
