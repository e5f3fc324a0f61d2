"""Many measured seconds in a few words."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(values: Sequence[float]) -> str:
    """Median, 95th percentile and the most."""
    if not values:
        return "-"
    ordered = sorted(values)
    ninety = ordered[int(len(ordered) * 0.95)] if len(ordered) > 1 else ordered[0]
    return f"median {statistics.median(ordered):.3f}, p95 {ninety:.3f}, most {ordered[-1]:.3f}"
