"""Which conversation is warm where, and what to do for the next prompt. Pure: no native calls.

A *lane* is one sequence in the engine's KV memory; a *parked* state is a conversation's memory copied
to host RAM. What fits a prompt best has the longest common token prefix; a conversation's id is only a hint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from modeld.engine.images import whole
from modeld.engine.kv_disk_cache import Shelved
from modeld.engine.prefix import common_prefix

#: A conversation cut back by less than this many tokens is not worth a copy of what is lost.
WORTH_PARKING = 64
#: Prompts of one model begin alike (BOS token, role): less in common than this makes them no one conversation.
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

    def copy(self) -> State:
        """The same, with lists of its own."""
        return msgspec.structs.replace(self, tokens=list(self.tokens), checkpoints=list(self.checkpoints))

    def usable(self, prompt: Sequence[int]) -> int:
        """Tokens of `prompt` that need no prefill if this state is taken; the last one always does."""
        common = whole(prompt, min(common_prefix(self.tokens, prompt), len(prompt) - 1))
        if common < len(self.tokens) and common < self.floor:
            common = max((one.length for one in self.checkpoints if one.length <= common), default=0)
        return 0 if common < WORTH_CUTTING <= len(self.tokens) - common else common

    def worth_keeping(self, kept: int) -> bool:
        """Whether a copy should stay of what is cut back to `kept` tokens; to none, it was another conversation's."""
        return len(self.tokens) - kept >= (WORTH_PARKING if kept else WORTH_CUTTING)


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
    """What to do: `park` what the lane holds first; `restore` a parked state into it, and `keep` its copy too."""

    reused: int
    restore: Parked | None = None
    park: bool = False
    keep: bool = False


def choose(lane: Lane, parked: Sequence[Parked], prompt: Sequence[int], conversation: str | None) -> Choice:
    """The warmest state, in the lane or parked. What it loses is kept, unless its own conversation has left it."""

    def leaves_behind(state: State, reused: int) -> bool:
        left = reused > 0 and conversation is not None and conversation == state.conversation
        return not left and state.worth_keeping(reused)

    reused = lane.state.usable(prompt)
    best = max(parked, key=lambda one: (one.state.usable(prompt), one.state.used), default=None)
    stored = 0 if best is None else best.state.usable(prompt)
    if best is None or stored <= reused:
        return Choice(reused=reused, park=leaves_behind(lane.state, reused))
    return Choice(reused=stored, restore=best, park=lane.state.worth_keeping(0), keep=leaves_behind(best.state, stored))
