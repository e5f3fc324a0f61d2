"""What is wrong with the interpreter or the installed modeld is said once, with a way out; paths may be odd."""

from __future__ import annotations

from pathlib import Path

import pytest

from clients.stub_python import odd_place, stub
from clients.vscode import Editor, Window

pytestmark = [pytest.mark.e2e, pytest.mark.editor]


@pytest.fixture(scope="module")
def odd(editor: Editor) -> Path:
    """A folder with a space and letters beyond ASCII."""
    return editor.home.folder / "wrong plåces"


def _toast(window: Window, text: str) -> str:
    window.until(lambda: any(text in toast for toast in window.toasts()), f"a toast says {text!r}", 60)
    toasts = [toast for toast in window.toasts() if "modeld" in toast or "Python" in toast or "python" in toast]
    assert len(toasts) == 1, toasts
    return toasts[0]


def _dismiss(window: Window) -> None:
    window.run("Notifications: Clear All Notifications")


@pytest.mark.parametrize(
    ("kind", "sentence", "way"),
    [
        ("missing", "modeld is not installed in", "Install modeld"),
        ("old python", "modeld needs 3.11 or newer", "Choose Python"),
        ("old package", "too old for this extension", "Upgrade modeld"),
        ("no python", "not a Python that runs", "Choose Python"),
        ("wire", "newer than this extension", "Try Again"),
        ("dies", "ends again and again", "Show Log"),
    ],
)
def test_each_wrong_interpreter_is_told_once_with_a_way_out(
    editor: Editor, window: Window, odd: Path, kind: str, sentence: str, way: str
) -> None:
    editor.configure(**{"modeld.python": str(stub(odd, kind))})
    toast = _toast(window, sentence)
    window.shot(f"trouble-{kind.replace(' ', '-')}")
    assert way in toast
    window.until(lambda: sentence in window.status(), "the status bar says it too")
    assert "alpha" in window.picked(), "the native picker keeps its entries"
    _dismiss(window)
    window.open_file("demo.py")
    window.page.keyboard.type("abc")
    assert window.toasts() == [], "no popup at a keystroke"


def test_a_python_that_is_not_there_is_told(editor: Editor, window: Window, odd: Path) -> None:
    editor.configure(**{"modeld.python": str(odd / "nowhere" / "python")})
    assert "Choose Python" in _toast(window, "There is no Python at")
    _dismiss(window)


def test_a_repaired_setting_is_taken_up_at_an_odd_path(editor: Editor, window: Window, odd: Path) -> None:
    editor.configure(**{"modeld.python": str(odd_place(odd))})
    window.until(editor.bridges, "a bridge runs", 60)
    window.until(lambda: "model is loaded" in window.status() or "no model" in window.status(), "the status recovers")
    window.new_chat()
    window.ask("quince")
    window.said("quince11")
    window.shot("trouble-repaired")
