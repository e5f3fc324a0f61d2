"""`acp-bridge export`: a saved conversation as Markdown, and the list of them. Needs no modeld and no editor."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import anyio
import msgspec

from acp_bridge.conversations.database import Listed
from acp_bridge.conversations.export import markdown
from acp_bridge.conversations.state import Conversation
from acp_bridge.conversations.store import Store
from shared.errors import ConversationNotFound
from shared.lease.process import identity
from shared.paths import data_root
from shared.text.console import draw
from shared.text.shown import one_line, readable
from shared.text.words import as_text


def export(options: argparse.Namespace) -> int:
    """Print or write one conversation, or list them; gives the exit code of `acp_bridge.cli.app`."""
    path = data_root().bridge_database
    if not path.exists():
        raise _not_found("", "no conversation is saved in this data root yet")
    store = Store(path, identity.same_process)
    cwd = None if options.all else as_text(os.path.abspath(options.cwd or os.curdir))
    try:
        return anyio.run(_export, store, cwd, options)
    finally:
        store.close()


async def _export(store: Store, cwd: str | None, options: argparse.Namespace) -> int:
    if options.list:
        return _show_list(await _every(store, cwd), as_json=options.json)
    wanted = options.conversation
    if not wanted:
        newest = await store.list(cwd, None, set())
        if not newest:
            raise _not_found("", f"no conversation in {cwd}; `acp-bridge export --list --all` shows every one")
        wanted = newest[0].id
    conversation = await _found(store, wanted)
    if conversation is None:
        raise _not_found(wanted, f"no conversation {wanted}; `acp-bridge export --list --all` shows every one")
    text = msgspec.json.encode(conversation).decode() + "\n" if options.json else markdown(conversation)
    if options.output:
        _write(Path(options.output), text)
    elif options.json:
        sys.stdout.write(text)
    else:
        draw(readable(text))
    return 0


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="")


async def _found(store: Store, wanted: str) -> Conversation | None:
    """By its id, or by a beginning of it that only one has."""
    exact = await store.load(wanted)
    if exact is not None:
        return exact
    near = [row.id for row in await _every(store, None) if row.id.startswith(wanted)]
    return await store.load(near[0]) if len(near) == 1 else None


async def _every(store: Store, cwd: str | None) -> list[Listed]:
    rows: list[Listed] = []
    after: tuple[float, str] | None = None
    while page := await store.list(cwd, after, set()):
        rows += page
        after = (page[-1].updated, page[-1].id)
    return rows


def _show_list(rows: list[Listed], *, as_json: bool) -> int:
    if as_json:
        sys.stdout.write(msgspec.json.encode(rows).decode() + "\n")
        return 0
    for row in rows:
        day = datetime.fromtimestamp(row.updated, UTC)
        line = f"{row.id[:8]}  {day:%Y-%m-%d %H:%M}  {row.title or '(no title)'}  {row.cwd}"
        sys.stdout.write(f"{one_line(line)}\n")
    return 0


def _not_found(name: str, reason: str) -> ConversationNotFound:
    return ConversationNotFound(name=name, reason=reason)
