"""What two sequences (tokens of prompts, or texts) have in common from their beginning. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def common_prefix(left: Sequence[object], right: Sequence[object]) -> int:
    """Length of the longest common prefix, by comparing slices (native speed) and halving."""
    size = min(len(left), len(right))
    if left[:size] == right[:size]:
        return size
    low, high = 0, size  # equal below `low`, different somewhere below `high`
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
