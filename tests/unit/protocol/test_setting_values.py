"""What is wrong with a setting, in words that its writer understands; one bad entry costs itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.settings import Settings, load_settings, read_settings

pytestmark = pytest.mark.unit
DEFAULTS = Settings()


def problems(text: str | bytes, folder: Path, **environ: str) -> list[str]:
    file = folder / "config.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [problem.message for problem in read_settings(environ, file)[1]]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("idel_ttl = 3", "there is no such setting; did you mean idle_ttl?"),
        ("zzzz = 3", "there is no such setting"),
        ("idle_ttl = 'soon'", "it must be a number of seconds"),
        ("queue_limit = 1.5", "it must be a whole number"),
        ("queue_limit = true", "it must be a whole number"),
        ("queue_limit = 0", "it must be at least 1"),
        ("speculation = 'maybe'", "it must be true or false"),
        ("parked_disk_bytes = 'much'", 'it must be a whole number of bytes, or a size such as "10 GiB"'),
        ("backend = 'lama'", "did you mean llama?"),
        ("model_folders = 3", "it must be a list of texts"),
        ("[modeld]\nidle_ttl = 3", "[modeld]"),
        ("[idle_ttl]\nx = 3", "write `idle_ttl = ...` above the first table"),
        ("a b", "line 1, column 3: "),
        (b"\xff\xfe", "it is not valid UTF-8 (byte 0)"),
    ],
)
def test_a_mistake_is_told_in_words_that_say_what_to_write(text: str | bytes, part: str, tmp_path: Path) -> None:
    (message,) = problems(text, tmp_path)
    assert part in message
    assert str(tmp_path / "config.toml") in message
    for jargon in ("Expected", "`int`", "codec", "Errno", "setting *"):
        assert jargon not in message


def test_a_folder_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    assert [one.message for one in read_settings({}, tmp_path)[1]] == [f"{tmp_path}: is a directory"]


def test_one_bad_entry_costs_itself(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("idel_ttl = 3\nqueue_limit = 7\nthreads = 'x'\n[providers.lab]\nbase_url = 'http://x'\n")
    settings, wrong = read_settings({"MODELD_LEASE_TTL": "soon", "MODELD_GAP_WAIT": "9"}, file)
    assert (settings.queue_limit, settings.gap_wait) == (7, 9.0)
    assert (settings.threads, settings.lease_ttl) == (DEFAULTS.threads, DEFAULTS.lease_ttl)
    assert [problem.name for problem in wrong] == ["idel_ttl", "threads", "lease_ttl"]


def test_sizes_are_written_as_people_write_them(tmp_path: Path) -> None:
    for written, size in (
        ("10 GiB", 10 << 30),
        ("64MiB", 64 << 20),
        ("1.5 GB", 1_500_000_000),
        ("12", 12),
        ("3k", 3000),
    ):
        assert load_settings({"MODELD_PARKED_DISK_BYTES": written}).parked_disk_bytes == size


def test_relative_folders_mean_where_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings" / "config.toml"
    file.parent.mkdir()
    file.write_text("model_folders = ['models', '~/more']")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    expected = (str(file.parent / "models"), os.path.expanduser("~/more"))
    assert load_settings({}, file).model_folders == expected
    assert load_settings({"MODELD_MODEL_FOLDERS": "models"}, file).model_folders == (str(tmp_path / "models"),)
