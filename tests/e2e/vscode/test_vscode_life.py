"""Reloads, crashes and other windows: nothing is lost, no bridge is left, and nobody's model is taken unasked."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from clients.home import Home
from clients.memory_extension import FAR
from clients.vscode import Editor
from clients.vscode_window import Window

pytestmark = [pytest.mark.e2e, pytest.mark.editor]

Status = Callable[[], dict[str, Any]]


def _only_bridge(window: Window, *gone: psutil.Process) -> psutil.Process:
    """The bridge of the window, once there is no other and those of `gone` have ended."""
    found: psutil.Process = window.until(lambda: window.editor.only_bridge(*gone), "one bridge, and no old one")
    return found


@pytest.mark.core_editor
def test_a_killed_bridge_comes_back_silently(window: Window) -> None:
    old = _only_bridge(window)
    old.kill()
    _only_bridge(window, old)
    assert "alpha" in window.picked()
    assert window.toasts() == []
    window.turn("quince", "quince11")


def test_a_killed_daemon_is_said_and_the_next_one_answers(scripted: Home, window: Window, status: Status) -> None:
    window.new_chat()
    window.ask("zeppelin")
    window.said("zep9")
    psutil.Process(status()["pid"]).send_signal(signal.SIGKILL)
    window.said("modeld ended unexpectedly")
    window.until(lambda: "ended" in window.status(), "the status bar says so")
    window.shot("life-3-daemon-killed")
    scripted.start("scripted")
    window.until(lambda: "o model is loaded" in window.status(), "it runs again")
    window.turn("quince", "quince11")
    _only_bridge(window)


@pytest.mark.core_editor
def test_a_second_window_asks_before_it_takes_the_model(
    editor: Editor, window: Window, status: Status, open_window: Callable[..., Window]
) -> None:
    """The second one is on a virtual workspace: its files are on no disk."""
    mine = _only_bridge(window)
    window.turn("quince", "quince11")
    assert status()["active"]["name"] == "alpha"
    second = open_window(**FAR).ready()
    assert len(editor.bridges()) == 2
    second.until(lambda: "def add" in second.text(), "a file that is on no disk")
    second.pick("beta")
    answer = second.ask_panel("quince")
    second.page.locator(".monaco-dialog-box").wait_for(state="visible")
    second.shot("life-4-switch")
    said = second.dialog("Cancel")
    assert "Switching from alpha to beta will unload alpha and drop its warm context" in said
    assert status()["active"]["name"] == "alpha"
    second.until(lambda: "declined" in answer.inner_text(), "the refusal is said")
    answer.get_by_role("button", name="Retry").click()
    second.dialog("Switch now")
    second.until(lambda: "quince11" in second.panel.locator("article").last.inner_text(), "beta answers")
    assert status()["active"]["name"] == "beta"
    window.toast("switched from alpha to beta")
    window.shot("life-5-switched-away")
    theirs = [bridge for bridge in editor.bridges() if bridge != mine]
    second.page.close()
    assert _only_bridge(window, *theirs) == mine


def test_a_killed_extension_host_takes_its_bridge_along_and_comes_back(editor: Editor, window: Window) -> None:
    old = _only_bridge(window)
    window.until(editor.only_host, "the hosts of closed windows are gone").kill()
    _only_bridge(window, old)
    window.until(lambda: "alpha" in window.picked(), "the models are back")
    window.shot("life-2-host-killed")


def test_a_reloaded_window_has_its_models_and_heeds_restricted_mode(editor: Editor, window: Window) -> None:
    """A folder that is not trusted cannot name the program that is run; one that is trusted can."""
    old = _only_bridge(window)
    chosen = editor.workspace / ".vscode" / "settings.json"
    chosen.parent.mkdir(exist_ok=True)
    chosen.write_text(json.dumps({"modeld.python": "/nowhere/python of the folder"}), encoding="utf-8")
    window.toast("There is no Python at /nowhere/python of the folder")  # trusted as yet
    with editor.set(**{"security.workspace.trust.enabled": True}):
        window.reload()
        window.until(lambda: "Restricted Mode" in window.page.locator(".part.statusbar").inner_text(), "restricted")
        restricted = _only_bridge(window, old)
        answer = window.ask_panel("quince")  # the editor's own chat is off here
        window.until(lambda: "quince11" in answer.inner_text(), "the panel answers")
        window.shot("life-1-restricted")
        assert window.toasts() == []
        window.run("Workspaces: Manage Workspace Trust")
        window.page.locator(".workspace-trust-editor").get_by_role("button", name="Trust", exact=True).first.click()
        window.until(lambda: "Restricted Mode" not in window.page.locator(".part.statusbar").inner_text(), "trusted")
        page = window.page.locator(".workspace-trust-editor")

        def closed() -> bool:
            """That page lies over the window, and hears keys only once it was clicked."""
            if page.is_visible():
                page.click(position={"x": 5, "y": 5})
                window.page.keyboard.press("Escape")
            return not page.is_visible()

        window.until(closed, "the page of the trust is closed")
        window.toast("There is no Python at /nowhere/python of the folder")
        window.shot("life-6-trusted")
        chosen.write_text("{}", encoding="utf-8")
        _only_bridge(window, old, restricted)
        window.until(lambda: "alpha" in window.picked(), "the models are back")
    window.run("View: Close All Editors")
