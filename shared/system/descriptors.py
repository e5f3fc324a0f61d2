"""The standard descriptors of a process. Imports next to nothing: it runs before anything that might print."""

from __future__ import annotations

import os


def fill_descriptors() -> None:
    """Open what is closed of 0, 1 and 2, so that a private descriptor cannot become one of them."""
    while (nowhere := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(nowhere, True)
    os.close(nowhere)
