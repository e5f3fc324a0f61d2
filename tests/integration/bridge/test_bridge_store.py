"""Conversations on disk: order, growth, pages, claims, damage, and a database of another version."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from acp_bridge.conversations import database
from acp_bridge.conversations.database import PAGE, STEPS
from acp_bridge.conversations.events import Card, Said, TextPart, TurnEnded, UserSaid
from acp_bridge.conversations.recorder import Recorder
from acp_bridge.conversations.state import Conversation
from acp_bridge.conversations.store import CLAIM_TTL, DAY_S, EMPTY_KEPT_S, Claimant, Store
from bridge_fakes import bound_pages
from counts import scaled
from manual_clock import ManualClock
from shared.errors import ConversationBusy, DiskFull, RootUnusable

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

ME = Claimant(pid=1, token="a", holder="Zed")
OTHER = Claimant(pid=2, token="b", holder="Cursor")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = Store(tmp_path / "bridge.db", lambda pid, token: True)
    yield made
    made.close()


def said(conversation: str, store: Store, *texts: str) -> Conversation:
    made = Conversation(id=conversation, cwd="/w", created=1.0, updated=1.0)
    store.save(made)
    for place, text in enumerate(texts):
        store.put(conversation, place, Said(message="m", text=text))
    return made


def aged(store: Store, conversation: str, updated: float) -> None:
    store.save(Conversation(id=conversation, cwd="/w", created=updated, updated=updated))
    store.put(conversation, 0, Said(message="m", text="hi"))


async def test_events_come_back_in_order(store: Store) -> None:
    clock = ManualClock()
    recorder = Recorder(Conversation(id="c", cwd="/w"), store, clock)
    recorder.touch()
    recorder.add(UserSaid(message="u", parts=[TextPart(text="hi")]))
    recorder.add(Card(card="k", title="Read", status="pending"))
    recorder.grow("said", "a", "one ")
    recorder.flush()
    recorder.grow("said", "a", "two")
    recorder.add(Card(card="k", title="Read", status="completed"))
    recorder.grow("thought", "a", "hm")
    recorder.add(TurnEnded(stop="end_turn"))
    loaded = await store.load("c")
    assert loaded is not None
    assert loaded.events == recorder.conversation.events
    assert [type(event).__name__ for event in loaded.events] == ["UserSaid", "Card", "Said", "Thought", "TurnEnded"]
    assert loaded.events[1].status == "completed"  # type: ignore[union-attr]
    assert loaded.events[2].text == "one two"  # type: ignore[union-attr]


async def test_text_that_grows_is_saved_by_flush(store: Store, tmp_path: Path) -> None:
    recorder = Recorder(Conversation(id="c", cwd="/w"), store, ManualClock())
    recorder.touch()
    recorder.grow("said", "a", "half")
    recorder.flush()
    await store.flush()
    other = Store(tmp_path / "bridge.db", lambda pid, token: True)
    loaded = await other.load("c")
    other.close()
    assert loaded is not None
    assert loaded.events == [Said(message="a", text="half")]


async def test_many_conversations_and_a_long_one(store: Store) -> None:
    for number in range(scaled(1000)):
        said(f"c{number:04}", store, "hi")
    big = "x" * 1000
    said("long", store, *[big] * scaled(5000))
    pages, after = 0, None
    seen: list[str] = []
    while page := await store.list(None, after, set()):
        seen += [row.id for row in page]
        after = (page[-1].updated, page[-1].id)
        pages += 1
    assert len(seen) == len(set(seen)) == scaled(1000) + 1
    assert pages == -(-len(seen) // PAGE)
    loaded = await store.load("long")
    assert loaded is not None
    assert len(loaded.events) == scaled(5000)


async def test_the_first_page_costs_the_same_however_many_there_are(tmp_path: Path) -> None:
    def steps_of(count: int) -> int:
        db = database.connect(tmp_path / f"{count}.db")
        for number in range(count):
            row = database.row_of(Conversation(id=f"{number:04}", cwd="/w", created=number, updated=number))
            database.upsert(db, row)
            db.execute(
                "insert into events values(?, 0, ?)", (f"{number:04}", database.encoded(Said(message="m", text="hi")))
            )
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += 1
            return 0

        db.set_progress_handler(step, 1)
        assert len(database.page(db, None, None, set())) == PAGE
        db.close()
        return steps

    assert steps_of(scaled(10_000)) < steps_of(2 * PAGE) * 1.2


async def test_one_damaged_event_does_not_spoil_the_rest(store: Store, tmp_path: Path) -> None:
    said("c", store, "one", "two", "three")
    await store.flush()
    with sqlite3.connect(tmp_path / "bridge.db") as db:
        db.execute("update events set body = x'7b' where place = 1")
    db.close()
    loaded = await store.load("c")
    assert loaded is not None
    assert [event.text for event in loaded.events] == ["one", "three"]  # type: ignore[union-attr]


async def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "bridge.db"
    path.write_bytes(b"this is no database at all" * 100)
    store = Store(path, lambda pid, token: True)
    said("c", store, "hi")
    await store.flush()
    assert await store.load("c") is not None
    assert store.damaged
    assert (tmp_path / "bridge.damaged").exists()
    store.close()


async def test_a_newer_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "bridge.db"
    with sqlite3.connect(path) as db:
        db.execute("pragma user_version = 99")
    db.close()
    store = Store(path, lambda pid, token: True)
    with pytest.raises(RootUnusable, match="newer"):
        await store.load("c")
    store.close()


async def test_a_root_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "bridge.db", lambda pid, token: True)
    with pytest.raises(RootUnusable) as refused:
        await store.load("c")
    assert "bridge.db" in refused.value.path
    store.close()


async def test_empty_conversations_are_forgotten_after_a_day(store: Store) -> None:
    said("empty", store)
    said("full", store, "hi")
    store.sweep(EMPTY_KEPT_S + 2, set())
    assert await store.load("empty") is None
    assert await store.load("full") is not None


async def test_old_conversations_are_forgotten_only_when_that_was_asked_for(store: Store) -> None:
    for number in range(4):
        aged(store, f"c{number}", updated=number * DAY_S)
    now = 4 * DAY_S
    store.sweep(now, set())
    assert len(await store.list(None, None, set())) == 4, "nothing is lost by default"
    store.sweep(now, set(), days=2.5)
    assert [row.id for row in await store.list(None, None, set())] == ["c3", "c2"]
    store.sweep(now, set(), count=1)
    assert [row.id for row in await store.list(None, None, set())] == ["c3"]


async def test_retention_never_takes_an_open_or_claimed_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "bridge.db", lambda pid, token: pid != 3)
    dead = Claimant(pid=3, token="c", holder="Emacs")
    for number, holder in enumerate([None, ME, OTHER, dead]):
        aged(store, f"c{number}", updated=0.0)
        if holder is not None:
            await store.claim(f"c{number}", holder, 10 * DAY_S)
    aged(store, "open", updated=0.0)
    said("empty", store)
    await store.claim("empty", OTHER, 10 * DAY_S)
    store.sweep(10 * DAY_S, {"open"}, days=1, count=1)
    left = {row.id for row in await store.list(None, None, {"empty"})}
    assert left == {"c1", "c2", "open", "empty"}, "what lives in a process stays, what a dead one held goes"
    await store.flush()
    with sqlite3.connect(tmp_path / "bridge.db") as db:
        assert {row[0] for row in db.execute("select conversation from claims")} == {"c1", "c2", "empty"}
        assert {row[0] for row in db.execute("select conversation from events")} == {"c1", "c2", "open"}
    db.close()
    store.close()


async def test_an_older_database_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "bridge.db"
    with sqlite3.connect(path) as db:
        db.executescript(f"{STEPS[0]} pragma user_version = 1;")
        db.execute("insert into conversations values('c', '/w', '[]', 'T', 'alpha', 'code', '', 0, 1.0, 2.0)")
        db.execute("insert into events values('c', 0, ?)", (b'{"event":"said","message":"m","text":"kept"}',))
    db.close()
    stores = [Store(path, lambda pid, token: True) for _ in range(2)]
    for store in stores:
        store.start()  # two bridges of the new version start at once
    for store in stores:
        loaded = await store.load("c")
        assert loaded is not None
        assert (loaded.title, loaded.tools, loaded.events) == ("T", "", [Said(message="m", text="kept")])
        store.close()


async def test_a_failed_migration_leaves_the_older_tables_whole(tmp_path: Path) -> None:
    path = tmp_path / "bridge.db"
    with sqlite3.connect(path) as db:
        db.executescript(f"{STEPS[0]} pragma user_version = 1; alter table conversations add column tools text;")
    db.close()
    store = Store(path, lambda pid, token: True)
    with pytest.raises(RootUnusable):
        await store.load("c")
    store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("pragma user_version").fetchone() == (1,)
    db.close()


async def test_the_list_shows_empty_ones_only_while_open(store: Store) -> None:
    said("empty", store)
    assert await store.list(None, None, set()) == []
    assert [row.id for row in await store.list(None, None, {"empty"})] == ["empty"]


# --- claims ------------------------------------------------------------------------------------


async def test_a_claim_keeps_others_out_until_it_is_given_up(store: Store) -> None:
    said("c", store, "hi")
    await store.claim("c", ME, 100.0)
    await store.claim("c", ME, 101.0)
    with pytest.raises(ConversationBusy) as busy:
        await store.claim("c", OTHER, 102.0)
    assert busy.value.opened_in == "Zed"
    store.release("c", ME)
    await store.claim("c", OTHER, 103.0)
    assert not await store.holds("c", ME)


async def test_a_dead_process_holds_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "bridge.db", lambda pid, token: pid != 1)
    await store.claim("c", ME, 100.0)
    await store.claim("c", OTHER, 101.0)
    assert await store.holds("c", OTHER)
    assert not await store.holds("c", ME)
    store.close()


@pytest.mark.parametrize("now", [100.0 + CLAIM_TTL + 1, 50.0])
async def test_a_claim_that_cannot_be_seen_ends_with_its_time(store: Store, now: float) -> None:
    await store.claim("c", ME, 100.0)
    with pytest.raises(ConversationBusy):
        await store.claim("c", OTHER, 101.0)
    await store.claim("c", OTHER, now)
    assert await store.holds("c", OTHER)
    assert not await store.holds("c", ME)


async def test_a_take_over_is_a_word_away(store: Store) -> None:
    await store.claim("c", ME, 100.0)
    await store.claim("c", OTHER, 101.0, take_over=True)
    with pytest.raises(ConversationBusy):
        await store.claim("c", ME, 102.0)


async def test_a_job_that_fails_in_an_unknown_way_stops_nobody(store: Store) -> None:
    with pytest.raises(RootUnusable):
        await store.list("caf\udce9", None, set())
    store.remember("caf\udce9", "m", 0.0)
    with pytest.raises(RootUnusable):
        await store.flush()
    assert await store.list(None, None, set()) == []


def test_whether_anything_could_be_saved_is_reported_by_the_rights(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(short_tmp / "data" / "bridge.db", lambda pid, token: False)
    assert store.writable(), "nothing is there yet, and it could be made"
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != short_tmp)
    assert not store.writable()
    store.close()


async def test_what_found_no_room_is_written_once_there_is_some(store: Store) -> None:
    said("c", store, "question")
    said("deleted", store)
    await store.flush()
    await bound_pages(store, 0)
    store.put("c", 1, Said(message="m", text="long " * 5000))
    store.put("deleted", 0, Said(message="m", text="long " * 5000))
    with pytest.raises(DiskFull):
        await store.flush()
    await store.delete("deleted")
    await bound_pages(store, 1000)
    store.put("c", 2, Said(message="m", text="next"))
    await store.flush()
    loaded = await store.load("c")
    assert loaded is not None
    assert [event.text[:8] for event in loaded.events if isinstance(event, Said)] == ["question", "long lon", "next"]
