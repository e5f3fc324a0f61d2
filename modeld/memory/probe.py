"""What this machine says of its memory, container limits respected. Reads a few small files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from modeld.memory.policy import DeviceMemory

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")


def host_memory() -> DeviceMemory:
    """Main memory: `free` is what can be had without pushing others out, within the cgroup's limit."""
    if sys.platform.startswith("linux"):
        return linux_memory(_PROC, _CGROUP)
    import psutil

    memory = psutil.virtual_memory()
    return DeviceMemory(device="CPU", total=memory.total, free=memory.available)


def linux_memory(proc: Path, cgroup: Path) -> DeviceMemory:
    """The smaller of MemAvailable and what the cgroups leave. Raises OSError without /proc."""
    lines = dict(_meminfo(proc / "meminfo"))
    total, free = lines["MemTotal"], lines.get("MemAvailable", lines["MemFree"])
    for limit, used in _limits(proc / "self" / "cgroup", cgroup):
        total = min(total, limit)
        free = min(free, max(limit - used, 0))
    return DeviceMemory(device="CPU", total=total, free=free)


def _meminfo(path: Path) -> Iterator[tuple[str, int]]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        number = value.split()
        if number and number[0].isdigit():
            yield name, int(number[0]) * 1024


def _limits(membership: Path, root: Path) -> Iterator[tuple[int, int]]:
    """(limit, bytes in use that cannot be dropped) of our cgroup and each above it, v2 and v1."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            yield from _walk(root, path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            yield from _walk(root / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes")


def _walk(mount: Path, path: str, limit_name: str, used_name: str) -> Iterator[tuple[int, int]]:
    folder = mount / path.lstrip("/")
    while True:
        limit, used = _number(folder / limit_name), _number(folder / used_name)
        if limit is not None and used is not None and limit < 1 << 60:
            yield limit, max(used - _reclaimable(folder / "memory.stat"), 0)
        if folder in (mount, folder.parent):
            return
        folder = folder.parent


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _reclaimable(path: Path) -> int:
    """File pages that the kernel drops before it refuses memory."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    values = {name: int(value) for name, _, value in (line.partition(" ") for line in lines) if value.isdigit()}
    return values.get("inactive_file", values.get("total_inactive_file", 0)) + values.get("active_file", 0)


def resident_of(pid: int) -> int | None:
    """Resident bytes of a process, None when it is gone or not ours to see."""
    if sys.platform.startswith("linux"):
        try:
            return int((_PROC / str(pid) / "statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return None
    import psutil

    try:
        resident: int = psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return None
    return resident


def private_bytes(pid: int) -> int | None:
    """Bytes that a process holds alone (files it maps apart): what its end gives back. None as above."""
    if sys.platform.startswith("linux"):
        try:
            found = dict(_meminfo(_PROC / str(pid) / "status"))
        except (OSError, UnicodeDecodeError):
            return None
        return found.get("RssAnon", 0) + found.get("RssShmem", 0)
    return resident_of(pid)
