"""The log tells one line a turn, keeps its size, and is followed through all that happens to it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from modeld.cli.commands.logs import Follower
from modeld.log import logfile
from modeld.log.logfile import LogFile, last_lines
from modeld_process import Modeld, write_models, write_script
from shared.paths import DataRoot

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(60)]


async def test_a_turn_is_one_line_and_nothing_of_what_was_said(data_root: DataRoot) -> None:
    write_models(data_root, "a")
    script = write_script(data_root.path, [{"pieces": ["sesame ", "opens"]}])
    async with Modeld(data_root, "scripted", MODELD_TEMPLATE_DEADLINE="30", **script) as modeld:
        async with modeld.client("Ada's editor") as client:
            await client.turn("a", "the secret word").end()
        command = [sys.executable, "-P", "-m", "modeld", "logs", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    (turn,) = [line["fields"] for line in lines if line.get("event") == "turn"]
    assert (turn["client"], turn["model"], turn["finish"]) == ("Ada's editor", "a", "stop")
    assert turn["generated"] > 0
    assert turn["first_token_s"] >= 0
    everything = "".join(path.read_text() for path in data_root.logs.iterdir())
    assert "secret" not in everything
    assert "sesame" not in everything


def test_a_log_is_followed_through_its_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logfile, "ROTATE_BYTES", 2000)
    log = LogFile(tmp_path)
    log("before")
    follower = Follower(log.path)
    assert list(follower.new()) == []
    reported = []
    for number in range(200):
        log(f"line {number}")
        if number % 3 == 0:
            reported += list(follower.new())
    reported += list(follower.new())
    follower.close()
    log.close()
    assert [line.rpartition("] ")[2] for line in reported] == [f"line {number}" for number in range(200)]
    assert len(list(tmp_path.iterdir())) == logfile.KEPT + 1, "old ones go"
    assert last_lines(log.path, 1) == reported[-1:]


def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "modeld.log")
    assert list(follower.new()) == []
    log = LogFile(tmp_path)
    log("hello")
    log.close()
    assert [line.rpartition("] ")[2] for line in follower.new()] == ["hello"]
    with log.path.open("a") as half:
        half.write("half a li")
        half.flush()
        assert list(follower.new()) == []
        half.write("ne\n")
        half.flush()
        assert list(follower.new()) == ["half a line"]
    follower.close()


def test_the_command_follows_and_ends_with_its_reader(data_root: DataRoot) -> None:
    log = LogFile(data_root.logs)
    log("first")
    command = [sys.executable, "-P", "-m", "modeld", "logs", "-f", "-n", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "first" in process.stdout.readline()
        log("second")
        assert "second" in process.stdout.readline()
        process.terminate()
    log.close()
