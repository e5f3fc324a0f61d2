"""A Windows job object that ends a child with the process that holds it, whatever ends that one."""

from __future__ import annotations

import ctypes
import sys
from ctypes import wintypes

if sys.platform != "win32":
    raise ImportError("job objects exist on Windows only")

_EXTENDED_LIMIT = 9  # JobObjectExtendedLimitInformation
_KILL_ON_JOB_CLOSE = 0x2000
_SET_QUOTA_AND_TERMINATE = 0x0100 | 0x0001


class _Basic(ctypes.Structure):
    _fields_ = (
        ("per_process_user_time", wintypes.LARGE_INTEGER),
        ("per_job_user_time", wintypes.LARGE_INTEGER),
        ("limit_flags", wintypes.DWORD),
        ("minimum_working_set", ctypes.c_size_t),
        ("maximum_working_set", ctypes.c_size_t),
        ("active_process_limit", wintypes.DWORD),
        ("affinity", ctypes.c_size_t),
        ("priority_class", wintypes.DWORD),
        ("scheduling_class", wintypes.DWORD),
    )


class _Extended(ctypes.Structure):
    _fields_ = (
        ("basic", _Basic),
        ("io", ctypes.c_ulonglong * 6),
        ("process_memory_limit", ctypes.c_size_t),
        ("job_memory_limit", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    )


class Job:
    """Holds one process; closing the handle (also by our own death) ends it."""

    def __init__(self, pid: int) -> None:
        """Raises OSError when the process cannot be put into a job."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateJobObjectW.restype = wintypes.HANDLE
        kernel.OpenProcess.restype = wintypes.HANDLE
        self._kernel = kernel
        self._handle = wintypes.HANDLE(kernel.CreateJobObjectW(None, None))
        limits = _Extended()
        limits.basic.limit_flags = _KILL_ON_JOB_CLOSE
        process = wintypes.HANDLE(kernel.OpenProcess(_SET_QUOTA_AND_TERMINATE, False, pid))
        try:
            done = kernel.SetInformationJobObject(
                self._handle, _EXTENDED_LIMIT, ctypes.byref(limits), ctypes.sizeof(limits)
            ) and kernel.AssignProcessToJobObject(self._handle, process)
            if not done:
                raise ctypes.WinError(ctypes.get_last_error())
        finally:
            kernel.CloseHandle(process)

    def close(self) -> None:
        """End the process if it still runs."""
        if self._handle.value:
            self._kernel.CloseHandle(self._handle)
            self._handle = wintypes.HANDLE()
