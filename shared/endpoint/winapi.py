"""Windows' own calls for named pipes, by ctypes and asyncio's proactor. Imported on Windows alone.

CPython's pipe server passes no security descriptor, uses message mode and admits remote clients
(`asyncio/windows_events.py`), so instances are made here. Two private methods of the proactor loop
are used; the Windows tests run them on each Python version.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from shared.endpoint.winpipe import PipeCallFailed

PIPE_ACCESS_DUPLEX = 0x3
FILE_FLAG_FIRST_PIPE_INSTANCE = 0x00080000
FILE_FLAG_OVERLAPPED = 0x40000000
PIPE_BYTE_MODE = 0x0
PIPE_REJECT_REMOTE_CLIENTS = 0x8
PIPE_UNLIMITED_INSTANCES = 255
_BUFFER_BYTES = 65536

GENERIC_READ_WRITE = 0xC0000000
OPEN_EXISTING = 3
#: The server may see who we are and not act as us.
SECURITY_IDENTIFICATION = 0x00100000 | 0x00010000

PROCESS_QUERY_LIMITED_INFORMATION = 0x1000
TOKEN_QUERY = 0x8
TOKEN_USER = 1
_SDDL_REVISION = 1


def descriptor_for(user: str) -> str:
    """The pipe's rights as SDDL: this user and the system, nothing inherited.

    Not the owner's rights: for an elevated process the owner is the group of administrators, and the
    same user's other processes would be locked out.
    """
    return f"D:P(A;;GA;;;{user})(A;;GA;;;SY)"


if sys.platform == "win32":
    import ctypes
    from asyncio.windows_utils import PipeHandle
    from ctypes import wintypes

    class _SecurityAttributes(ctypes.Structure):
        _fields_ = (
            ("length", wintypes.DWORD),
            ("descriptor", wintypes.LPVOID),
            ("inherit", wintypes.BOOL),
        )

    class WindowsPipes:
        """See winpipe.Pipes. Used inside a running proactor loop."""

        def __init__(self) -> None:
            self._kernel = ctypes.WinDLL("kernel32", use_last_error=True)
            self._rights = ctypes.WinDLL("advapi32", use_last_error=True)
            self._kernel.GetCurrentProcess.restype = wintypes.HANDLE
            self._kernel.OpenProcess.restype = wintypes.HANDLE
            self._kernel.CreateNamedPipeW.restype = wintypes.HANDLE
            self._kernel.CreateFileW.restype = wintypes.HANDLE
            self._kernel.LocalFree.argtypes = (wintypes.HLOCAL,)
            self._user = self._user_of_process(self._kernel.GetCurrentProcess())

        def create(self, name: str, *, first: bool) -> PipeHandle:
            """One more instance, each with the descriptor."""
            access = PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED | (FILE_FLAG_FIRST_PIPE_INSTANCE if first else 0)
            descriptor = wintypes.LPVOID()
            self._require(
                self._rights.ConvertStringSecurityDescriptorToSecurityDescriptorW(
                    descriptor_for(self._user), _SDDL_REVISION, ctypes.byref(descriptor), None
                )
            )
            rights = _SecurityAttributes(ctypes.sizeof(_SecurityAttributes), descriptor, False)
            try:
                handle = self._kernel.CreateNamedPipeW(
                    name,
                    access,
                    PIPE_BYTE_MODE | PIPE_REJECT_REMOTE_CLIENTS,
                    PIPE_UNLIMITED_INSTANCES,
                    _BUFFER_BYTES,
                    _BUFFER_BYTES,
                    0,
                    ctypes.byref(rights),
                )
                return PipeHandle(self._require_handle(handle))
            finally:
                self._kernel.LocalFree(descriptor)

        async def accept(self, handle: PipeHandle) -> None:
            """Wait for a client, cancellably."""
            loop: Any = asyncio.get_running_loop()
            try:
                await loop._proactor.accept_pipe(handle)  # noqa: SLF001  no public way exists
            except OSError as error:
                raise PipeCallFailed(error.winerror or 0, error.strerror or "") from error

        def open(self, name: str) -> PipeHandle:
            """The client's end."""
            flags = FILE_FLAG_OVERLAPPED | SECURITY_IDENTIFICATION
            handle = self._kernel.CreateFileW(name, GENERIC_READ_WRITE, 0, None, OPEN_EXISTING, flags, None)
            return PipeHandle(self._require_handle(handle))

        def transport(self, handle: PipeHandle, protocol: asyncio.BufferedProtocol) -> asyncio.Transport:
            """The duplex pipe transport that asyncio has for its own servers."""
            loop: Any = asyncio.get_running_loop()
            made: asyncio.Transport = loop._make_duplex_pipe_transport(handle, protocol)  # noqa: SLF001  as above
            return made

        def server_pid(self, handle: PipeHandle) -> int:
            """Of a client's end."""
            pid = wintypes.ULONG()
            self._require(self._kernel.GetNamedPipeServerProcessId(wintypes.HANDLE(handle.handle), ctypes.byref(pid)))
            return pid.value

        def client_pid(self, handle: PipeHandle) -> int:
            """Of a server's end."""
            pid = wintypes.ULONG()
            self._require(self._kernel.GetNamedPipeClientProcessId(wintypes.HANDLE(handle.handle), ctypes.byref(pid)))
            return pid.value

        def user_of(self, pid: int) -> str | None:
            """The SID of a process's user, or None where we may not look."""
            process = self._kernel.OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, False, pid)
            if not process:
                return None
            try:
                return self._user_of_process(process)
            except PipeCallFailed:
                return None
            finally:
                self._kernel.CloseHandle(wintypes.HANDLE(process))

        def own_user(self) -> str:
            """The SID of this process's user."""
            return self._user

        def close(self, handle: PipeHandle) -> None:
            """Idempotent."""
            handle.close()

        def _user_of_process(self, process: int) -> str:
            token = wintypes.HANDLE()
            self._require(self._rights.OpenProcessToken(wintypes.HANDLE(process), TOKEN_QUERY, ctypes.byref(token)))
            try:
                size = wintypes.DWORD()
                self._rights.GetTokenInformation(token, TOKEN_USER, None, 0, ctypes.byref(size))
                facts = ctypes.create_string_buffer(size.value)
                self._require(self._rights.GetTokenInformation(token, TOKEN_USER, facts, size, ctypes.byref(size)))
                # TOKEN_USER begins with a pointer to the SID
                return self._text_of(ctypes.cast(facts, ctypes.POINTER(wintypes.LPVOID))[0])
            finally:
                self._kernel.CloseHandle(token)

        def _text_of(self, sid: int | None) -> str:
            text = wintypes.LPWSTR()
            self._require(self._rights.ConvertSidToStringSidW(wintypes.LPVOID(sid), ctypes.byref(text)))
            try:
                return text.value or ""
            finally:
                self._kernel.LocalFree(text)

        def _require(self, succeeded: int) -> None:
            if not succeeded:
                code = ctypes.get_last_error()
                raise PipeCallFailed(code, ctypes.FormatError(code))

        def _require_handle(self, handle: int | None) -> int:
            if handle is None or handle == wintypes.HANDLE(-1).value:
                self._require(0)
            assert handle is not None
            return handle
