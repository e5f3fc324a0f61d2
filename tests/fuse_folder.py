"""A filesystem of our own for tests: no hard links, as on FAT, and stalled when it is told to be.

    python tests/fuse_folder.py FOLDER

Files live in memory. Speaks the kernel's FUSE protocol (7.31) over /dev/fuse; needs root. Prints `ready`, ends when
its standard input closes; `stall` and `go on` are lines there.

The kernel lets nobody go whose request was read and not answered, and nobody who closes a file where closes are
requests. So a stall comes between two requests, and no close is one: what still hangs then is a fault of the product.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

HEADER = struct.Struct("<IIQQIIII")
ATTRIBUTES = struct.Struct("<6Q10I")
ROOT = 1
FOREVER_NOT = struct.pack("<QQII", 0, 0, 0, 0)  # nothing is cached: two mounts of one idea must agree


class Refused(Exception):
    """`args[0]` is the errno."""


class Node:
    """One file or folder."""

    def __init__(self, number: int, mode: int) -> None:
        self.number = number
        self.mode = mode
        self.data = bytearray()
        self.names: dict[bytes, int] = {}
        self.touched = time.time()

    def attributes(self) -> bytes:
        seconds, part = int(self.touched), int(self.touched % 1 * 1e9)
        size = len(self.data)
        return ATTRIBUTES.pack(
            self.number, size, (size + 511) // 512, seconds, seconds, seconds, part, part, part, self.mode,
            2 if stat.S_ISDIR(self.mode) else 1, os.getuid(), os.getgid(), 0, 4096, 0,
        )  # fmt: skip


class Memory:
    """Every operation by its number in the protocol. Answers bytes, or None where no answer is wanted."""

    def __init__(self) -> None:
        self.nodes = {ROOT: Node(ROOT, stat.S_IFDIR | 0o700)}
        self._next = ROOT + 1
        self.operations: dict[int, Callable[[int, bytes], bytes | None]] = {
            1: self.lookup, 2: self.nothing, 3: self.getattr, 4: self.setattr, 9: self.mkdir, 10: self.unlink,
            11: self.unlink, 12: self.rename, 14: self.open, 15: self.read, 16: self.write, 17: self.statfs,
            18: self.done, 20: self.done, 26: self.init, 27: self.open, 28: self.readdir,
            29: self.done, 30: self.done, 35: self.create, 36: self.nothing, 42: self.nothing, 45: self.rename2,
        }  # fmt: skip

    def entry(self, node: Node) -> bytes:
        return struct.pack("<QQQQII", node.number, 0, 0, 0, 0, 0) + node.attributes()

    def new(self, parent: int, name: bytes, mode: int) -> Node:
        folder = self.nodes[parent]
        if name in folder.names:
            raise Refused(errno.EEXIST)
        node = self.nodes[self._next] = Node(self._next, mode)
        self._next += 1
        folder.names[name] = node.number
        folder.touched = time.time()
        return node

    def nothing(self, node: int, body: bytes) -> None:
        return None

    def done(self, node: int, body: bytes) -> bytes:
        return b""

    def init(self, node: int, body: bytes) -> bytes:
        return struct.pack("<4IHHIIHHI7I", 7, 31, 0, 0, 16, 12, 1 << 17, 1, 0, 0, 0, *[0] * 7)

    def lookup(self, node: int, body: bytes) -> bytes:
        found = self.nodes[node].names.get(body.rstrip(b"\0"))
        if found is None:
            raise Refused(errno.ENOENT)
        return self.entry(self.nodes[found])

    def getattr(self, node: int, body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self.nodes[node].attributes()

    def setattr(self, node: int, body: bytes) -> bytes:
        fields = struct.unpack("<IIQQQQQQIIIIIIII", body[:88])
        valid, size, mode = fields[0], fields[3], fields[11]
        file = self.nodes[node]
        if valid & 1:
            file.mode = stat.S_IFMT(file.mode) | stat.S_IMODE(mode)
        if valid & 8:
            del file.data[size:]
            file.data.extend(bytes(size - len(file.data)))
        file.touched = time.time()
        return self.getattr(node, b"")

    def mkdir(self, node: int, body: bytes) -> bytes:
        mode, umask = struct.unpack_from("<II", body)
        return self.entry(self.new(node, body[8:].rstrip(b"\0"), stat.S_IFDIR | (mode & ~umask & 0o7777)))

    def create(self, node: int, body: bytes) -> bytes:
        _flags, mode, umask = struct.unpack_from("<III", body)
        made = self.new(node, body[16:].rstrip(b"\0"), stat.S_IFREG | (mode & ~umask & 0o7777))
        return self.entry(made) + self.open(made.number, b"")

    def unlink(self, node: int, body: bytes) -> bytes:
        if self.nodes[node].names.pop(body.rstrip(b"\0"), None) is None:
            raise Refused(errno.ENOENT)
        return b""

    def rename(self, node: int, body: bytes) -> bytes:
        return self._rename(node, struct.unpack_from("<Q", body)[0], body[8:], replace=True)

    def rename2(self, node: int, body: bytes) -> bytes:
        target, flags = struct.unpack_from("<QI", body)
        return self._rename(node, target, body[16:], replace=not flags & 1)

    def _rename(self, node: int, target: int, names: bytes, *, replace: bool) -> bytes:
        old, new = names.split(b"\0")[:2]
        if not replace and new in self.nodes[target].names:
            raise Refused(errno.EEXIST)
        moved = self.nodes[node].names.pop(old, None)
        if moved is None:
            raise Refused(errno.ENOENT)
        self.nodes[target].names[new] = moved
        return b""

    def open(self, node: int, body: bytes) -> bytes:
        return struct.pack("<QII", node, 1, 0)  # direct: every read and write comes here

    def read(self, node: int, body: bytes) -> bytes:
        _handle, offset, size = struct.unpack_from("<QQI", body)
        return bytes(self.nodes[node].data[offset : offset + size])

    def write(self, node: int, body: bytes) -> bytes:
        _handle, offset, size = struct.unpack_from("<QQI", body)
        file = self.nodes[node]
        file.data.extend(bytes(max(offset - len(file.data), 0)))
        file.data[offset : offset + size] = body[40 : 40 + size]
        file.touched = time.time()
        return struct.pack("<II", size, 0)

    def statfs(self, node: int, body: bytes) -> bytes:
        return struct.pack("<5Q4I6I", 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 4096, 255, 4096, 0, *[0] * 6)

    def readdir(self, node: int, body: bytes) -> bytes:
        _handle, offset, size = struct.unpack_from("<QQI", body)
        out = b""
        for index, (name, number) in enumerate(list(self.nodes[node].names.items())[offset:], start=offset + 1):
            kind = stat.S_IFMT(self.nodes[number].mode) >> 12
            record = struct.pack("<QQII", number, index, len(name), kind) + name
            record += bytes(-len(record) % 8)
            if len(out) + len(record) > size:
                break
            out += record
        return out


def serve(device: int, answering: threading.Lock) -> None:
    """Answer until it is unmounted; nothing while another holds `answering`."""
    memory = Memory()
    while True:
        select.select([device], [], [])
        with answering:
            try:
                answer_next(device, memory)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return  # unmounted
                if error.errno not in (errno.EAGAIN, errno.ENOENT, errno.EINTR):  # who asked was killed meanwhile
                    raise


def answer_next(device: int, memory: Memory) -> None:
    """Read one request and answer it. Raises OSError."""
    request = os.read(device, (1 << 17) + 4096)
    _length, operation, unique, node = HEADER.unpack_from(request)[:4]
    call = memory.operations.get(operation)
    code, answer = 0, b""
    try:
        if call is None:
            raise Refused(errno.EPERM if operation == 13 else errno.ENOSYS)  # 13 is link: as FAT refuses it
        said = call(node, request[HEADER.size :])
        if said is None:
            return
        answer = said
    except Refused as refused:
        code = -int(refused.args[0])
    except KeyError:
        code = -errno.ENOENT
    os.write(device, struct.pack("<IiQ", 16 + len(answer), code, unique) + answer)


def main(folder: str) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,subtype=memory".encode()
    if library.mount(b"memory", os.fsencode(folder), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    answering = threading.Lock()
    threading.Thread(target=serve, args=(device, answering), daemon=True).start()
    first = Path(folder, "first")
    first.write_bytes(b"")  # at its close the kernel learns that closes are no requests here
    first.unlink()
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "stall\n":
            answering.acquire()
        else:
            answering.release()
        print("done", flush=True)
    library.umount2(os.fsencode(folder), 2)


class FuseFolder:
    """The filesystem in a process, mounted on `folder`. Raises OSError where this machine does not permit it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            self.close()
            raise OSError("no FUSE here")

    def stall(self) -> None:
        """From now on every call hangs, as on a filesystem whose server is away."""
        self._tell("stall")

    def go_on(self) -> None:
        """End the stall."""
        self._tell("go on")

    def _tell(self, what: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(what, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == "done\n"

    def close(self) -> None:
        """Unmount it; what still hangs there fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


if __name__ == "__main__":
    main(sys.argv[1])
