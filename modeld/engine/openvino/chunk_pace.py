"""Sizes the chunks of a prompt by time, so that a cancel between two of them comes soon on any model (pure).

A chunk cannot be stopped. In tokens it takes 0.1 s on a small model and seconds on one of some billion weights, more
deep in a long prompt, and more beside other programs: what the last one took is what the next one is made for.
"""

from __future__ import annotations

from modeld.engine.openvino.blocks import BLOCK

#: Seconds that a chunk is to take: a fraction of what a cancel may take, and long beside the cost of a step.
WANTED_SECONDS = 0.25
#: A first chunk costs more for each token than what follows: no chunk is larger than so many of the last.
_GROWTH = 8


class ChunkPace:
    """`chunk` is the next one's tokens: whole blocks, at most `most`. It begins with the least."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.chunk = BLOCK

    @property
    def slow(self) -> bool:
        """Whether a chunk of the most would take too long."""
        return self.chunk < self.most

    def took(self, tokens: int, seconds: float) -> None:
        """A chunk of so many tokens has been evaluated. The rest of a prompt, less than a block, tells nothing."""
        if tokens < BLOCK:
            return
        wanted = tokens * WANTED_SECONDS / max(seconds, 1e-6)
        blocks = min(int(wanted), _GROWTH * self.chunk) // BLOCK
        self.chunk = min(max(blocks, 1) * BLOCK, self.most)
