"""Lease, presence and survey on a real disk: exclusive creation, damage, foreign and full folders."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from manual_clock import ManualClock
from sabotage import a_device
from shared.clock import SystemClock
from shared.errors import DiskFull, NetworkFilesystem, RootUnusable
from shared.lease import disk, files, presence, reader
from shared.lease.contender import Contender
from shared.lease.files import LeaseFolder
from shared.lease.keeper import Keeper, LeaseLost
from shared.lease.process import identity
from shared.lease.record import Identity, LeaseRecord, Meta, PresenceRecord, Released, Worker, encode
from shared.paths import DataRoot

pytestmark = pytest.mark.integration
TTL = 1.0
META = msgspec.to_builtins(Meta(endpoint="unix:/s", backend="llama"))


@pytest.fixture
def root(short_tmp: Path) -> DataRoot:
    made = DataRoot(short_tmp / "data")
    files.prepare(made)
    return made


def contender(root: DataRoot, name: str, clock: Any = None, me: Identity | None = None) -> Contender:
    return Contender(LeaseFolder(root, name), me or identity.current(), clock or SystemClock(), TTL)


def take(one: Contender, name: str, floor: int = 0) -> Any:
    return one.take(one.look(), name, ttl=TTL, meta=META, floor=floor)


def no_links(monkeypatch: pytest.MonkeyPatch, number: int = errno.EPERM) -> None:
    def refuse(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)


# --- exclusive creation ---


@pytest.mark.parametrize("links", [True, False])
def test_of_many_creators_one_wins_and_a_reader_never_sees_half(
    root: DataRoot, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        no_links(monkeypatch)
    for epoch in range(1, 20):
        gate = threading.Barrier(6)
        won: list[int] = []
        path = root.owner / f"{epoch}.lease"

        def race(number: int, path: Path = path, gate: threading.Barrier = gate, won: list[int] = won) -> None:
            gate.wait()
            if disk.create_exclusive(path, b"%d" % number * 600, f"u{number}"):
                won.append(number)

        threads = [threading.Thread(target=race, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert path.read_bytes() == b"%d" % won[0] * 600
    assert not list(root.owner.glob(".*tmp"))


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.EIO, errno.ENOSYS])
def test_a_filesystem_without_hard_links_still_elects(
    root: DataRoot, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    no_links(monkeypatch, number)
    first, second = contender(root, "a"), contender(root, "b")
    look = second.look()
    assert take(first, "a") is not None
    assert second.take(look, "b", ttl=TTL, meta=META) is None
    assert second.look().standing == "held"


def test_a_real_filesystem_without_hard_links(tmp_path: Path) -> None:
    image, place = tmp_path / "fat.img", tmp_path / "fat"
    image.write_bytes(b"\0" * 4 * 1024 * 1024)
    place.mkdir()
    made = subprocess.run(["mkfs.vfat", str(image)], capture_output=True, check=False) if _has("mkfs.vfat") else None
    if made is None or made.returncode or _run("mount", "-o", "loop", str(image), str(place)):
        pytest.skip("NOT PROVEN HERE: no vfat can be made and mounted on this machine")
    try:
        root = DataRoot(place / "data")
        files.prepare(root)
        assert take(contender(root, "a"), "a") is not None
        assert contender(root, "b").look().standing == "held"
    finally:
        _run("umount", str(place))


# --- taking, and what is found ---


def test_the_epoch_is_above_the_files_and_above_the_floor(root: DataRoot) -> None:
    taken = take(contender(root, "a"), "a", floor=41)
    assert taken.record.epoch == 42
    assert taken.record.sequence == 1
    assert (root.owner_copy).read_bytes() == (root.owner / "42.lease").read_bytes()


def test_a_contender_that_slept_between_judgement_and_creation_has_lost(root: DataRoot) -> None:
    slow, quick = contender(root, "slow"), contender(root, "quick")
    look = slow.look()
    assert take(quick, "quick") is not None
    assert slow.take(look, "slow", ttl=TTL, meta=META) is None
    # and with another floor, so that its epoch is free: it sees the other one below
    assert slow.take(look, "slow", ttl=TTL, meta=META, floor=7) is None
    claim = files.sight(root)
    assert claim is not None
    assert claim.record is not None
    assert (claim.record.epoch, claim.record.sequence) == (8, 0)
    assert contender(root, "c").look().standing == "held"  # a claim gives no short cut


def test_a_contender_meets_an_owner_that_thawed_meanwhile(root: DataRoot) -> None:
    clock = ManualClock()
    stranger = Identity(pid=1, host="elsewhere")
    owner = contender(root, "o", clock, stranger)
    taken = take(owner, "o")
    watcher = contender(root, "w", clock)
    while (look := watcher.look()).standing == "held":
        clock.advance(TTL / 4)
    assert look.standing == "expired"
    owner.folder.rewrite(msgspec.structs.replace(taken.record, sequence=2))  # it thaws
    assert watcher.take(look, "w", ttl=TTL, meta=META) is None
    assert watcher.look().standing == "held"


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 300, b'{"instance": "x"'])
def test_a_broken_record_is_held_until_it_stood_still_long_enough(root: DataRoot, content: bytes) -> None:
    clock = ManualClock()
    (root.owner / "5.lease").write_bytes(content)
    one = contender(root, "a", clock)
    assert one.look().standing == "held"
    clock.advance(1000)
    assert one.look().standing == "held"  # one step was counted, however long the gap
    for _ in range(4):
        clock.advance(TTL / 4)
        look = one.look()
    assert look.standing == "expired"
    taken = take(one, "a")
    assert taken.record.epoch == 6
    assert taken.record.worker == Worker(pid=0)  # somebody's worker may be there


def test_a_record_of_a_newer_version_is_respected(root: DataRoot) -> None:
    record = LeaseRecord(instance="n", epoch=3, pid=1, sequence=4, host="elsewhere", format=7, extra={"quorum": 3})
    (root.owner / "3.lease").write_bytes(encode(record))
    assert contender(root, "a").look().standing == "held"
    survey = reader.survey(root)
    assert survey.owner is not None
    assert survey.owner.instance == "n"


def test_foreign_names_in_the_folder_mean_nothing(root: DataRoot) -> None:
    for name in ("x.lease", "-3.lease", "7.lease.bak", ".8.lease.u.tmp", "٣.lease", "lease", "007.lease",
                 f"{2**63}.lease", f"{2**63 - 1}.lease", "0.lease"):  # fmt: skip
        (root.owner / name).write_bytes(b"?")
    os.mkfifo(root.owner / "5.lease")
    (root.owner / "6.lease").mkdir()
    (root.owner / "8.lease").symlink_to("/dev/zero")
    (root.owner / "9.lease").symlink_to("9.lease")
    (root.owner / "10.lease").symlink_to("nowhere")
    assert files.list_epochs(root) == []
    assert len(files.odd_entries(root)) == 12
    assert contender(root, "a").look().standing == "none"


def test_numbers_under_which_something_odd_stands_are_left_out(root: DataRoot) -> None:
    (root.owner / "1.lease").symlink_to("nowhere")
    (root.owner / "2.lease").mkdir()
    os.mkfifo(root.owner / "3.lease")
    a_device(root.owner / "4.lease")
    assert take(contender(root, "a"), "a").record.epoch == 5


def test_an_emptied_folder_is_watched_before_it_counts_as_free(root: DataRoot) -> None:
    clock = ManualClock()
    assert take(contender(root, "a", clock), "a") is not None
    (root.owner / "1.lease").unlink()
    watcher = contender(root, "b", clock)
    assert watcher.look().standing == "held"
    for _ in range(5):
        clock.advance(TTL / 4)
        look = watcher.look()
    assert look.standing == "expired"
    assert watcher.take(look, "b", ttl=TTL, meta=META) is not None


def test_a_worker_left_by_an_owner_stays_named_through_its_successors(root: DataRoot) -> None:
    worker = Worker(pid=77, start_token="9", host="elsewhere")
    record = LeaseRecord(
        instance="x", epoch=2, pid=1, sequence=3, worker=worker, released=Released(reason="lost", at=0)
    )
    (root.owner / "2.lease").write_bytes(encode(record))
    one = contender(root, "a")
    first = take(one, "a")
    assert first.record.worker == worker
    one.folder.rewrite(msgspec.structs.replace(first.record, released=Released(reason="lost", at=0), sequence=5))
    assert take(contender(root, "b"), "b").record.worker == worker


def test_old_epochs_are_swept_and_the_last_ones_kept(root: DataRoot) -> None:
    for epoch in range(1, 10):
        (root.owner / f"{epoch}.lease").write_bytes(b"x")
    left = [root.owner / ".9.lease.u.tmp", root.path / ".owner.lease.u.tmp"]
    for path in left:
        path.write_bytes(b"x")
    written = left[0].stat().st_mtime
    LeaseFolder(root, "a").sweep(9, written + 1)
    assert sorted(files.list_epochs(root)) == [6, 7, 8, 9]
    assert all(path.exists() for path in left)  # somebody may be writing them
    LeaseFolder(root, "a").sweep(9, written + files.KEEP_TEMPORARY + 2)
    assert not any(path.exists() for path in left)


# --- the keeper with a real filesystem underneath ---


@pytest.fixture
def keeper(root: DataRoot) -> Iterator[tuple[Keeper, list[str]]]:
    events: list[str] = []
    one = contender(root, "a")
    kept = Keeper(one.folder, take(one, "a"), SystemClock(), events.append)
    kept.start()
    yield kept, events
    kept.release("stop", 5.0)


def test_a_worker_is_on_disk_when_its_naming_returns(root: DataRoot, keeper: tuple[Keeper, list[str]]) -> None:
    worker = Worker(pid=5, start_token="x")
    keeper[0].name_worker(worker)
    seen = files.sight(root)
    assert seen is not None
    assert seen.record is not None
    assert seen.record.worker == worker


def test_a_higher_epoch_is_noticed_before_the_next_turn(root: DataRoot, keeper: tuple[Keeper, list[str]]) -> None:
    keeper[0].confirm()
    (root.owner / "9.lease").write_bytes(b"")
    with pytest.raises(LeaseLost):
        keeper[0].confirm()
    assert not keeper[0].valid()
    assert "lost" in keeper[1]
    with pytest.raises(LeaseLost):
        keeper[0].name_worker(Worker(pid=5, start_token="x"))


class SleptClock(SystemClock):
    """The machine has slept for so many seconds."""

    slept = 0.0

    def awake(self) -> float:
        return super().awake() + self.slept


def test_a_renewal_that_wakes_before_the_watch_says_the_freeze_too(root: DataRoot) -> None:
    one, clock, events = contender(root, "a"), SleptClock(), list[str]()
    kept = Keeper(one.folder, take(one, "a"), clock, events.append)
    clock.slept = kept.record.ttl
    kept._renew()  # as its thread does where it is the first to wake
    assert events == ["freeze", "thaw", "renewed"]
    assert kept.valid()


def test_a_short_trouble_with_the_disk_is_no_loss(
    root: DataRoot, keeper: tuple[Keeper, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = disk.replace, []

    def troubled(path: Path, data: bytes, unique: str) -> None:
        calls.append(path)
        if len(calls) <= 2:
            raise OSError(errno.EIO, "input/output error")
        real(path, data, unique)

    monkeypatch.setattr(disk, "replace", troubled)
    keeper[0].name_worker(Worker(pid=5, start_token="x"))
    assert len(calls) >= 3
    assert keeper[0].valid()
    assert "lost" not in keeper[1]


def test_a_release_is_the_last_thing_written(root: DataRoot) -> None:
    one = contender(root, "a")
    kept = Keeper(one.folder, take(one, "a"), SystemClock(), lambda event: None)
    kept.start()
    assert kept.release("upgrade", 5.0)
    assert not kept.valid()
    survey = reader.survey(root)
    assert (survey.owner, survey.released) == (None, "upgrade")
    assert survey.last is not None
    assert survey.last.backend == "llama"
    with pytest.raises(LeaseLost):
        kept.confirm()


# --- the root ---


def test_a_network_mount_is_refused(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "network_kind", lambda path: "nfs4")
    with pytest.raises(NetworkFilesystem) as refused:
        files.prepare(DataRoot(short_tmp / "data"))
    assert refused.value.hint == "nfs4"
    assert not (short_tmp / "data").exists()


def test_open_folders_are_made_private(short_tmp: Path) -> None:
    root = DataRoot(short_tmp / "data")
    root.owner.mkdir(parents=True, mode=0o755)
    root.owner.chmod(0o755)
    files.prepare(root)
    for folder in (root.owner, root.instances):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.skipif(os.name == "nt", reason="modes are those of Unix")
@pytest.mark.parametrize(("before", "after"), [(0o777, 0o755), (0o770, 0o750), (0o755, 0o755), (0o700, 0o700)])
def test_nobody_else_writes_into_a_root_that_was_there(short_tmp: Path, before: int, after: int) -> None:
    root = DataRoot(short_tmp / "data")
    root.path.mkdir()
    root.path.chmod(before)
    files.prepare(root)
    assert stat.S_IMODE(root.path.stat().st_mode) == after
    assert stat.S_IMODE(root.owner.stat().st_mode) == 0o700


@pytest.mark.skipif(os.name == "nt", reason="modes are those of Unix")
def test_a_place_for_all_is_refused_and_left_as_it_is(short_tmp: Path) -> None:
    root = DataRoot(short_tmp / "data")
    root.path.mkdir()
    root.path.chmod(0o1777)
    with pytest.raises(RootUnusable, match="others may write") as refused:
        files.prepare(root)
    assert (refused.value.path, refused.value.mode) == (str(root.path), "1777")
    assert stat.S_IMODE(root.path.stat().st_mode) == 0o1777


AS_NOBODY = """
import os, sys
from pathlib import Path
from shared.errors import ModeldError
from shared.lease import files, reader
from shared.lease.contender import Contender
from shared.paths import DataRoot
import shared.lease.disk
os.setuid(65534)
root = DataRoot(Path(sys.argv[1]))
try:
    files.prepare(root)
    print("prepared")
