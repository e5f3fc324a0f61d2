"""A default is not a pick, in the real editor: no surface sends anything to a remote model that nobody picked."""

from __future__ import annotations

import pytest

from clients.home import Home
from clients.vscode import Editor, git
from clients.vscode_window import Window
from counting_endpoint import ANSWER, CountingEndpoint

pytestmark = [pytest.mark.e2e, pytest.mark.editor]

REMEDY = "or pick a remote model"
NAME = "big"


def test_every_surface_refuses_until_the_remote_model_is_picked(editor: Editor, window: Window) -> None:
    (editor.workspace / "secret.txt").write_text("a diff that is nobody's business\n")
    git(editor, "add", "secret.txt")
    with CountingEndpoint() as endpoint, Home() as home:
        home.environ["MODELD_CONFIG"] = endpoint.configure(home.folder / "config.toml")
        with editor.world(home):
            window.until(lambda: "not running" in window.status(), "the window knows that nothing answers")
            window.staged("secret.txt")
            window.run("Local Models: Write Commit Message")
            window.toast(REMEDY)
            window.clear_notifications()

            answer = window.ask_panel("what is in my files?")
            window.until(lambda: REMEDY in answer.inner_text(), "the panel refuses")
            assert answer.get_by_role("button", name="Start modeld").is_visible()
            assert window.panel.locator("#model").inner_text() == "No model"
            window.shot("remote-1-panel")

            window.choose(NAME)
            window.new_chat()
            window.answered(
                "what is in my files?", lambda: "was not picked here" in window.answer(), "the chat refuses"
            )
            window.toast("was not picked here")
            window.shot("remote-2-chat")
            window.new_chat()
            window.ask("@local what is in my files?")
            window.until(lambda: "was not picked here" in window.answer(), "the participant refuses")
            assert endpoint.connections == 0

            window.clear_notifications()
            window.pick(NAME)
            answer = window.ask_panel("hello")
            window.until(lambda: ANSWER in answer.inner_text(), "the picked model answers in the panel")
            window.new_chat()
            window.answered("hello", lambda: ANSWER in window.answer(), "and in the editor's own chat")
            window.shot("remote-3-picked")
            assert len(endpoint.prompts) >= 2
    git(editor, "rm", "-q", "--cached", "secret.txt")
