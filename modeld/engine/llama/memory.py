"""The KV memory of one context: cut, park, restore, checkpoint. Every native answer is checked."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

from modeld.engine.contract import AbortFlag
from modeld.engine.images import positions, tokens_within
from modeld.engine.llama.lanes import Checkpoint, Lane, Parked, State

_WHOLE = 0  # LLAMA_STATE_SEQ_FLAGS_NONE
_PARTIAL = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: window and recurrent parts alone
#: Checkpoints kept for one conversation; each is as large as the window's memory.
CHECKPOINTS = 3


class Memory:
    """Native memory behind lanes. `window` in tokens, 0 without one; `recurrent`: state cannot be cut."""

    def __init__(self, api: Any, context: int, *, window: int, recurrent: bool) -> None:
        self._api = api
        self._context = context
        self._memory = api.llama_get_memory(context)
        self._window = window
        self._recurrent = recurrent
        self._cuttable = not window and not recurrent

    @property
    def cuttable(self) -> bool:
        """Whether any conversation can be cut at any token."""
        return self._cuttable

    def clear(self, lane: Lane) -> None:
        """Empty the lane; never fails."""
        self._api.llama_memory_seq_rm(self._memory, lane.sequence, -1, -1)
        lane.state = State()

    def cut(self, lane: Lane, length: int) -> int:
        """Keep the first `length` tokens, or what a checkpoint below allows; how many were kept."""
        state = lane.state
        if length < len(state.tokens) and length < state.floor:
            length = self._rewind(lane, length)
        if length <= 0 or not self._remove_from(lane, length):
            self.clear(lane)
            return 0
        del state.tokens[length:]
        state.checkpoints = [one for one in state.checkpoints if one.length <= length]
        self.note_floor(lane)
        return length

    def _rewind(self, lane: Lane, length: int) -> int:
        """Put the newest checkpoint at or below `length` back; its length, or 0."""
        usable = [one for one in lane.state.checkpoints if one.length <= length]
        if not usable:
            return 0
        newest = max(usable, key=lambda one: one.length)
        done = self._api.llama_state_seq_set_data_ext(
            self._context, _bytes_of(newest.data, newest.size), newest.size, lane.sequence, _PARTIAL
        )
        return newest.length if done == newest.size else 0

    def _remove_from(self, lane: Lane, length: int) -> bool:
        end = positions(lane.state.tokens[:length])
        removed = self._api.llama_memory_seq_rm(self._memory, lane.sequence, end, -1)
        return bool(removed) and self.length(lane) == end

    def length(self, lane: Lane) -> int:
        """Up to which position the native memory really holds something: as many tokens, but for some images."""
        last: int = self._api.llama_memory_seq_pos_max(self._memory, lane.sequence)
        return last + 1

    def note_floor(self, lane: Lane) -> None:
        """Ask the memory how far back the lane could be cut now."""
        if self._recurrent:
            lane.state.floor = len(lane.state.tokens)
        elif self._window:
            first = self._api.llama_memory_seq_pos_min(self._memory, lane.sequence)
            lane.state.floor = 0 if first <= 0 else first + self._window

    def settle(self, lane: Lane) -> bool:
        """After an abort or error: make bookkeeping and memory agree again; whether that is proven."""
        if self._recurrent:
            self.clear(lane)  # a state may be half updated and cannot be cut
            return True
        tokens, held = lane.state.tokens, self.length(lane)
        kept = len(tokens) if held >= positions(tokens) else tokens_within(tokens, held)
        del tokens[kept:]
        end = positions(tokens)
        if held > end:
            self._api.llama_memory_seq_rm(self._memory, lane.sequence, end, -1)
        lane.state.checkpoints = [one for one in lane.state.checkpoints if one.length <= kept]
        self.note_floor(lane)
        return self.length(lane) == end

    # --- copies --------------------------------------------------------------------------------

    def checkpoint(self, lane: Lane) -> None:
        """Remember what cannot be cut, as it is now."""
        if self._cuttable or not lane.state.tokens:
            return
        size = self._api.llama_state_seq_get_size_ext(self._context, lane.sequence, _PARTIAL)
        data = mmap.mmap(-1, size)
        if self._copy_out(lane, data, size, _PARTIAL) != size:
            return
        kept = lane.state.checkpoints[-(CHECKPOINTS - 1) :]
        lane.state.checkpoints = [*kept, Checkpoint(len(lane.state.tokens), data, size)]

    def copy(self, lane: Lane, budget: int) -> Parked | None:
        """The lane's whole state in host RAM, at most `budget` bytes; None where that is too little."""
        size = self._api.llama_state_seq_get_size_ext(self._context, lane.sequence, _WHOLE)
        extra = sum(one.size for one in lane.state.checkpoints)
        if size <= 0 or size + extra > budget:
            return None
        data = mmap.mmap(-1, size)  # given back to the system whole when dropped
        if self._copy_out(lane, data, size, _WHOLE) != size:
            return None
        return Parked(lane.state.copy(), data, size + extra)

    def _copy_out(self, lane: Lane, data: mmap.mmap, size: int, flags: int) -> int:
        done: int = self._api.llama_state_seq_get_data_ext(
            self._context, _bytes_of(data, size), size, lane.sequence, flags
        )
        return done

    def restore(self, lane: Lane, parked: Parked) -> bool:
        """Put a parked state into an empty lane; on failure the lane is empty again."""
        size = len(parked.data)
        done = self._api.llama_state_seq_set_data_ext(
            self._context, _bytes_of(parked.data, size), size, lane.sequence, _WHOLE
        )
        if done != size or self.length(lane) != positions(parked.state.tokens):
            self.clear(lane)
            return False
        lane.state = parked.state.copy()
        self.note_floor(lane)
        return True


def _bytes_of(data: mmap.mmap, size: int) -> Any:
    return (ctypes.c_uint8 * size).from_buffer(data)


def watch_abort(api: Any, context: int, callback: Any, flag: AbortFlag) -> None:
    """Native evaluation looks at the flag between graph nodes, without the interpreter lock."""
    api.llama_set_abort_callback(context, callback, flag.address)
