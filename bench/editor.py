"""How soon text is seen in a real VS Code, how soon its Stop frees the engine, and what activation costs.

A scripted engine sets the pace, so that what is measured is everything around the engine. The first token's time is the
daemon's own count from the start of the engine's work; the way of the question to the daemon is on our side of the
account, so the rows are upper bounds.
"""

from __future__ import annotations

import re
import time
from typing import Any

from bench.table import Table
from clients.home import Home
from clients.script import write_models, write_script
from clients.vscode import Editor, chromium, copy_workspace
from clients.vscode_window import VIEWPORT, Window
from clients.wire import Wire

ROUNDS = 5
#: tokens a second
SPEEDS = (25, 40, 100)
FIRST_TEXT_MS = 80.0
STOP_MS = 150.0
ACTIVATION_MS = 50.0

#: resolves with the milliseconds from the key press to the first visible text of the last answer
_FIRST_TEXT = """() => new Promise((resolve) => {
  const input = document.getElementById('input');
  const log = document.getElementById('log');
  const before = log.querySelectorAll('article').length;
  input.value = 'zeppelin';
  const began = performance.now();
  const seen = () => {
    const articles = log.querySelectorAll('article');
    const answer = articles.length > before ? articles[articles.length - 1].querySelector('.answer') : null;
    if (answer && answer.textContent.trim()) {
      watch.disconnect();
      requestAnimationFrame(() => resolve(performance.now() - began));
    }
  };
  const watch = new MutationObserver(seen);
  watch.observe(log, { childList: true, subtree: true, characterData: true });
  input.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
})"""


def measure(table: Table) -> None:
    """Rows of the editor."""
    with Home() as home, chromium() as browser:
        write_script(home)
        write_models(home, "alpha", "beta")
        home.start("scripted")
        with Editor(home) as editor:
            copy_workspace(editor, {"demo.py": "x = 1\n"})
            window = Window(editor, browser.new_page(viewport=VIEWPORT)).open().ready()
            window.turn("quince", "quince11")  # a chat that was never used is not up yet
            _activation(table, window)
            window.run("Local Models: Open Chat")
            window.panel.locator("#input").wait_for(state="visible")
            for speed in SPEEDS:
                _panel(table, home, window, speed)
            _stop(table, home, window)


def _activation(table: Table, window: Window) -> None:
    window.run("Developer: Show Running Extensions")
    row = window.page.locator(".runtime-extensions-editor .monaco-list-row", has_text="modeld: local models")
    rows = window.page.locator(".runtime-extensions-editor .monaco-list-row")
    rows.first.wait_for(state="visible")
    rows.first.click()
    while not row.count():  # the slowest stand first, and only what is in view exists
        window.page.keyboard.press("PageDown")
        window.page.wait_for_timeout(100)
    found = re.search(r"Activation: (\d+)\s*ms", row.first.inner_text())
    assert found is not None, row.first.inner_text()
    table.at_most("activation of the extension", [float(found[1])], ACTIVATION_MS, "ms")


def _panel(table: Table, home: Home, window: Window, speed: int) -> None:
    """From the daemon's first token to text on the screen of our panel."""
    write_script(home, token_s=1 / speed)
    home.run("modeld", "unload", check=False)
    home.run("modeld", "load", "alpha")
    frame = next(frame for frame in window.page.frames if frame.query_selector("#log") is not None)
    seconds = []
    for _ in range(ROUNDS):
        window.panel.locator("#clear").click()
        window.until(lambda: not window.panel.locator("article").count(), "the panel is empty")
        shown = float(frame.evaluate(_FIRST_TEXT)) / 1000
        window.panel.locator("#stop").click()
        last = _ended(window, home)
        seconds.append(shown - last["timings"]["first_token_s"] - last["timings"]["queued_s"])
    table.at_most(f"first token to visible text, {speed} tokens/s", seconds, FIRST_TEXT_MS, "ms", scale=1000)


def _stop(table: Table, home: Home, window: Window) -> None:
    """From the click on Stop in the editor's own chat to an idle engine."""
    seconds = []
    with Wire(home.root) as wire:
        for _ in range(ROUNDS):
            window.new_chat()
            window.ask("zeppelin")
            window.said("zep9")
            button = window.chat.locator(".codicon-stop-circle").first.element_handle()
            clicked = float(button.evaluate("(element) => { element.click(); return Date.now(); }"))
            while wire.status()["state"] != "Ready":
                time.sleep(0.002)
            seconds.append(time.time() - clicked / 1000)
    table.at_most("click on Stop to an idle engine", seconds, STOP_MS, "ms", scale=1000)


def _ended(window: Window, home: Home) -> dict[str, Any]:
    window.until(lambda: home.status()["state"] == "Ready", "the engine is idle")
    last: dict[str, Any] = home.status()["last_turn"]
    return last
