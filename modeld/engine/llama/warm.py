"""Warm conversations: lanes and parked states together, within the pool and the parking budget."""

from __future__ import annotations

import itertools
import mmap
import sys
from collections.abc import Callable, Sequence

from modeld.engine.llama.lanes import WORTH_PARKING, Checkpoint, Lane, Parked, State, choose
from modeld.engine.llama.memory import Memory
from modeld.engine.llama.model import ContextPlan
from modeld.engine.shelf import Shelf, Shelved

#: Tokens that idle lanes may keep in the KV memory. All that lies there is read by each decode step of
#: any lane; a copy out and in costs milliseconds.
IDLE_TOKENS = 256
#: At the end of a process nothing else wants the memory of one copy after the other.
UNBOUNDED = sys.maxsize


class WarmStore:
    """Chooses the lane of each prompt and keeps what it displaces. `budget`: bytes of host RAM."""

    def __init__(self, memory: Memory, plan: ContextPlan, budget: int) -> None:
        self.memory = memory
        self._plan = plan
        self._budget = budget
        self._lanes = [Lane(sequence) for sequence in range(plan.lanes)]
        self._fill = Lane(plan.lanes) if plan.fill else None
        self._parked: list[Parked] = []
        self._clock = itertools.count(1)
        self._shelf: Shelf | None = None

    @property
    def parked_bytes(self) -> int:
        """Bytes of all parked states."""
        return sum(one.size for one in self._parked)

    @property
    def parked(self) -> int:
        """Parked conversations."""
        return len(self._parked)

    @property
    def lanes_used(self) -> int:
        """Lanes that hold something, the one for fills apart."""
        return sum(bool(lane.state.tokens) for lane in self._lanes)

    def warmth(self, prompt: Sequence[int]) -> int:
        """Tokens of the prompt that would need no prefill."""
        states = [lane.state for lane in self._lanes] + [one.state for one in self._parked]
        return max(state.usable(prompt) for state in states)

    def take(self, prompt: Sequence[int], conversation: str | None, *, fill: bool) -> Lane:
        """The lane that now holds the longest warm prefix of the prompt and nothing else."""
        if fill and self._fill is not None:
            lane = self._fill
            self.memory.note_floor(lane)
            self.memory.cut(lane, lane.state.usable(prompt))
        else:
            lane = self._take_chat(prompt, conversation)
        lane.state.conversation = conversation
        lane.state.used = next(self._clock)
        return lane

    def _take_chat(self, prompt: Sequence[int], conversation: str | None) -> Lane:
        for one in self._lanes:
            self.memory.note_floor(one)  # a window's cells are overwritten by other lanes' turns too
        choice = choose(self._lanes, self._parked, prompt, conversation)
        while choice.restore is not None and not self._fetched(choice.restore):
            choice = choose(self._lanes, self._parked, prompt, conversation)
        lane = choice.lane
        if choice.restore is not None:
            self._parked.remove(choice.restore)  # it must not be dropped for what is parked now
        if choice.park:
            self._park(lane)
        if choice.restore is not None:
            self.memory.clear(lane)
            self.memory.restore(lane, choice.restore)
        self.memory.cut(lane, lane.state.usable(prompt))
        self._clear_the_way(lane, len(prompt))
        return lane

    def _clear_the_way(self, chosen: Lane, wanted: int) -> None:
        """Park idle lanes: all but a few tokens, so that decode reads one conversation only."""
        idle = sorted((lane for lane in self._lanes if lane is not chosen), key=lambda lane: -lane.state.used)
        kept = 0
        for lane in idle:
            kept += len(lane.state.tokens)
            if kept > IDLE_TOKENS and self._park(lane):
                kept -= len(lane.state.tokens)
                self.memory.clear(lane)
        while self._held(chosen) + wanted > self._plan.num_ctx and self.make_room(chosen):
            continue

    def _held(self, chosen: Lane) -> int:
        return sum(len(lane.state.tokens) for lane in self._lanes if lane is not chosen)

    def make_room(self, chosen: Lane) -> bool:
        """Empty the least recently used idle lane, parked if the budget allows; whether there was one."""
        others = [lane for lane in self._lanes if lane is not chosen and lane.state.tokens]
        if self._fill is not None and self._fill is not chosen and self._fill.state.tokens:
            others.append(self._fill)
        if chosen is self._fill or not others:
            return False  # a fill takes nothing from a chat
        victim = min(others, key=lambda lane: lane.state.used)
        if victim is not self._fill:
            self._park(victim)
        self.memory.clear(victim)
        return True

    def _park(self, lane: Lane) -> bool:
        """Copy a lane out, dropping the oldest parked states for it; whether it is parked now."""
        copied = self.memory.copy(lane, self._budget)
        if copied is None:
            return False
        self.trim(self._budget - copied.size)
        self._parked.append(copied)
        return True

    def trim(self, limit: int) -> int:
        """Drop parked states, least recently used first, down to `limit` bytes; the bytes freed."""
        freed, held = 0, self.parked_bytes
        for one in sorted(self._parked, key=lambda parked: parked.state.used):
            if held - freed <= limit:
                break
            if one.data is None:
                continue  # on disk: it takes none of this memory
            self._parked.remove(one)
            freed += one.size
        return freed

    # --- on disk -------------------------------------------------------------------------------

    def attach(self, shelf: Shelf) -> int:
        """What an earlier process kept for this identity counts as parked; how many conversations."""
        self._shelf = shelf
        found = shelf.look()
        for one in reversed(found):
            state = State(tokens=one.header.tokens, used=next(self._clock), floor=one.header.floor)
            state.checkpoints = [Checkpoint(length, None, 0) for length in one.header.lengths]
            self._parked.append(Parked(state, None, 0, one))
        return len(found)

    def _fetched(self, parked: Parked) -> bool:
        """Its content is in memory; else it is forgotten, and its file deleted."""
        if parked.data is not None:
            return True
        if self._shelf is not None and parked.shelved is not None:
            parts = self._shelf.read(parked.shelved)
            if parts is not None:
                parked.data = parts[0]
                for checkpoint, part in zip(parked.state.checkpoints, parts[1:], strict=True):
                    checkpoint.data, checkpoint.size = part, len(part)
                parked.size = sum(map(len, parts))
                return True
        self._parked.remove(parked)
        return False

    def shelve(self, until: Callable[[], bool]) -> int:
        """Write what is warm to disk, the latest used first, until there is no more or `until` says so; how many.

        A file whose conversation has gone on since is replaced. Raises OSError.
        """
        if self._shelf is None:
            return 0
        held = [one for one in self._parked if one.data is not None]
        lanes = [lane for lane in self._lanes if len(lane.state.tokens) >= WORTH_PARKING]
        held += [copied for copied in (self.memory.copy(lane, UNBOUNDED) for lane in lanes) if copied is not None]
        written = 0
        for one in sorted(held, key=lambda parked: -parked.state.used):
            if until():
                break
            written += self._shelve_one(self._shelf, one.state, one.data)
        return written

    def _shelve_one(self, shelf: Shelf, state: State, data: mmap.mmap) -> bool:
        if any(_holds(old, state) and shelf.touch(old.path) for old in shelf.look()):
            return False
        parts = [data, *(one.data for one in state.checkpoints)]
        path = shelf.write(state.tokens, state.floor, parts, [one.length for one in state.checkpoints])
        if path is None:
            return False
        for old in shelf.look():
            size = len(old.header.tokens)
            if old.path != path and old.header.tokens == state.tokens[:size]:
                shelf.drop(old.path)
        return True


def _holds(old: Shelved, state: State) -> bool:
    """A file of this conversation that goes as far, or further, and can be cut there."""
    size = len(state.tokens)
    return old.header.tokens[:size] == state.tokens and (old.header.floor <= size or len(old.header.tokens) == size)
