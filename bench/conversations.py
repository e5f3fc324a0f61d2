"""Saved conversations as an editor opens them: a long list of them, and a long one, through a spawned bridge."""

from __future__ import annotations

import time

import anyio

from acp_bridge.conversations.events import Said, TextPart, TurnEnded, UserSaid
from acp_bridge.conversations.state import Conversation
from acp_bridge.conversations.store import Store
from bench.table import Table
from clients.bridge import Bridge
from clients.home import Home
from clients.schema import LateCheck

MANY = 1000
LONG_BYTES = 5 * 1024 * 1024
EXCHANGES = 400
ROUNDS = 15
LONG = "long"


def measure(table: Table) -> None:
    """Listing and loading. The bridge has its core; the database was written by another process."""
    with Home() as home:
        home.root.mkdir(mode=0o700)
        anyio.run(_fill, home)
        with home.bridge(check=LateCheck) as editor:
            editor.initialize()
            editor.new_session(home.work)
            table.at_most(f"session/list of {MANY} conversations", _lists(editor), 50, "ms", scale=1000)
            only = {"cwd": "/work/7"}
            table.at_most("the same of one folder", _lists(editor, **only), 50, "ms", scale=1000)
            pages = _every_page(editor)
            table.at_most(f"each of its {len(pages)} pages", pages, 50, "ms", scale=1000)
        loads = []
        for _ in range(5):
            with home.bridge(check=LateCheck) as editor:
                editor.initialize()
                loads.append(_load(editor, home))
        size = LONG_BYTES / 1024 / 1024
        table.at_most(f"session/load of {size:.0f} MiB in {2 * EXCHANGES} messages, replay included", loads, 1, "s")


async def _fill(home: Home) -> None:
    store = Store(home.root / "bridge.db", lambda pid, token: False)
    for number in range(MANY):
        name = f"{number:032x}"
        folder = f"/work/{number % 20}"
        store.save(Conversation(id=name, cwd=folder, title=f"Talk {number}", created=number, updated=number))
        for place in range(6):
            store.put(name, place, Said(message=f"m{place}", text="word " * 100))
    piece = "x" * (LONG_BYTES // EXCHANGES // 2)
    store.save(Conversation(id=LONG, cwd=str(home.work), title="Long", created=0.0, updated=0.0))
    for number in range(EXCHANGES):
        store.put(LONG, number * 3, UserSaid(message=f"t{number}", parts=[TextPart(text=piece)]))
        store.put(LONG, number * 3 + 1, Said(message=f"t{number}-1", text=piece))
        store.put(LONG, number * 3 + 2, TurnEnded(stop="end_turn"))
    await store.flush()
    store.close()


def _timed(editor: Bridge, method: str, params: dict[str, object]) -> tuple[float, dict[str, object]]:
    started = time.perf_counter()
    answer = editor.request(method, params)
    return time.perf_counter() - started, answer


def _lists(editor: Bridge, **params: object) -> list[float]:
    return [_timed(editor, "session/list", params)[0] for _ in range(ROUNDS)]


def _every_page(editor: Bridge) -> list[float]:
    seconds: list[float] = []
    params: dict[str, object] = {}
    while True:
        took, answer = _timed(editor, "session/list", params)
        seconds.append(took)
        if "nextCursor" not in answer:
            return seconds
        params = {"cursor": answer["nextCursor"]}


def _load(editor: Bridge, home: Home) -> float:
    took, _ = _timed(editor, "session/load", {"sessionId": LONG, "cwd": str(home.work), "mcpServers": []})
    shown = sum(len(params["update"].get("content", {}).get("text", "")) for params in editor.updates)
    assert shown > LONG_BYTES * 0.99, "everything was shown before the answer"
    return took
