"""Warm conversations: the one in the KV memory and the parked ones, within the parking budget."""

from __future__ import annotations

import itertools
import mmap
import sys
from collections.abc import Callable, Sequence

from modeld.engine.kv_disk_cache import KvDiskCache, Shelved
from modeld.engine.llama.lanes import WORTH_PARKING, Checkpoint, Lane, Parked, State, choose
from modeld.engine.llama.memory import Memory
from modeld.engine.llama.model import CHAT, FILL, FILL_TOKENS

#: At the end of a process nothing else wants the memory of one copy after the other.
UNBOUNDED = sys.maxsize


class WarmStore:
    """Puts what is warm for a prompt into its lane and keeps what it displaces. `budget`: bytes of host RAM.

    llama.cpp gives a token the first free cell and sums a conversation up in the order of its cells: only where that
    is the order of its tokens does a reused conversation give the bits of a cold one. So one conversation lies in the
    memory, fills above it, and they leave before it changes. Copies cost milliseconds, and no decode step reads what
    belongs to others.
    """

    def __init__(self, memory: Memory, budget: int, *, fill: bool) -> None:
        self.memory = memory
        self._budget = budget
        self._chat = Lane(CHAT)
        self._fill = Lane(FILL) if fill else None
        self._parked: list[Parked] = []
        self._clock = itertools.count(1)
        self._disk_cache: KvDiskCache | None = None

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
        """Whether the memory holds a conversation, fills apart: 0 or 1."""
        return int(bool(self._chat.state.tokens))

    def warmth(self, prompt: Sequence[int]) -> int:
        """Tokens of the prompt that would need no prefill."""
        return max(state.usable(prompt) for state in [self._chat.state, *(one.state for one in self._parked)])

    def take(self, prompt: Sequence[int], conversation: str | None, *, fill: bool) -> Lane:
        """The lane that now holds the longest warm prefix of the prompt and nothing else."""
        if fill and self._fill is not None:
            lane = self._fill
        else:
            lane = self._chat
            self._put_fill_away()
        self._warm(lane, prompt, conversation)
        lane.state.conversation = conversation
        lane.state.used = next(self._clock)
        return lane

    def _put_fill_away(self) -> None:
        if self._fill is not None and self._fill.state.tokens:
            if self._fill.state.worth_keeping(0):
                self._park(self._fill)
            self.memory.clear(self._fill)

    def _warm(self, lane: Lane, prompt: Sequence[int], conversation: str | None) -> None:
        self.memory.note_floor(lane)  # a window's cells are overwritten by the other lane's turns too
        choice = choose(lane, self._fitting(lane), prompt, conversation)
        while choice.restore is not None and not self._fetched(choice.restore):
            choice = choose(lane, self._fitting(lane), prompt, conversation)
        if choice.restore is not None:
            self._parked.remove(choice.restore)  # it must not be dropped for what is parked now
        if choice.park:
            self._park(lane)
        if choice.restore is not None:
            self.memory.clear(lane)
            self.memory.restore(lane, choice.restore)
            if choice.keep:
                self._keep(choice.restore)
        self.memory.cut(lane, lane.state.usable(prompt))

    def _fitting(self, lane: Lane) -> list[Parked]:
        return [one for one in self._parked if lane is self._chat or len(one.state.tokens) <= FILL_TOKENS]

    def _park(self, lane: Lane) -> None:
        """Copy a lane out where the budget allows it."""
        copied = self.memory.copy(lane, self._budget)
        if copied is not None:
            self._keep(copied)

    def _keep(self, parked: Parked) -> None:
        """Drop the oldest parked states for this one."""
        self.trim(self._budget - parked.size)
        self._parked.append(parked)

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

    def attach(self, disk_cache: KvDiskCache) -> int:
        """What an earlier process kept for this identity counts as parked; how many conversations."""
        self._disk_cache = disk_cache
        found = disk_cache.look()
        for one in reversed(found):
            state = State(tokens=one.header.tokens, used=next(self._clock), floor=one.header.floor)
            state.checkpoints = [Checkpoint(length, None, 0) for length in one.header.lengths]
            self._parked.append(Parked(state, None, 0, one))
        return len(found)

    def _fetched(self, parked: Parked) -> bool:
        """Its content is in memory; else it is forgotten, and its file deleted."""
        if parked.data is not None:
            return True
        if self._disk_cache is not None and parked.shelved is not None:
            parts = self._disk_cache.read(parked.shelved)
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
        if self._disk_cache is None:
            return 0
        held = [one for one in self._parked if one.data is not None]
        if len(self._chat.state.tokens) >= WORTH_PARKING:
            copied = self.memory.copy(self._chat, UNBOUNDED)
            if copied is not None:
                held.append(copied)
        written = 0
        for one in sorted(held, key=lambda parked: -parked.state.used):
            if until():
                break
            written += self._shelve_one(self._disk_cache, one.state, one.data)
        return written

    def _shelve_one(self, disk_cache: KvDiskCache, state: State, data: mmap.mmap) -> bool:
        if any(_holds(old, state) and disk_cache.touch(old.path) for old in disk_cache.look()):
            return False
        parts = [data, *(one.data for one in state.checkpoints)]
        path = disk_cache.write(state.tokens, state.floor, parts, [one.length for one in state.checkpoints])
        if path is None:
            return False
        for old in disk_cache.look():
            size = len(old.header.tokens)
            if old.path != path and old.header.tokens == state.tokens[:size]:
                disk_cache.drop(old.path)
        return True


def _holds(old: Shelved, state: State) -> bool:
    """A file of this conversation that goes as far, or further, and can be cut there."""
    size = len(state.tokens)
    return old.header.tokens[:size] == state.tokens and (old.header.floor <= size or len(old.header.tokens) == size)
