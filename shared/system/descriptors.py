"""The standard descriptors of a process. Imports next to nothing: it runs before anything that might print."""

from __future__ import annotations

import os
import sys

#: What a process asks for where it may have it: some systems begin with 256, which many editors use up.
WANTED = 4096


def fill_descriptors() -> None:
    """Open what is closed of 0, 1 and 2, so that a private descriptor cannot become one of them."""
    while (nowhere := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(nowhere, True)
    os.close(nowhere)


def most_descriptors() -> int | None:
    """How many this process may open, raised to WANTED where it may be; None where there is no such bound."""
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted
