"""Commands whose output goes nowhere, or whose streams are closed: one line or none, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared import codes

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="closed descriptors and /dev/full are POSIX")
COMMANDS = [("modeld", "library"), ("modeld", "library", "--json"), ("modeld", "--help"), ("acp_bridge", "models")]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**kept, "MODELD_DATA_ROOT": str(tmp_path / "root"), "HOME": str(tmp_path)}


def argv(command: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", *command]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_reader_that_has_gone_ends_a_command_without_a_word(
    command: tuple[str, ...], environ: dict[str, str]
) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            argv(command), env=environ, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=50
        )
    finally:
        os.close(write)

    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_full_disk_under_the_output_is_reported_in_one_line(
    command: tuple[str, ...], environ: dict[str, str]
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            argv(command), env=environ, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=50
        )

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


@POSIX
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_the_daemon_bears_closed_streams_too(closed: str, environ: dict[str, str]) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *argv(("modeld", "serve", "--help"))],
        env=environ, capture_output=True, text=True, check=False, timeout=50,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")


@POSIX
@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_closed_streams_are_nowhere(command: tuple[str, ...], closed: str, environ: dict[str, str]) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *argv(command)],
        env=environ, capture_output=True, text=True, check=False, timeout=50,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")


def test_a_character_that_the_terminal_cannot_show_is_no_error(environ: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "日本 é"
    folder.mkdir()
    done = subprocess.run(
        argv(("modeld", "library", "add", str(folder))),
        env={**environ, "PYTHONIOENCODING": "ascii:strict", "XDG_CONFIG_HOME": str(tmp_path / "config")},
        capture_output=True, text=True, check=False, timeout=50,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert "?? ? is now among the model folders" in done.stdout


def test_a_prompt_that_is_no_text_is_no_error(environ: dict[str, str]) -> None:
    done = subprocess.run(
        argv(("acp_bridge", "chat", "-")), input=b"\xff\xfe hello",
        env={**environ, "PYTHONIOENCODING": "utf-8:strict"}, capture_output=True, check=False, timeout=50,
    )  # fmt: skip

    assert done.returncode == codes.NOT_RUNNING
    assert done.stderr.decode().count("\n") == 1
    assert b"modeld start" in done.stderr


@POSIX
@pytest.mark.parametrize("module", ["modeld.cli.app", "acp_bridge.cli.app"])
def test_a_ctrl_c_while_a_command_is_being_imported_leaves_no_trace(module: str, environ: dict[str, str]) -> None:
    package = module.partition(".")[0]
    code = f"""
import sys, runpy
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
sys.argv = [{package!r}, "library"]
runpy.run_module({package!r}, run_name="__main__", alter_sys=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False, timeout=50
    )

    assert (done.returncode, done.stderr) == (130, "")
