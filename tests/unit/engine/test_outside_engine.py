"""An engine from outside the product runs only where its file is named and the command line asks for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from modeld.engine.backends import ENGINE_VARIABLE, choose
from modeld.engine.contract import AbortFlag
from modeld.engine.factory import make_engine
from shared.errors import BackendUnavailable, SettingInvalid
from shared.settings import load_settings

ENGINE = "def engine(abort, argument):\n    return ['from outside', argument]\n"


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "engine.py").write_text(ENGINE)
    monkeypatch.setenv(ENGINE_VARIABLE, f"{tmp_path / 'engine.py'}{os.pathsep}a word")


@pytest.mark.usefixtures("named")
def test_the_named_file_is_run_with_its_argument() -> None:
    assert choose("scripted") == "scripted"
    made: object = make_engine("scripted", AbortFlag())
    assert made == ["from outside", "a word"]


@pytest.mark.usefixtures("named")
def test_the_name_of_a_file_alone_changes_no_other_backend(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text("raise AssertionError\n")
    for backend in ("none", "llama", "openvino"):
        assert type(make_engine(backend, AbortFlag())).__module__.startswith(f"modeld.engine.{backend}")


@pytest.mark.usefixtures("named")
def test_a_setting_cannot_choose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELD_BACKEND", "scripted")
    with pytest.raises(SettingInvalid):
        load_settings()


def test_without_a_file_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    with pytest.raises(BackendUnavailable):
        choose("scripted")
    assert type(make_engine("scripted", AbortFlag())).__module__ == "modeld.engine.none"