except ModeldError as error:
    print(error.kind, error.path, error.uid, error.mode)
print(bool(reader.survey(root).problem))
"""


def _as_nobody(root: Path) -> list[str]:
    if os.geteuid() != 0:
        pytest.skip("NOT PROVEN HERE: becoming another user needs root")
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(root)], capture_output=True, text=True, check=True, timeout=15
    )
    return done.stdout.split()


def test_a_root_of_another_user_is_explained_with_path_uid_and_mode(root: DataRoot) -> None:
    root.path.parent.chmod(0o755)
    root.path.chmod(0o755)
    assert _as_nobody(root.path) == ["root_unusable", str(root.path), "0", "0755", "True"]


def test_a_root_that_cannot_be_created_is_explained(short_tmp: Path) -> None:
    short_tmp.chmod(0o755)
    assert _as_nobody(short_tmp / "data")[:4] == ["root_unusable", str(short_tmp / "data"), "0", "0755"]


def test_a_file_in_the_place_of_the_root_is_explained(short_tmp: Path) -> None:
    (short_tmp / "data").write_text("in the way")
    with pytest.raises(RootUnusable):
        files.prepare(DataRoot(short_tmp / "data"))


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    places: list[Path] = []

    def mount(options: str) -> Path:
        place = tmp_path / f"mount{len(places)}"
        place.mkdir()
        if _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)):
            pytest.skip("NOT PROVEN HERE: this machine does not permit mounting a tmpfs")
        places.append(place)
        return place

    yield mount
    for place in places:
        _run("umount", str(place))


def test_a_full_disk_does_not_cost_a_lease_that_is_held(mounted: Callable[[str], Path]) -> None:
    root = DataRoot(mounted("size=256k") / "data")
    files.prepare(root)
    one = contender(root, "a")
    kept = Keeper(one.folder, take(one, "a"), SystemClock(), lambda event: None)
    kept.start()
    try:
        with (root.path / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
            while True:
                filler.write(b"x" * 4096)
        kept.publish({**META, "endpoint": "unix:/new"})
        assert kept.valid()
        survey = reader.survey(root)
        assert survey.owner is not None
        assert survey.owner.endpoint == "unix:/new"
    finally:
        assert kept.release("stop", 5.0)
    assert reader.survey(root).released == "stop"


def test_a_full_disk_is_explained_to_who_would_own(mounted: Callable[[str], Path]) -> None:
    root = DataRoot(mounted("size=64k") / "data")
    files.prepare(root)
    with (root.path / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
        while True:
            filler.write(b"x" * 4096)
    with pytest.raises(DiskFull) as full:
        try:
            take(contender(root, "a"), "a")
        except OSError as error:
            disk.explain(error, root.owner)
    assert full.value.path == str(root.owner)
    assert files.list_epochs(root) == []


def test_a_read_only_root_is_explained_and_still_surveyed(mounted: Callable[[str], Path]) -> None:
    place = mounted("size=256k")
    root = DataRoot(place / "data")
    files.prepare(root)
    assert take(contender(root, "a"), "a") is not None
    if _run("mount", "-o", "remount,ro", str(place)):
        pytest.skip("NOT PROVEN HERE: no remount")
    survey = reader.survey(root)
    assert survey.owner is not None
    with pytest.raises(RootUnusable, match="Read-only"):
        files.prepare(DataRoot(place / "other"))


# --- presence and survey ---


def published(root: DataRoot, name: str, **changes: Any) -> presence.Presence:
    one = presence.Presence(root, name)
    one.make_token()
    me = identity.current()
    fields: dict[str, Any] = {"instance": name, "endpoint": f"unix:/{name}", "token_file": str(one.token_file)}
    one.publish(PresenceRecord(**{**fields, **msgspec.structs.asdict(me), **changes}))
    return one


def test_an_instance_is_found_by_its_presence_with_its_secret_private(root: DataRoot) -> None:
    one = published(root, "b", started=2.0, backend="llama")
    published(root, "a", started=1.0)
    survey = reader.survey(root)
    assert [view.instance for view in survey.instances] == ["a", "b"]
    assert [view.dead for view in survey.instances] == [False, False]
    assert len(presence.read_token(survey.instances[1].token_file)) == 64
    assert stat.S_IMODE(one.token_file.stat().st_mode) == 0o600
    assert survey.owner is None
    assert survey.problem == ""


@pytest.mark.parametrize("damage", [b"garbage", b"", None])
def test_a_damaged_or_missing_record_or_token_is_not_intact(root: DataRoot, damage: bytes | None) -> None:
    one = published(root, "a")
    assert one.intact()
    for path in (root.instances / "a.json", one.token_file):
        whole = path.read_bytes()
        path.unlink() if damage is None else path.write_bytes(damage)
        assert not one.intact()
        assert one.token_intact() == (path != one.token_file)
        path.write_bytes(whole)
        assert one.intact()


def test_an_instance_that_ended_says_so_to_bridges_born_later(root: DataRoot) -> None:
    one = published(root, "a", backend="llama")
    one.withdraw("stop", 500.0)
    survey = reader.survey(root, wall=507.0)
    [view] = survey.instances
    assert (view.dead, view.ended_reason, view.ended_age_s, view.backend) == (True, "stop", 7.0, "llama")
    assert survey.living == []
    assert not one.token_file.exists()


def test_the_dead_are_swept_the_living_and_the_unproven_are_not(root: DataRoot) -> None:
    published(root, "alive")
    published(root, "dead", pid=2**22 + 1)
    published(root, "far", pid=2**22 + 1, host="elsewhere")
    me = identity.current()
    now = os.stat(root.instances / "dead.json").st_mtime
    assert [record.instance for record in presence.sweep(root, me, now + 1)] == ["dead"]
    assert (root.instances / "dead.json").exists()  # for bridges that ask what happened
    assert not (root.instances / "dead.token").exists()
    presence.sweep(root, me, now + presence.KEEP_SECONDS + 1)
    left = sorted(path.name for path in root.instances.iterdir())
    assert left == ["alive.json", "alive.token", "far.json", "far.token"]


def test_a_sign_of_life_moves_no_key_and_ends_with_its_instance(root: DataRoot) -> None:
    one = published(root, "a")
    one.pulse()
    pulse = presence.pulse_file(root, "a")
    os.utime(pulse, (0, 0))
    key = reader.change_key(root)
    one.pulse()
    assert pulse.stat().st_mtime > 0
    assert reader.change_key(root) == key  # nobody wakes for it
    one.withdraw("stop", 1.0)
    assert not pulse.exists()


def test_what_nobody_can_prove_dead_goes_a_day_after_its_last_sign_of_life(root: DataRoot) -> None:
    me = identity.current()
    for name in ("far", "mute"):
        published(root, name, host="elsewhere")
    presence.Presence(root, "far").pulse()
    now = presence.pulse_file(root, "far").stat().st_mtime
    presence.sweep(root, me, now + presence.KEEP_SILENT - 1)
    assert {record.instance for record in presence.list_records(root)} == {"far", "mute"}
    presence.sweep(root, me, now + presence.KEEP_SILENT + 1)
    assert {record.instance for record in presence.list_records(root)} == {"mute"}
    assert not presence.pulse_file(root, "far").exists()


def test_many_deaths_hide_no_living_instance(root: DataRoot) -> None:
    published(root, "living")
    for number in range(presence.MOST_RECORDS + 10):
        published(root, f"dead-{number}", pid=2**22 + 1)
    me = identity.current()
    presence.sweep(root, me, os.stat(root.instances / "dead-0.json").st_mtime + 1)
    survey = reader.survey(root)
    assert [view.instance for view in survey.living] == ["living"]
    assert len(survey.instances) == 1 + presence.KEEP_DEAD


def test_the_oldest_of_the_living_comes_first(root: DataRoot) -> None:
    me = identity.current()
    for name, started in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        published(root, name, started=started)
    published(root, "ghost", started=0.5, pid=2**22 + 1)
    assert presence.rank_of("a", root, me) == 0
    assert presence.rank_of("c", root, me) == 2
    assert presence.rank_of("c", root, me, without="a") == 1
    assert presence.rank_of("nobody", root, me) is None


def test_a_broken_presence_spoils_nothing(root: DataRoot) -> None:
    published(root, "a")
    (root.instances / "b.json").write_bytes(b"{")
    (root.instances / "c.json").mkdir()
    assert [view.instance for view in reader.survey(root).instances] == ["a"]


def test_the_change_key_changes_with_each_record_and_only_then(root: DataRoot) -> None:
    keys = [reader.change_key(root)]

    def changed() -> bool:
        keys.append(reader.change_key(root))
        return keys[-1] != keys[-2]

    assert not changed()
    one = published(root, "a")
    assert changed()
    owner = contender(root, "a")
    taken = take(owner, "a")
    assert changed()
    owner.folder.rewrite(msgspec.structs.replace(taken.record, sequence=2))
    assert changed()
    assert not changed()
    one.withdraw("stop", 1.0)
    assert changed()


def test_a_survey_of_nothing_is_nothing_and_creates_nothing(short_tmp: Path) -> None:
    survey = reader.survey(DataRoot(short_tmp / "none"))
    assert (survey.owner, survey.last, survey.instances, survey.problem) == (None, None, [], "")
    assert not (short_tmp / "none").exists()


def test_an_unreadable_record_is_an_owner_that_nobody_can_name(root: DataRoot) -> None:
    (root.owner / "4.lease").write_bytes(b"")
    survey = reader.survey(root)
    assert survey.owner is not None
    assert (survey.owner.standing, survey.owner.epoch, survey.owner.dead) == ("unreadable", 4, False)


def test_the_reader_costs_no_heavy_import() -> None:
    program = (
        "import sys; import shared.lease.reader as r\n"
        "heavy = {'asyncio', 'anyio', 'sqlite3', 'logging', 'psutil', 'ctypes', 'socket', 'subprocess'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=15)
    assert said.stdout.strip() == "[]"


def _run(*words: str) -> int:
    return subprocess.run(words, capture_output=True, check=False).returncode


def _has(program: str) -> bool:
    return _run("sh", "-c", f"command -v {program}") == 0
