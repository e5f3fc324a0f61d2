"""How often a repeated test repeats: `make test` does a tenth of the named counts, `make soak` all of them."""

from __future__ import annotations

import os

FULL = os.environ.get("MODELD_TEST_COUNTS") == "full"


def scaled(count: int) -> int:
    """`count` in the soak, a tenth of it (at least one) otherwise."""
    return count if FULL else max(count // 10, 1)
