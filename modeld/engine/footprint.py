"""What this process holds, in bytes, as the system counts it."""

from __future__ import annotations

import os
import sys


def resident_bytes() -> int:
    """Resident memory of this process, mapped weights that were touched included."""
    if sys.platform.startswith("linux"):
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import psutil

    resident: int = psutil.Process().memory_info().rss
    return resident
