"""Filesystems as they are: one without hard links and one that stalls, both real ones (see tests/fuse_folder.py)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

import pytest

from fuse_folder import FuseFolder
from lease_processes import Instance
from shared.lease import reader
from shared.lease.netfs import network_kind
from shared.paths import DataRoot
from waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
Start = Callable[..., Instance]


@pytest.fixture
def fuse(data_root: DataRoot) -> Iterator[FuseFolder]:
    """The folder of the leases on a filesystem of our own; the rest of the root stays where it is."""
    try:
        mounted = FuseFolder(data_root.owner)
    except OSError:
        pytest.skip("NOT PROVEN HERE: this machine does not permit mounting a FUSE filesystem")
    yield mounted
    mounted.close()


def test_it_has_no_hard_links(data_root: DataRoot, fuse: FuseFolder) -> None:
    (data_root.owner / "a").write_bytes(b"x" * 5000)
    with pytest.raises(PermissionError) as refused:
        os.link(data_root.owner / "a", data_root.owner / "b")
    assert refused.value.errno == errno.EPERM
    assert (data_root.owner / "a").read_bytes() == b"x" * 5000
    assert os.listdir(data_root.owner) == ["a"]
    assert network_kind(data_root.owner) is None


def test_without_hard_links_still_one_of_many_owns_and_is_followed(
    data_root: DataRoot, fuse: FuseFolder, start: Start
) -> None:
    instances = [start(wait=False) for _ in range(4)]
    for instance in instances:
        instance.ready()
    for instance in instances:
        instance.send("ensure")
    owners = [one for one in instances if "epoch" in one.wait("answer", "ensure")]
    assert len(owners) == 1
    others = [one for one in instances if one is not owners[0]]
    for one in others:
        until(lambda one=one: one.ask("status")["role"] == "standby", "it stands by")  # type: ignore[misc]
    owners[0].kill()
    until(lambda: sum(one.ask("status")["valid"] for one in others) == 1, "one of them owns")
    survey = reader.survey(data_root)
    assert survey.owner is not None
    assert survey.owner.instance in {one.name for one in others}


def test_an_owner_whose_filesystem_stalls_stops_by_its_own_clock(fuse: FuseFolder, start: Start) -> None:
    """The renewing thread hangs inside the kernel; nothing of the fence needs it."""
    owner = start()
    owner.ask("ensure")
    standby = start()
    until(lambda: standby.ask("status")["role"] == "standby", "it stands by")
    fuse.stall()
    frozen = owner.wait("event", "freeze")
    lost = owner.wait("event", "lost")
    assert lost["at"] > frozen["at"]
    acts = owner.ask("status")["acts"]
    assert not owner.ask("status")["valid"]
    fuse.go_on()
    acquired = standby.wait("event", "acquired")  # somebody serves again, without a human
    assert acquired["at"] > lost["at"]
    assert owner.ask("status")["acts"] == acts  # the write that came back late was worth nothing
    assert owner.ask("confirm")["error"] == "not_owner"


def test_a_stall_that_ends_in_time_costs_nothing(fuse: FuseFolder, start: Start) -> None:
    owner = start(ttl=12.0)  # three seconds from the freeze to the loss, in which a busy machine must wake us
    epoch = owner.ask("ensure")["epoch"]
    fuse.stall()
    owner.wait("event", "freeze", patience=30.0)
    fuse.go_on()
    owner.wait("event", "thaw")
    assert owner.ask("confirm")["epoch"] == epoch
