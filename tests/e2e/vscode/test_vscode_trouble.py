"""What is wrong with the interpreter or with modeld is said once, with a way out; paths may be odd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.home import Home
from clients.script import write_models, write_script
from clients.stub_python import odd_place, stub
from clients.vscode import Editor
from clients.vscode_window import Window
from versions import OtherVersion

pytestmark = [pytest.mark.e2e, pytest.mark.editor]


@pytest.fixture(scope="module")
def odd(editor: Editor) -> Path:
    """A folder with a space and letters beyond ASCII."""
    return editor.home.folder / "wrong plåces"


@pytest.fixture(scope="module", autouse=True)
def repaired_at_last(editor: Editor) -> Iterator[None]:
    """Whatever became of the tests, the other modules have their Python."""
    yield
    editor.configure(**editor.standard)


@pytest.fixture
def another(editor: Editor) -> Iterator[Home]:
    """A user with the same models, who never started modeld."""
    editor.configure(**editor.standard)
    with Home() as home:
        write_script(home)
        write_models(home, "alpha", "beta")
        yield home


def _reported_once(window: Window, sentence: str, name: str) -> str:
    """One notification says it, and so does the status bar; the entries stay; typing raises no other."""
    toast = window.toast(sentence)
    window.shot(f"trouble-{name.replace(' ', '-')}")
    assert [one for one in window.toasts() if one != toast] == []
    window.until(lambda: sentence in window.status(), "the status bar says it too")
    assert "alpha" in window.picked(), "the native picker keeps its entries"
    window.clear_notifications()
    window.open_file("notes.py")
    window.page.keyboard.type("abc")
    assert window.toasts() == [], "no popup at a keystroke"
    return toast


@pytest.mark.parametrize(
    ("kind", "sentence", "way"),
    [
        ("missing", "modeld is not installed in", "Install modeld"),
        ("old python", "modeld needs 3.11 or newer", "Choose Python"),
        ("old package", "too old for this extension", "Upgrade modeld"),
        ("no python", "not a Python that runs", "Choose Python"),
        ("wire", "newer than this extension", "Try Again"),
        ("dies", "ends again and again", "Show Log"),
        ("nowhere", "There is no Python at", "Choose Python"),
    ],
)
def test_each_wrong_interpreter_is_reported_once_with_a_way_out(
    editor: Editor, window: Window, odd: Path, kind: str, sentence: str, way: str
) -> None:
    python = odd / "nowhere" / "python" if kind == "nowhere" else stub(odd, kind)
    editor.configure(**{"modeld.python": str(python)})
    assert way in _reported_once(window, sentence, kind)


def test_a_repaired_setting_is_taken_up_at_an_odd_path(editor: Editor, window: Window, odd: Path) -> None:
    editor.configure(**{"modeld.python": str(odd_place(odd))})
    window.until(lambda: "o model is loaded" in window.status() or "is loaded" in window.status(), "it recovers")
    window.turn("quince", "quince11")
    window.shot("trouble-repaired")


@pytest.mark.core_editor
def test_a_modeld_that_was_never_started_is_reported_with_the_way_to_start_it(
    editor: Editor, window: Window, another: Home
) -> None:
    with editor.world(another):
        window.until(lambda: "modeld start" in window.status(), "the status bar says it")
        answer = window.ask_panel("quince")
        window.until(lambda: "modeld start" in answer.inner_text(), "the panel says it")
        assert answer.get_by_role("button", name="Start modeld").is_visible()
        window.shot("trouble-never-started")
        assert window.toasts() == [], "not being there yet is no fault"
    window.until(lambda: "alpha" in window.picked(), "the world of before")


def test_a_modeld_of_another_protocol_is_reported_with_what_to_upgrade(
    editor: Editor, window: Window, another: Home, tmp_path: Path
) -> None:
    far = OtherVersion(tmp_path / "far", "9.0.0", protocol=(7, 7))
    started = far.run("start", "--backend", "scripted", **another.environ)
    assert started.returncode == 0, started.stderr
    try:
        with editor.world(another):
            window.until(lambda: "upgrade" in window.status(), "the status bar says it")
            answer = window.ask_panel("quince")
            window.until(lambda: "modeld 9.0.0" in answer.inner_text(), "the panel says it")
            window.shot("trouble-other-protocol")
            assert "upgrade" in answer.inner_text()
            window.until(lambda: "alpha" in window.panel.locator("#model").inner_text(), "the models stay")
    finally:
        far.run("stop", **another.environ)


def test_an_older_modeld_serves_and_is_reported_once(
    editor: Editor, window: Window, another: Home, tmp_path: Path
) -> None:
    near = OtherVersion(tmp_path / "near", "0.0.9")
    started = near.run("start", "--backend", "scripted", **another.environ)
    assert started.returncode == 0, started.stderr
    with editor.world(another):
        assert "modeld restart" in window.toast("modeld 0.0.9 runs")
        window.shot("trouble-older-modeld")
        answer = window.ask_panel("quince")
        window.until(lambda: "quince11" in answer.inner_text(), "it answers")
        assert len([one for one in window.toasts() if "0.0.9" in one]) <= 1
