"""Process identity on Windows, from the process handle and the registry.

The platform calls stand behind `Calls`, so that the rules can be tested elsewhere.
"""

from __future__ import annotations

import os
import sys
from typing import Literal, Protocol

import msgspec

from shared.lease.policy import Liveness

_ACCESS_DENIED = 5
_INVALID_PARAMETER = 87
_QUERY_LIMITED, _SYNCHRONIZE = 0x1000, 0x100000
_WAIT_SIGNALLED = 0
_MEMORY_MANAGEMENT = r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters"


class Looked(msgspec.Struct, frozen=True):
    """One look at a pid: an error number of OpenProcess, or its creation time and whether it has ended."""

    error: int = 0
    created: int = 0
    ended: bool = False


class Calls(Protocol):
    """What is asked of the platform."""

    def look(self, pid: int) -> Looked:
        """Open the process, read its times, close it."""
        ...

    def boot_number(self) -> int:
        """The registry's count of starts, or 0."""
        ...


class SystemCalls:
    """The real ones."""

    def look(self, pid: int) -> Looked:
        """By OpenProcess, GetProcessTimes and a wait of no time."""
        if sys.platform != "win32":
            raise NotImplementedError
        import ctypes
        from ctypes import wintypes

        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.OpenProcess.restype = wintypes.HANDLE
        kernel.OpenProcess.argtypes = [wintypes.DWORD, wintypes.BOOL, wintypes.DWORD]
        kernel.WaitForSingleObject.argtypes = [wintypes.HANDLE, wintypes.DWORD]
        kernel.GetProcessTimes.argtypes = [wintypes.HANDLE, *[ctypes.POINTER(wintypes.FILETIME)] * 4]
        kernel.CloseHandle.argtypes = [wintypes.HANDLE]
        handle = kernel.OpenProcess(_QUERY_LIMITED | _SYNCHRONIZE, False, pid)
        if not handle:
            return Looked(error=ctypes.get_last_error() or _ACCESS_DENIED)
        try:
            times = [wintypes.FILETIME() for _ in range(4)]
            if not kernel.GetProcessTimes(handle, *[ctypes.byref(time) for time in times]):
                return Looked(error=ctypes.get_last_error() or _ACCESS_DENIED)
            created = (times[0].dwHighDateTime << 32) | times[0].dwLowDateTime
            return Looked(created=created, ended=kernel.WaitForSingleObject(handle, 0) == _WAIT_SIGNALLED)
        finally:
            kernel.CloseHandle(handle)

    def boot_number(self) -> int:
        """BootId: a number that rises with each start."""
        if sys.platform != "win32":
            raise NotImplementedError
        import winreg

        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, _MEMORY_MANAGEMENT) as key:
                value, _ = winreg.QueryValueEx(key, "BootId")
        except OSError:
            return 0
        return value if isinstance(value, int) else 0


_SYSTEM: Calls = SystemCalls()


def probe(pid: int, calls: Calls = _SYSTEM) -> tuple[Liveness, str | None]:
    """`gone`, or `alive` with the creation time in 100 ns since 1601 (None where it may not be read)."""
    looked = calls.look(pid)
    if looked.error == _INVALID_PARAMETER:
        return "gone", None
    if looked.error:
        return "alive", None
    if looked.ended:  # somebody still holds a handle on it
        return "gone", None
    return "alive", str(looked.created)


def boot_id(calls: Calls = _SYSTEM) -> str:
    """The count of starts; "" where the registry does not have it (deaths are then not proven by it)."""
    number = calls.boot_number()
    return f"boot-{number}" if number else ""


def boot_time() -> float | None:
    """Not asked: containers that share a data root and have boot ids of their own are unknown here."""
    return None


def pid_namespace() -> Literal["host"]:
    """The same for all processes."""
    return "host"


def host_name() -> str:
    """The computer's name as every process of the user has it."""
    return os.environ.get("COMPUTERNAME", "")
