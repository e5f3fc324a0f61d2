"""Process identity on macOS, from libproc and sysctl.

The platform calls stand behind `Calls`, so that the rules can be tested elsewhere.
"""

from __future__ import annotations

import os
import sys
from typing import Protocol

from shared.lease.policy import Liveness

PROC_PIDTBSDINFO = 3
#: struct proc_bsdinfo (sys/proc_info.h): pbi_status at 4, pbi_start_tvsec at 120, pbi_start_tvusec at 128.
BSDINFO_BYTES = 136
_STATUS, _SECONDS, _MICROSECONDS = 4, 120, 128
_ZOMBIE = 5


class Calls(Protocol):
    """What is asked of the platform."""

    def bsdinfo(self, pid: int) -> bytes | None:
        """The bytes of struct proc_bsdinfo, or None."""
        ...

    def sysctl(self, name: str) -> str:
        """A text from sysctl, or ""."""
        ...

    def exists(self, pid: int) -> bool:
        """Whether signal 0 finds the pid."""
        ...


class SystemCalls:
    """The real ones."""

    def bsdinfo(self, pid: int) -> bytes | None:
        """By proc_pidinfo."""
        import ctypes

        library = ctypes.CDLL("/usr/lib/libproc.dylib", use_errno=True)
        buffer = ctypes.create_string_buffer(BSDINFO_BYTES)
        size = library.proc_pidinfo(pid, PROC_PIDTBSDINFO, ctypes.c_uint64(0), buffer, BSDINFO_BYTES)
        return buffer.raw if size == BSDINFO_BYTES else None

    def sysctl(self, name: str) -> str:
        """By sysctlbyname."""
        import ctypes

        library = ctypes.CDLL("/usr/lib/libSystem.B.dylib", use_errno=True)
        buffer = ctypes.create_string_buffer(256)
        size = ctypes.c_size_t(len(buffer))
        if library.sysctlbyname(name.encode(), buffer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
            return ""
        return buffer.value.decode("utf-8", "replace")

    def exists(self, pid: int) -> bool:
        """By signal 0; another user's process exists too."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


_SYSTEM: Calls = SystemCalls()


def probe(pid: int, calls: Calls = _SYSTEM) -> tuple[Liveness, str | None]:
    """`gone`, or `alive` with the start time as `seconds.microseconds`."""
    if not calls.exists(pid):
        return "gone", None
    info = calls.bsdinfo(pid)
    if info is None:
        return ("alive", None) if calls.exists(pid) else ("gone", None)
    if _number(info, _STATUS, 4) == _ZOMBIE:
        return "gone", None
    return "alive", f"{_number(info, _SECONDS, 8)}.{_number(info, _MICROSECONDS, 8):06}"


def boot_id(calls: Calls = _SYSTEM) -> str:
    """kern.bootsessionuuid: recreated at each start."""
    return calls.sysctl("kern.bootsessionuuid")


def boot_time() -> float | None:
    """Not asked: containers that share a data root and have boot ids of their own are unknown here."""
    return None


def pid_namespace() -> str:
    """The same for all processes."""
    return "host"


def host_name() -> str:
    """The node name."""
    if sys.platform == "win32":
        raise NotImplementedError
    return os.uname().nodename


def _number(data: bytes, offset: int, size: int) -> int:
    return int.from_bytes(data[offset : offset + size], "little")
