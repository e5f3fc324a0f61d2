"""How many threads an engine should use: physical cores this process may run on, within its quota.

`os.cpu_count` counts hyper-threads and knows of no container limit; a thread more than there are cores
makes every other thread wait for it at each barrier.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")


def engine_threads(asked: int = 0) -> int:
    """`asked` when positive; else physical cores allowed to this process, capped by the cgroup quota."""
    if asked > 0:
        return asked
    cores = physical_cores(_TOPOLOGY, _allowed())
    quota = cgroup_quota(_CGROUP, Path("/proc/self/cgroup"))
    if quota is not None:
        cores = min(cores, max(1, math.floor(quota + 0.5)))
    return max(1, cores)


def _allowed() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def physical_cores(topology: Path, allowed: set[int]) -> int:
    """Distinct cores among the allowed logical processors."""
    cores: set[str] = set()
    for cpu in allowed:
        try:
            cores.add((topology / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip())
        except OSError:
            return _physical_elsewhere(len(allowed))
    return len(cores)


def _physical_elsewhere(logical: int) -> int:
    import psutil

    return min(logical, psutil.cpu_count(logical=False) or logical)


def cgroup_quota(root: Path, own: Path) -> float | None:
    """Processors that the cgroup (v2, or v1's cpu controller) grants; None when unlimited or unknown."""
    tightest: float | None = None
    for folder in _folders(root, own):
        found = _quota_v2(folder) or _quota_v1(folder)
        if found is not None:
            tightest = found if tightest is None else min(tightest, found)
    return tightest


def _folders(root: Path, own: Path) -> list[Path]:
    """The process's own cgroup and all above it, in both hierarchies."""
    folders = [root, root / "cpu"]
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return folders
    for line in lines:
        _, controllers, path = line.split(":", 2)
        base = root if controllers == "" else root / "cpu"
        if controllers == "" or "cpu" in controllers.split(","):
            parts = Path(path.lstrip("/")).parts
            folders += [base.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
    return folders


def _quota_v2(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def _quota_v1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return None if quota <= 0 else quota / period
