"""What other programs take of the processors this process may use, as the system shows it at one moment."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from modeld.engine.processors.thread_tuning import Reading

_STAT = Path("/proc/stat")
_LOADAVG = Path("/proc/loadavg")
#: The line of a processor in /proc/stat (proc(5)), in ticks: user, nice, system, idle, iowait. Idle ones are exact.
_NICE, _IDLE, _IOWAIT = 1, 3, 4


class ProcessorLoad:
    """Reads it. Made once for a model; a reading costs some 50 microseconds."""

    def __init__(self) -> None:
        self._allowed = _affinity()
        online = os.cpu_count() or 1
        self.processors = len(self._allowed) if self._allowed is not None else online
        # where only some processors are ours, those who wait may wait for another
        self._whole = self._allowed is not None and self.processors == online
        self._lowered = sys.platform != "win32" and os.getpriority(os.PRIO_PROCESS, 0) > 0

    def read(self, computing: int = 1) -> Reading:
        """`computing`: threads of this process that run just now, of which the caller's is one."""
        wall, own = time.monotonic(), time.process_time()
        idle, low = self._ticks() if self._allowed is not None else self._elsewhere()
        return Reading(
            wall=wall,
            others=wall * self.processors - idle - own,
            low=0.0 if self._lowered else low,  # others of low priority have ours
            waiting=self._waiting(computing) if self._whole else None,
        )

    def _ticks(self) -> tuple[float, float]:
        idle = low = 0
        for line in _STAT.read_text(encoding="ascii").splitlines():
            name, *ticks = line.split(maxsplit=_IOWAIT + 2)
            if not name.startswith("cpu"):
                break
            if name != "cpu" and int(name[3:]) in (self._allowed or ()):
                idle += int(ticks[_IDLE]) + int(ticks[_IOWAIT])
                low += int(ticks[_NICE])
        second = _ticks_per_second()
        return idle / second, low / second

    def _elsewhere(self) -> tuple[float, float]:
        import psutil

        times = psutil.cpu_times()
        return times.idle, getattr(times, "nice", 0.0)

    def _waiting(self, computing: int) -> int:
        """The fourth number of /proc/loadavg is "running/all"."""
        running = _LOADAVG.read_text(encoding="ascii").split()[3].partition("/")[0]
        return max(0, int(running) - computing)


def _affinity() -> frozenset[int] | None:
    if sys.platform == "linux":
        return frozenset(os.sched_getaffinity(0))
    return None


def _ticks_per_second() -> int:
    if sys.platform == "win32":
        return 100  # nobody asks: its counters are read elsewhere
    return os.sysconf("SC_CLK_TCK")
