"""Platform rules with the platform's calls faked: identity on macOS and Windows, mounts, crash points."""

from __future__ import annotations

import os
import signal

import pytest

from shared.lease import crashpoint, netfs
from shared.lease.process import identity_linux, identity_mac, identity_windows

pytestmark = pytest.mark.unit


class MacCalls:
    def __init__(self, info: bytes | None, *, exists: bool = True) -> None:
        self.info, self.there = info, exists

    def bsdinfo(self, pid: int) -> bytes | None:
        return self.info

    def sysctl(self, name: str) -> str:
        return "UUID" if name == "kern.bootsessionuuid" else ""

    def exists(self, pid: int) -> bool:
        return self.there


def bsdinfo(status: int, seconds: int, micros: int) -> bytes:
    data = bytearray(identity_mac.BSDINFO_BYTES)
    data[4:8] = status.to_bytes(4, "little")
    data[120:128] = seconds.to_bytes(8, "little")
    data[128:136] = micros.to_bytes(8, "little")
    return bytes(data)


def test_macos_start_times_and_zombies() -> None:
    assert identity_mac.probe(9, MacCalls(bsdinfo(2, 17, 42))) == ("alive", "17.000042")
    assert identity_mac.probe(9, MacCalls(bsdinfo(5, 17, 42))) == ("gone", None)
    assert identity_mac.probe(9, MacCalls(None)) == ("alive", None)
    assert identity_mac.probe(9, MacCalls(None, exists=False)) == ("gone", None)
    assert identity_mac.boot_id(MacCalls(None)) == "UUID"


class WindowsCalls:
    def __init__(self, looked: identity_windows.Looked, boots: int = 0) -> None:
        self.looked, self.boots = looked, boots

    def look(self, pid: int) -> identity_windows.Looked:
        return self.looked

    def boot_number(self) -> int:
        return self.boots


def test_windows_creation_times_ended_and_protected_processes() -> None:
    looked = identity_windows.Looked
    assert identity_windows.probe(9, WindowsCalls(looked(created=1234))) == ("alive", "1234")
    assert identity_windows.probe(9, WindowsCalls(looked(created=1234, ended=True))) == ("gone", None)
    assert identity_windows.probe(9, WindowsCalls(looked(error=87))) == ("gone", None)
    assert identity_windows.probe(9, WindowsCalls(looked(error=5))) == ("alive", None)
    assert identity_windows.boot_id(WindowsCalls(looked(), boots=31)) == "boot-31"
    assert identity_windows.boot_id(WindowsCalls(looked())) == ""


def test_the_name_of_a_command_does_not_confuse_the_start_time(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("proc") / "stat"
    fields = ["S", *(str(number) for number in range(4, 60))]
    path.write_text(f"77 (a) R 1 (b) {' '.join(fields)}\n")
    assert identity_linux._stat(str(path)) == ("S", "22")
    path.write_text("77 (cut) S 1")
    assert identity_linux._stat(str(path)) is None


MOUNTS = [
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw",
    "30 22 0:40 / /home/me rw shared:2 - nfs4 server:/home rw",
    "31 30 254:1 / /home/me/local rw - xfs /dev/vdb rw",
    "32 22 0:41 / /mnt/with\\040space rw - fuse.sshfs host:/ rw",
    "33 22 0:42 / /media/stick rw - vfat /dev/sda1 rw",
    "34 22 0:43 / /over rw - ext4 /dev/vdc rw",
    "35 34 0:44 / /over rw - cifs //server/share rw",
    "garbage",
]


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/home/you/.local/share/modeld", "ext4", False),
        ("/home/me", "nfs4", True),
        ("/home/me/.local/share/modeld", "nfs4", True),
        ("/home/me/local/modeld", "xfs", False),
        ("/home/melissa", "ext4", False),
        ("/mnt/with space/x", "fuse.sshfs", True),
        ("/media/stick/modeld", "vfat", False),
        ("/over/x", "cifs", True),
    ],
)
def test_which_mount_a_folder_is_on(path: str, kind: str, network: bool) -> None:
    assert netfs.mount_kind(MOUNTS, path) == kind
    assert netfs.is_network(kind) is network


@pytest.mark.parametrize(
    "kind", ["ext4", "btrfs", "zfs", "apfs", "tmpfs", "overlay", "fuse.gocryptfs", "fuseblk", "ntfs"]
)
def test_local_filesystems_are_not_refused(kind: str) -> None:
    assert not netfs.is_network(kind)


def test_macos_mounts() -> None:
    def statfs(flags: int, kind: bytes) -> bytes:
        data = bytearray(2168)
        data[64:68] = flags.to_bytes(4, "little")
        data[72 : 72 + len(kind)] = kind
        return bytes(data)

    assert netfs.statfs_kind(statfs(0x1000, b"apfs")) is None
    assert netfs.statfs_kind(statfs(0, b"smbfs")) == "smbfs"
    assert netfs.statfs_kind(statfs(0x1000, b"macfuse")) is None
    assert netfs.statfs_kind(statfs(0, b"")) == "network"


def test_a_crash_point_acts_once_and_only_at_its_label(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(number))
    monkeypatch.setenv(crashpoint.VARIABLE, "renew.written:term")
    crashpoint.crash_point("renew.before")
    assert sent == []
    crashpoint.crash_point("renew.written")
    crashpoint.crash_point("renew.written")
    assert sent == [signal.SIGTERM]
    monkeypatch.setenv(crashpoint.VARIABLE, "renew.written")
    crashpoint.crash_point("renew.written")
    assert sent == [signal.SIGTERM, signal.SIGKILL]
    monkeypatch.setenv(crashpoint.VARIABLE, "renew.written:melt")
    with pytest.raises(ValueError, match="melt"):
        crashpoint.crash_point("renew.written")
