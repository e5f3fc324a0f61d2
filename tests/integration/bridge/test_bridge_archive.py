"""`acp-bridge export` as a person runs it, beside a bridge or without one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.conversations.events import Said, TextPart, UserSaid
from acp_bridge.conversations.state import Conversation
from acp_bridge.conversations.store import Store
from clients.bridge import private_environment
from shared import codes

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


class Archive:
    """A data root with three conversations, two of them in the folder `work`."""

    def __init__(self, folder: Path) -> None:
        self.environ = private_environment(folder)
        self.work = folder / "work"
        self.work.mkdir()
        (folder / "data").mkdir(mode=0o700)
        self.database = folder / "data" / "bridge.db"

    async def fill(self) -> None:
        store = Store(self.database, lambda pid, token: True)
        for number, cwd in enumerate([str(self.work), str(self.work), "/elsewhere"]):
            name = f"{number}" * 32
            store.save(Conversation(id=name, cwd=cwd, title=f"Talk {number}", created=number, updated=number))
            store.put(name, 0, UserSaid(message="t", parts=[TextPart(text=f"question {number}")]))
            store.put(name, 1, Said(message="t", text=f"answer {number}"))
        await store.flush()
        store.close()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "acp_bridge", "export", *arguments]
        return subprocess.run(
            command, env=self.environ, cwd=self.work, capture_output=True, text=True, timeout=20, check=False
        )


@pytest.fixture
async def archive(short_tmp: Path) -> Archive:
    made = Archive(short_tmp)
    await made.fill()
    return made


async def test_the_newest_of_this_folder(archive: Archive) -> None:
    done = archive.run()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# Talk 1\n")
    assert "answer 1" in done.stdout


async def test_one_by_the_beginning_of_its_id_into_a_file(archive: Archive, tmp_path: Path) -> None:
    done = archive.run("22", "-o", str(tmp_path / "talk.md"))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "answer 2" in (tmp_path / "talk.md").read_text()


async def test_lists(archive: Archive) -> None:
    here = archive.run("--list").stdout.splitlines()
    assert [line.split()[0] for line in here] == ["11111111", "00000000"]
    every: list[dict[str, Any]] = json.loads(archive.run("--list", "--all", "--json").stdout)
    assert [row["title"] for row in every] == ["Talk 2", "Talk 1", "Talk 0"]
    events = json.loads(archive.run("0000", "--json").stdout)["events"]
    assert [event["event"] for event in events] == ["user", "said"]


async def test_what_is_not_there_is_said(archive: Archive, short_tmp: Path) -> None:
    assert "no conversation 77" in archive.run("77").stderr
    assert "--list --all" in archive.run("--cwd", "/nowhere").stderr
    archive.database.unlink()
    done = archive.run()
    assert done.returncode == codes.NOT_FOUND
    assert "no conversation is saved" in done.stderr
    assert not archive.database.exists(), "looking makes nothing"
