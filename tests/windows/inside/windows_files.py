"""SQLite in WAL mode, and how processes start and die, as the daemon needs them on Windows."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from shared.lease.process.identity import same_process, start_token

assert sys.platform == "win32"

pytestmark = pytest.mark.integration

CHECKOUT = os.environ["MODELD_CHECKOUT"]


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    process: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process


WRITER = """
    import sqlite3, sys
    database = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
    for number in range(100):
        database.execute("BEGIN IMMEDIATE")
        value, = database.execute("SELECT value FROM counter").fetchone()
        database.execute("UPDATE counter SET value = ?", (value + 1,))
        database.execute("COMMIT")
    database.close()
"""

DIES_INSIDE = """
    import os, sqlite3, sys
    database = sqlite3.connect(sys.argv[1], isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    database.execute("UPDATE counter SET value = -1")
    os._exit(9)
"""


def test_wal_with_several_writers_a_reader_and_a_death_inside_a_transaction(short_tmp: Path) -> None:
    path = short_tmp / "local.db"
    database = sqlite3.connect(path, isolation_level=None)
    assert database.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
    database.execute("CREATE TABLE counter (value INTEGER)")
    database.execute("INSERT INTO counter VALUES (0)")
    writers = [python(WRITER, str(path)) for _ in range(3)]
    reader = sqlite3.connect(f"file:{path.as_posix()}?mode=ro", uri=True)
    seen = [reader.execute("SELECT value FROM counter").fetchone()[0] for _ in range(50)]
    assert seen == sorted(seen)
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    dead = python(DIES_INSIDE, str(path))
    dead.communicate(timeout=60)
    assert dead.returncode == 9
    assert database.execute("SELECT value FROM counter").fetchone() == (300,)
    database.execute("UPDATE counter SET value = 301")
    assert reader.execute("SELECT value FROM counter").fetchone() == (301,)
    reader.close()
    database.close()


def test_a_start_token_names_one_process() -> None:
    mine = start_token(os.getpid())
    assert mine is not None
    assert mine == start_token(os.getpid())
    assert same_process(os.getpid(), mine)
    child = python("import sys; sys.stdin.read()")
    theirs = start_token(child.pid)
    assert theirs is not None
    assert theirs != mine
    assert same_process(child.pid, theirs)
    assert not same_process(child.pid, mine)
    child.communicate(timeout=30)
    assert not same_process(child.pid, theirs)


def test_a_killed_process_is_seen_gone() -> None:
    child = python("import sys; sys.stdin.read()")
    token = start_token(child.pid)
    assert token is not None
    child.kill()
    child.wait(timeout=30)
    child.communicate()
    assert not same_process(child.pid, token)


STARTER = """
    import subprocess, sys
    daemon = subprocess.Popen(
        [sys.executable, "-c", sys.argv[1], sys.argv[2]],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        creationflags=subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP,
    )
    print(daemon.pid, flush=True)
"""

DAEMON = """
import os, sys, time
open(sys.argv[1] + ".up", "w").close()
while not os.path.exists(sys.argv[1] + ".stop"):
    time.sleep(0.05)
open(sys.argv[1] + ".down", "w").close()
"""


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)


def test_a_detached_daemon_outlives_its_starter(short_tmp: Path) -> None:
    mark = short_tmp / "daemon"
    starter = python(STARTER, DAEMON, str(mark))
    out, _ = starter.communicate(timeout=60)
    pid = int(out)
    wait_for(mark.with_suffix(".up"))
    token = start_token(pid)
    assert token is not None
    assert same_process(pid, token)
    mark.with_suffix(".stop").touch()
    wait_for(mark.with_suffix(".down"))
    deadline = time.monotonic() + 30
    while same_process(pid, token):
        assert time.monotonic() < deadline
        time.sleep(0.02)
