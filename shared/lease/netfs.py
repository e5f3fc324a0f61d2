"""Is a folder on this machine's own disk? Lease and database need that; a network mount is refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: Kinds of mount whose files other machines may change, or whose locks and renames cannot be relied on.
_NETWORK = frozenset({
    "9p", "acfs", "afs", "afpfs", "beegfs", "ceph", "cifs", "coda", "davfs", "drvfs", "fhgfs", "glusterfs", "gpfs",
    "lustre", "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs", "pvfs2", "smb2", "smb3", "smbfs",
    "vboxsf", "virtiofs", "vmhgfs", "webdav",
})  # fmt: skip
#: FUSE programs that bring a remote or a foreign machine's folder.
_NETWORK_FUSE = frozenset({
    "afpfs", "ceph", "curlftpfs", "davfs2", "gcsfuse", "glusterfs", "goofys", "grpcfuse", "httpfs", "juicefs", "mfs",
    "osxfs", "rclone", "s3fs", "smbnetfs", "sshfs", "vmhgfs-fuse",
})  # fmt: skip
_MNT_LOCAL = 0x00001000
_DRIVE_REMOTE = 4


def network_kind(path: Path) -> str | None:
    """The kind of network filesystem that `path` (or its nearest existing parent) is on, or None."""
    existing = _existing(path)
    if sys.platform == "win32":
        return _windows_kind(existing)
    if sys.platform == "darwin":
        return _mac_kind(existing)
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    kind = mount_kind(lines, os.path.realpath(existing))
    return kind if is_network(kind) else None


def mount_kind(mountinfo: list[str], path: str) -> str:
    """The filesystem type at `path` by the lines of /proc/self/mountinfo; the last mount on a place wins."""
    best, kind = -1, ""
    for line in mountinfo:
        left, _, right = line.partition(" - ")
        fields, described = left.split(" "), right.split(" ")
        if len(fields) < 5 or not described[0]:
            continue
        place = _unescape(fields[4])
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= best:
            best, kind = len(place), described[0]
    return kind


def is_network(kind: str) -> bool:
    """Whether a filesystem type is one of those refused. Letters' case does not matter."""
    family, _, program = kind.lower().partition(".")
    return family in _NETWORK or (family in ("fuse", "fuseblk", "macfuse", "osxfuse") and program in _NETWORK_FUSE)


def _existing(path: Path) -> Path:
    for candidate in (path, *path.parents):
        if candidate.exists():
            return candidate
    return path


def _unescape(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _mac_kind(path: Path) -> str | None:
    """By statfs(2): its MNT_LOCAL flag and its type name."""
    if sys.platform == "win32":
        return None
    import ctypes

    library = ctypes.CDLL("/usr/lib/libSystem.B.dylib", use_errno=True)
    buffer = ctypes.create_string_buffer(2168)  # struct statfs, 64-bit inodes
    name = "statfs$INODE64" if os.uname().machine == "x86_64" else "statfs"
    if getattr(library, name)(os.fsencode(path), buffer) != 0:
        return None
    return statfs_kind(buffer.raw)


def statfs_kind(data: bytes) -> str | None:
    """From macOS's struct statfs: f_flags at 64, f_fstypename (16 bytes) at 72. None when the mount is local."""
    flags = int.from_bytes(data[64:68], "little")
    kind = data[72:88].split(b"\0", 1)[0].decode("ascii", "replace")
    if not flags & _MNT_LOCAL or is_network(kind):
        return kind or "network"
    return None


def _windows_kind(path: Path) -> str | None:
    if sys.platform != "win32":
        return None
    import ctypes

    drive = os.path.splitdrive(os.path.abspath(path))[0]
    if drive.startswith("\\\\"):
        return "network share"
    remote = ctypes.WinDLL("kernel32").GetDriveTypeW(f"{drive}\\") == _DRIVE_REMOTE
    return "network drive" if remote else None
