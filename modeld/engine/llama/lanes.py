"""Which conversation is warm where, and what to do for the next prompt. Pure: no native calls.

A *lane* is one sequence in the engine's KV memory; a *parked* state is a conversation's memory copied
to host RAM. Both are found by the longest common token prefix; a conversation's id is only a hint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from modeld.engine.pictures import whole
from modeld.engine.prefix import common_prefix
from modeld.engine.shelf import Shelved

#: A lane cut back by less than this many tokens is not worth a copy of what is lost.
WORTH_PARKING = 64
#: Prompts of one model begin alike (begin mark, role): less in common than this makes no lane the right one.
WORTH_CUTTING = 16


class Checkpoint(msgspec.Struct, eq=False):
    """The part of a memory that cannot be cut (window, recurrent state) as it was after `length` tokens."""

    length: int
    data: Any
    size: int


class State(msgspec.Struct, eq=False):
    """What a lane or a parked copy holds. `floor`: least length to which it can be cut without a checkpoint."""

    tokens: list[int] = []
    conversation: str | None = None
    used: int = 0
    floor: int = 0
    checkpoints: list[Checkpoint] = []

    def usable(self, prompt: Sequence[int]) -> int:
        """Tokens of `prompt` that need no prefill if this state is taken; the last one always does."""
        common = whole(prompt, min(common_prefix(self.tokens, prompt), len(prompt) - 1))
        if common < len(self.tokens) and common < self.floor:
            common = max((one.length for one in self.checkpoints if one.length <= common), default=0)
        lost = len(self.tokens) - common
        return 0 if common < WORTH_CUTTING and lost >= WORTH_PARKING else common


class Lane(msgspec.Struct, eq=False):
    """One sequence of the KV memory."""

    sequence: int
    state: State = msgspec.field(default_factory=State)


class Parked(msgspec.Struct, eq=False):
    """A conversation's memory in host RAM; `size` in bytes, checkpoints included.

    `shelved`: it lies in a file instead, whose content (`data`, checkpoints) is None until it is wanted.
    """

    state: State
    data: Any
    size: int
    shelved: Shelved | None = None


class Choice(msgspec.Struct, frozen=True):
    """What to do: take `lane`; `restore` a parked state into it first; `park` what it holds first."""

    lane: Lane
    reused: int
    restore: Parked | None = None
    park: bool = False


def choose(lanes: Sequence[Lane], parked: Sequence[Parked], prompt: Sequence[int], conversation: str | None) -> Choice:
    """The warmest lane or parked state; with nothing warm, an empty lane or the least recently used one."""
    lane = max(lanes, key=lambda one: (one.state.usable(prompt), one.state.used))
    reused = lane.state.usable(prompt)
    best = max(parked, key=lambda one: (one.state.usable(prompt), one.state.used), default=None)
    stored = 0 if best is None else best.state.usable(prompt)
    if best is not None and stored > reused:
        target = _spare(lanes)
        return Choice(lane=target, reused=stored, restore=best, park=_worth(target.state, 0))
    if reused == 0:
        target = _spare(lanes)
        return Choice(lane=target, reused=0, park=_worth(target.state, 0))
    same = conversation is not None and conversation == lane.state.conversation
    return Choice(lane=lane, reused=reused, park=not same and _worth(lane.state, reused))


def _spare(lanes: Sequence[Lane]) -> Lane:
    return min(lanes, key=lambda one: (bool(one.state.tokens), one.state.used))


def _worth(state: State, kept: int) -> bool:
    return len(state.tokens) - kept >= WORTH_PARKING
