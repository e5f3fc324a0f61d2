"""The books of the pipeline's prefix cache (pure): which beginnings of prompts are still in memory.

The pipeline keeps KV in blocks of 32 tokens. When a request ends, its blocks stay, each known by all
tokens up to its end; a new request takes over the blocks that fit, the full ones in order and then one
that is partly filled. It does not say how many it took. The rules it follows (openvino.genai, block
manager) are few, so the same steps are taken here, and after each first step the number of blocks in
use, which it does tell, is compared: the counts shown to the user are these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

#: Tokens of one block on a CPU.
BLOCK = 32
#: What a block is known by: all tokens up to its end, as one running hash.
Key = int


class _Block:
    __slots__ = ("key", "touched", "used")

    def __init__(self, used: int) -> None:
        self.key: Key = 0
        self.touched = False
        self.used = used


class BlockLedger:
    """One pool of `count` blocks, and one request at a time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._clock = count
        self._free = deque(_Block(used) for used in range(count))
        self._stored: dict[Key, _Block] = {}
        self._table: list[_Block] = []
        self._tokens: list[int] = []
        self._keys: list[Key] = [0]
        self._held = 0
        #: Blocks that were ever written: the system has given memory for them, and it stays.
        self.touched = 0

    @property
    def blocks_in_use(self) -> int:
        """Blocks of the running request."""
        return len(self._table)

    @property
    def held(self) -> int:
        """Tokens of the running request that are in memory."""
        return self._held

    def match(self, tokens: Sequence[int]) -> int:
        """Tokens that a request for this prompt would find, less than all. Changes nothing."""
        found, _ = self._find(tokens, self._chain(tokens))
        return min(found, len(tokens) - 1)

    def begin(self, tokens: Sequence[int]) -> int:
        """A request takes over what fits; tokens in memory."""
        self._tokens = list(tokens)
        self._keys = self._chain(tokens)
        found, keys = self._find(tokens, self._keys)
        self._table = []
        for key in keys:
            block = self._stored.pop(key)
            block.used = self._tick()
            self._table.append(block)
        self._held = min(found, len(tokens) - 1)
        return self._held

    def extend(self, held: int) -> None:
        """A chunk of the prompt: memory now reaches `held` tokens.

        A block that is only filled up keeps the name it had, unless further blocks follow it; new ones are
        named by what they are meant to hold, computed or not.
        """
        if -(-held // BLOCK) > len(self._table):
            self._grow(held)
        self._held = held

    def append(self, token: int) -> None:
        """A sampled token is evaluated: memory grows by one, and the last block is named again."""
        self._tokens.append(token)
        self._keys.append(hash((self._keys[-1], token)))
        self._held = len(self._tokens)
        if -(-self._held // BLOCK) > len(self._table):
            self._grow(self._held)
        elif self._table:
            self._table[-1].key = self._end_key(len(self._table))

    def _grow(self, held: int) -> None:
        if self._table:
            self._table[-1].key = self._end_key(len(self._table))
        while len(self._table) < -(-held // BLOCK):
            block = self._take()
            self.touched += not block.touched
            block.touched = True
            self._table.append(block)
            block.key = self._end_key(len(self._table))

    def release(self) -> None:
        """The request ended or was cancelled: its blocks stay as long as nobody needs their room."""
        for block in self._table:
            old = self._stored.pop(block.key, None)
            if old is not None:
                self._free.append(old)
            self._stored[block.key] = block
        self._table = []
        self._held = 0

    def forget(self) -> None:
        """Believe in nothing: what is in memory is not what these books say."""
        self._free.extend(self._stored.values())
        self._stored.clear()

    def _find(self, tokens: Sequence[int], keys: list[Key]) -> tuple[int, list[Key]]:
        found, matched = 0, []
        total = len(tokens)
        while found < total:
            end = min(found + BLOCK, total)
            if keys[end] in self._stored:
                matched.append(keys[end])
                found = end
                continue
            partly = next((at for at in range(found + 1, end + 1) if keys[at] in self._stored), None)
            if partly is not None:
                matched.append(keys[partly])
                found = partly
            break
        return found, matched

    def _end_key(self, blocks: int) -> Key:
        return self._keys[min(blocks * BLOCK, len(self._tokens))]

    def _take(self) -> _Block:
        if self._free:
            return self._free.popleft()
        oldest = min(self._stored.values(), key=lambda block: block.used)
        del self._stored[oldest.key]
        oldest.used = self._tick()
        return oldest

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    @staticmethod
    def _chain(tokens: Sequence[int]) -> list[Key]:
        keys = [0]
        key = 0
        for token in tokens:
            key = hash((key, token))
            keys.append(key)
        return keys
