"""Processor seconds of a process, by which a slow step of a load is told from one that hangs."""

from __future__ import annotations

import os
import sys


def processor_seconds(pid: int) -> float:
    """What all its threads have computed until now, in the kernel too; 0.0 where the process is gone or not ours."""
    if sys.platform.startswith("linux"):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):
            return 0.0
    import psutil

    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
