"""`modeld library add` and `remove`: folders in the config file, each looked at once, nothing else changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from model_stores import OllamaStore, put
from shared.paths import DataRoot, config_file
from shared.settings import load_settings

pytestmark = pytest.mark.integration


def library(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "modeld", "library", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_folder_is_added_with_a_word_on_what_is_in_it_and_taken_out(data_root: DataRoot, short_tmp: Path) -> None:
    config_file().parent.mkdir(parents=True, exist_ok=True)
    config_file().write_text("# mine\nthreads = 3\n")
    put(short_tmp / "full" / "deep" / "one.gguf")
    OllamaStore(short_tmp / "ollama").tag("library/m/1b", [("model", b"GGUF")])
    (short_tmp / "empty").mkdir()
    for name, words in (("full", "1 file in it"), ("ollama", "1 file in it"), ("empty", "holds no GGUF file")):
        done = library("add", str(short_tmp / name))
        assert (done.returncode, words in done.stdout) == (0, True), done
    assert len(load_settings({}, config_file()).model_folders) == 3
    removed = library("remove", str(short_tmp / "empty"))
    assert (removed.returncode, "no longer among" in removed.stdout) == (0, True), removed
    settings = load_settings({}, config_file())
    assert (settings.model_folders, settings.threads) == ((str(short_tmp / "full"), str(short_tmp / "ollama")), 3)
    assert "# mine" in config_file().read_text()
    again = library("remove", str(short_tmp / "empty"))
    assert (again.returncode, str(short_tmp / "full") in again.stderr) == (2, True), again
    assert (short_tmp / "empty").is_dir()


def test_an_address_is_no_folder(data_root: DataRoot) -> None:
    done = library("add", "https://me:secret@host/models")
    assert (done.returncode, "is an address, not a folder" in done.stderr, "secret" in done.stderr) == (2, True, False)
