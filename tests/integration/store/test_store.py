"""The coordination store on a real file: guarded writes, read-only followers, damage, and what outlives an owner."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from manual_clock import ManualClock
from modeld.store import database, schema, tables
from modeld.store.database import Corrupt, StoreUnknown
from modeld.store.store import Store
from shared.errors import ModelInUse, NotOwner, RootUnusable
from shared.paths import DataRoot

pytestmark = [pytest.mark.integration, pytest.mark.anyio]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def root(short_tmp: Path) -> DataRoot:
    return DataRoot(short_tmp)


@pytest.fixture
def store(root: DataRoot, clock: ManualClock) -> Iterator[Store]:
    made = Store(root, clock)
    made.take_over("first", 1)
    yield made
    made.let_go()


async def test_without_a_file_nothing_is_known_and_nothing_is_written(root: DataRoot) -> None:
    store = Store(root)
    assert store.stored_epoch() == 0
    assert await store.backends() == {}
    with pytest.raises(NotOwner):
        await store.register_backend("x", {}, by="t")
    assert not root.database.exists()


async def test_a_successor_finds_backends_claims_footprints_and_the_generation(
    root: DataRoot, store: Store, clock: ManualClock
) -> None:
    await store.register_backend("vllm", {"url": "http://h"}, by="cli")
    await store.claim_workspace("/projects/a", "Zed", ttl=60)
    await store.put_footprint("id", "llama 1", "cpu", 123)
    await store.set_hint(tables.HINT_MODEL, "smol")
    await store.raise_generation(7)
    await store.raise_generation(3)
    turn = await store.begin_turn("Zed", "smol", "c1")
    done = await store.begin_turn("Zed", "smol", "c2")
    await store.end_turn(done, "stop")
    await store.open_session("first/7/1", 7, "Zed", "smol")
    store.let_go()
    clock.advance(10)

    successor = Store(root, clock)
    assert successor.stored_epoch() == 1
    successor.take_over("second", 2)
    found = successor.recovered
    assert found is not None
    assert (found.generation, found.abandoned, found.hint_model) == (7, 1, "smol")
    assert found.backends == {"vllm": {"url": "http://h"}}
    assert found.notice == ""
    [abandoned] = await successor.turns("abandoned")
    assert (abandoned.id, abandoned.outcome, abandoned.conversation) == (turn, "owner_lost", "c1")
    assert await successor.abandoned_turns() == 1
    claim = await successor.workspace_lease("/projects/a")
    assert claim is not None
    assert (claim.holder, claim.remaining_s) == ("Zed", 50)
    footprint = await successor.footprint("id", "llama 2", "cpu")
    assert footprint is not None
    assert (footprint.bytes, footprint.exact) == (123, False)
    assert await successor.read(lambda db: db.execute("SELECT count(*) FROM sessions").fetchone()[0], -1) == 0
    successor.let_go()


async def test_an_owner_that_was_taken_over_cannot_write_a_row(root: DataRoot, store: Store) -> None:
    successor = Store(root)
    successor.take_over("second", 2)
    with pytest.raises(NotOwner):
        await store.register_backend("late", {}, by="old owner")
    with pytest.raises(NotOwner):
        await store.begin_turn("c", "m")
    assert await successor.backends() == {}
    with pytest.raises(NotOwner):
        Store(root).take_over("third", 2)
    with pytest.raises(NotOwner):
        Store(root).take_over("first", 1)
    successor.let_go()


async def test_the_guard_stands_in_the_same_transaction_as_the_write(root: DataRoot, store: Store) -> None:
    """Between the guard and the commit nobody else can become the owner."""

    def usurp(connection: sqlite3.Connection, instance: str, epoch: int) -> str:
        other = sqlite3.connect(root.database, timeout=0.05, isolation_level=None)
        try:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("UPDATE owner SET epoch = 99")
        finally:
            other.close()
        return instance

    assert await store.write(usurp) == "first"


async def test_a_failing_write_leaves_nothing_behind(store: Store) -> None:
    def half(connection: sqlite3.Connection, instance: str, epoch: int) -> None:
        tables.register_backend(connection, "half", {}, "t", 0.0)
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        await store.write(half)
    assert await store.backends() == {}
    await store.register_backend("whole", {}, by="t")
    assert list(await store.backends()) == ["whole"]


async def test_a_workspace_is_claimed_by_one_client_until_its_ttl(store: Store, clock: ManualClock) -> None:
    await store.claim_workspace("/w", "Zed", ttl=30)
    with pytest.raises(ModelInUse) as refused:
        await store.claim_workspace("/w", "Code", ttl=30)
    assert refused.value.holder == "Zed"
    assert "30 s" in refused.value.message
    clock.advance(20)
    await store.claim_workspace("/w", "Zed", ttl=30)
    clock.advance(29)
    assert not await store.release_workspace("/w", "Code")
    clock.advance(1)
    assert (await store.claim_workspace("/w", "Code", ttl=30)).holder == "Code"
    clock.jump_wall(-3600)  # a clock that was set back does not keep the claim for an hour
    assert (await store.claim_workspace("/w", "Zed", ttl=30)).holder == "Zed"
    assert await store.release_workspace("/w", "Zed")
    assert await store.workspace_lease("/w") is None


async def test_the_audit_says_who_did_what_and_does_not_grow_for_ever(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "KEEP_AUDIT", 3)
    monkeypatch.setattr(tables, "KEEP_TURNS", 3)
    for number in range(6):
        await store.add_audit("switch", "Zed", number=number)
        await store.end_turn(await store.begin_turn("c", "m"), "stop")
    rows = await store.audit()
    assert [row.detail for row in rows] == [{"number": 5}, {"number": 4}, {"number": 3}]
    assert rows[0].who == "Zed"
    assert len(await store.turns()) <= 4


@pytest.mark.parametrize("damage", [b"this is no database at all, not even nearly" * 100, b"\0" * 8192])
async def test_a_corrupt_file_is_set_aside_and_recreated(root: DataRoot, damage: bytes) -> None:
    root.database.write_bytes(damage)
    if damage[0]:
        with pytest.raises(Corrupt):
            await Store(root).backends()  # damaged is not empty
    assert Store(root).stored_epoch() == 0
    store = Store(root)
    store.take_over("second", 9)
    assert store.recovered is not None
    if damage[0]:
        assert "local.db.damaged-1" in store.recovered.notice
        assert (root.path / "local.db.damaged-1").read_bytes() == damage
    await store.register_backend("x", {}, by="t")
    assert store.stored_epoch() == 9
    store.let_go()


async def test_a_file_damaged_in_its_middle_is_found(root: DataRoot, store: Store) -> None:
    for number in range(200):
        await store.register_backend(f"backend-{number}", {"filler": "x" * 200}, by="t")
    store.let_go()
    checkpoint = sqlite3.connect(root.database)
    checkpoint.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    checkpoint.close()
    with root.database.open("r+b") as file:
        for page in range(2, 12):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
    successor = Store(root)
    successor.take_over("second", 2)
    assert successor.recovered is not None
    assert "damaged" in successor.recovered.notice
    assert await successor.backends() == {}
    successor.let_go()


async def test_a_file_that_cannot_be_read_is_unknown_and_not_empty(root: DataRoot, store: Store) -> None:
    await store.register_backend("x", {}, by="t")
    store.let_go()
    program = (
        "import os, sqlite3, sys\n"  # before the interpreter's folder is out of reach
        "from pathlib import Path\n"
        "from modeld.store.store import Store\n"
        "from modeld.store.database import StoreUnknown\n"
        "from shared.paths import DataRoot\n"
        "os.setuid(65534)\n"
        "store = Store(DataRoot(Path(sys.argv[1])))\n"
        "try:\n    print('read', store.stored_epoch())\n"
        "except StoreUnknown as error:\n    print('unknown', error.uid, error.mode)\n"
    )
    if os.geteuid() != 0:
        pytest.skip("NOT PROVEN HERE: becoming another user needs root")
    root.path.chmod(0o755)
    said = subprocess.run(
        [sys.executable, "-c", program, str(root.path)], capture_output=True, text=True, check=True, timeout=15
    ).stdout
    assert said.split() == ["unknown", "0", "0600"]


async def test_a_database_of_a_newer_version_is_refused_and_left_alone(root: DataRoot, store: Store) -> None:
    store.let_go()
    newer = sqlite3.connect(root.database)
    newer.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    newer.close()
    with pytest.raises(RootUnusable, match="newer modeld"):
        Store(root).take_over("second", 2)
    assert not list(root.path.glob("*damaged*"))
    assert Store(root).stored_epoch() == 1


async def test_a_migration_that_fails_in_its_middle_leaves_the_old_version(
    root: DataRoot, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.register_backend("x", {}, by="t")
    store.let_go()
    broken = "CREATE TABLE extra (id INTEGER) STRICT; INSERT INTO no_such_table VALUES (1);"
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    with pytest.raises(RootUnusable):
        Store(root).take_over("second", 2)
    monkeypatch.undo()
    again = Store(root)
    again.take_over("second", 2)
    assert list(await again.backends()) == ["x"]
    again.let_go()


async def test_the_files_are_private(root: DataRoot, store: Store) -> None:
    await store.register_backend("x", {}, by="t")
    for path in root.path.glob("local.db*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_reader_does_not_hold_up_the_owner(root: DataRoot, store: Store) -> None:
    reader = database.open_reader(root.database)
    assert reader is not None
    reader.execute("BEGIN")
    assert tables.backends(reader) == {}
    await store.register_backend("x", {}, by="t")
    assert tables.backends(reader) == {}  # its own snapshot
    reader.execute("COMMIT")
    assert list(tables.backends(reader)) == ["x"]
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM backends")
    reader.close()


async def test_the_tables_are_strict(store: Store) -> None:
    def lie(connection: sqlite3.Connection, instance: str, epoch: int) -> None:
        connection.execute("UPDATE slot SET generation = 'many'")

    with pytest.raises(RootUnusable):
        await store.write(lie)
    assert await store.generation() == 0


def test_starting_needs_no_sqlite() -> None:
    program = "import sys, modeld.store.store, modeld.owner.ownership; print('sqlite3' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=15)
    assert said.stdout.strip() == "False"


def test_unknown_is_an_error_of_the_root() -> None:
    assert issubclass(StoreUnknown, RootUnusable)
