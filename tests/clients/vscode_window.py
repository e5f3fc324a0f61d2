"""A window of the real VS Code in a headless Chromium, driven as a user would: keys, clicks, what is on the screen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from clients.vscode import SHOTS, START_SECONDS, STEP_SECONDS, Editor

VIEWPORT = {"width": 1280, "height": 800}
QUICK_INPUT = ".quick-input-widget"
#: a look makes the editor lay its window out: more of them take the processor from what is waited for
LOOK_MS = 150
#: what the editor answers itself where its own chat agent is still on its way
NOT_UP = "Please try again."
ROWS = f"{QUICK_INPUT} .quick-input-list .monaco-list-row"


#: a long list draws only what is seen, in any order
_IN_ORDER = """(rows) => rows.map((row) => [Number(row.dataset.index), row.innerText])
  .sort((one, other) => one[0] - other[0]).map((row) => row[1])"""


class Window:
    """One window of an editor."""

    def __init__(self, editor: Editor, page: Any) -> None:
        self.editor = editor
        self.page = page
        self.asked = 0
        page.set_default_timeout(STEP_SECONDS * 1000)
        page.set_default_navigation_timeout(START_SECONDS * 1000)

    def open(self, **query: str) -> Self:
        """Load the workbench and wait until it is painted."""
        self.page.goto(self.editor.address(**query), wait_until="commit")  # some frames load for ever
        return self.painted()

    def reload(self) -> Self:
        """As the command does: all that lives in the window starts over."""
        self.page.reload(wait_until="commit")
        return self.painted()

    def painted(self) -> Self:
        """Return once the status bar shows something."""
        self.page.wait_for_selector(".monaco-workbench .part.statusbar .statusbar-item", timeout=START_SECONDS * 1000)
        return self

    def ready(self, model: str = "alpha") -> Self:
        """Return once a bridge runs, the editor's own picker shows our models, and its other extensions are up."""
        self.until(self.editor.bridges, "a bridge runs", START_SECONDS)
        self.until(lambda: model in self.picked(), f"the native picker shows {model}", START_SECONDS)
        return self.settled()

    def settled(self) -> Self:
        """Return once all extensions are active and no answer is on its way: the editor queues what is asked before."""
        bar = self.page.locator(".part.statusbar")
        stop = self.chat.locator(".codicon-stop-circle")
        self.until(lambda: "Activating" not in bar.inner_text(), "all extensions are active", START_SECONDS)
        self.until(lambda: not stop.count(), "the answer is at its end")
        return self

    def until(self, what: Callable[[], Any], label: str, seconds: float = STEP_SECONDS) -> Any:
        """The first true answer of `what`; the page lives on while it is waited for."""
        deadline = time.monotonic() + seconds
        while not (answer := what()):
            if time.monotonic() > deadline:
                self.shot(f"failed-{os.getpid()}")
                raise AssertionError(f"not within {seconds} s: {label}\n{self._seen_now()}")
            self.page.wait_for_timeout(LOOK_MS)
        return answer

    def _seen_now(self) -> str:
        """What a person would look at first."""
        bar = self.page.locator(".part.sidebar")
        side = str(bar.inner_text())[-500:] if bar.count() else ""
        return f"status: {self.status()}\nside bar: {side}\nchat: {self.chat.inner_text()[-1500:]}"

    def shot(self, name: str) -> Path:
        """Keep a screenshot of the window."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        path = SHOTS / f"{name}.png"
        self.page.screenshot(path=str(path))
        return path

    # --- the editor's own parts --------------------------------------------------------------------

    def run(self, title: str) -> None:
        """A command of the palette."""
        self._found("F1", f">{title}", title, f"a command {title}").click()

    def open_file(self, name: str) -> None:
        """Open a file of the workspace and put the cursor into it."""
        self._found("Control+P", name, name, f"{name} is listed")
        self.page.keyboard.press("Enter")
        self.page.locator(f'.tabs-container .tab[aria-label^="{name}"]').first.wait_for(state="visible")
        self.to_text()

    def _found(self, keys: str, typed: str, text: str, label: str) -> Any:
        """The row with `text` of the quick input that `keys` open.

        What is not there yet, a new file or a command of an extension on its way, is not listed later in an open one:
        it is opened again.
        """
        box = self.page.locator(f"{QUICK_INPUT} .quick-input-box input").first
        row = self.page.locator(ROWS, has_text=text).first

        def listed() -> bool:
            self.page.keyboard.press(keys)
            opened = self._seen(box)
            if opened:
                box.fill(typed)
                if self._seen(row):
                    return True
            self.page.keyboard.press("Escape")
            if not opened:
                self.chat.locator(".interactive-input-part .monaco-editor").first.click()  # where keys are heard
            return False

        self.until(listed, label, START_SECONDS)
        return row

    def _seen(self, element: Any) -> bool:
        """Whether it comes up soon."""
        for _ in range(40):
            if element.is_visible():
                return True
            self.page.wait_for_timeout(50)
        return False

    def to_text(self) -> None:
        """The cursor into the file in front."""
        self.page.locator(".editor-group-container.active .monaco-editor .view-lines").first.click()

    def text(self) -> str:
        """What is seen of the file in front."""
        lines = self.page.locator(".editor-group-container.active .monaco-editor .view-lines").first
        return str(lines.inner_text()).replace("\xa0", " ")

    def ghost(self) -> str:
        """The ghost text on the screen."""
        found = self.page.locator(".ghost-text, .ghost-text-decoration, .ghost-text-decoration-preview")
        return " ".join(found.all_inner_texts()).replace("\xa0", " ")

    def dialog(self, button: str) -> str:
        """The text of the modal dialog, answered with a button."""
        box = self.page.locator(".monaco-dialog-box")
        box.wait_for(state="visible")
        text = str(box.inner_text())
        box.get_by_role("button", name=button, exact=True).click()
        box.wait_for(state="hidden")
        return text

    def toasts(self) -> list[str]:
        """The texts of the notifications on the screen."""
        lists = (".notifications-toasts", ".notifications-center")
        items = ", ".join(f"{one} .notification-list-item" for one in lists)
        found: list[str] = self.page.locator(items).all_inner_texts()
        return found

    def toast(self, text: str) -> str:
        """The notification that says `text`, once it is there; the editor puts some away after a few seconds."""

        def found() -> str:
            reported = next((toast for toast in self.toasts() if text in toast), "")
            unread = self.page.locator('.part.statusbar [id="status.notifications"] .codicon-bell-dot')
            if not reported and unread.count() and not self.page.locator(".notifications-center").is_visible():
                unread.first.click()
            return reported

        return str(self.until(found, f"a notification says {text!r}"))

    def clear_notifications(self) -> None:
        """None is left, neither on the screen nor put away."""
        if self.toasts() or self.page.locator(".codicon-bell-dot").count():
            self.run("Notifications: Clear All Notifications")
            self.until(lambda: not self.toasts(), "no notification is left")

    def commit_box(self) -> str:
        """What stands in the box for the commit message."""
        return str(self.page.locator(".scm-view .scm-editor .view-lines").first.inner_text()).replace("\xa0", " ")

    def staged(self, name: str) -> None:
        """Open the source control view; return once the staged file is listed."""
        view = self.page.locator(".scm-view").first
        if not view.is_visible():
            self.page.locator('.activitybar [aria-label^="Source Control"]').first.click()
        self.until(lambda: view.is_visible() and name in view.inner_text(), "the staged file")

    # --- the editor's own chat ---------------------------------------------------------------------

    @property
    def chat(self) -> Any:
        """The editor's own chat view."""
        return self.page.locator(".part.auxiliarybar")

    def ask(self, text: str) -> None:
        """A message in the editor's own chat, which would address the participant of the last one again."""
        keys = ".interactive-input-part .native-edit-context, .interactive-input-part textarea"
        self.chat.locator(keys).first.focus()  # a notification may lie over it
        self.page.keyboard.press("Control+A")
        self.page.keyboard.type(text)
        typed = self.chat.locator(".interactive-input-part .view-lines").first
        end = text.rsplit(maxsplit=1)[-1]

        def sent() -> bool:
            self.page.keyboard.press("Enter")  # not heard while the editor draws its chat again
            return any(end not in typed.inner_text() or self.page.wait_for_timeout(50) for _ in range(20))

        self.until(sent, "the message is sent")

    def answered(self, text: str, done: Callable[[], Any], label: str) -> None:
        """A message, and its answer to the end; asked again as often as the editor says that its chat is not up yet."""
        self.settled().ask(text)

        def ended() -> bool:
            if self.answer().rstrip().endswith(NOT_UP):
                self.settled().ask(text)
                self.until(lambda: not self.answer().rstrip().endswith(NOT_UP), "the message is sent again")
            return bool(done())

        self.until(ended, label)
        self.settled()

    def turn(self, text: str, end: str) -> None:
        """A message, and its answer up to `end`. The first one of a window must be this: a fresh chat is not up yet."""
        self.asked += 1
        question = f"{text}, message {self.asked}"

        def answered() -> bool:
            rows = self.chat.locator(".interactive-list .monaco-list-row").evaluate_all(_IN_ORDER)
            at = next((place for place, row in enumerate(rows) if question in row), len(rows))
            return any(end in row for row in rows[at + 1 :])

        self.answered(question, answered, f"an answer with {end!r}")

    def new_chat(self) -> None:
        """A fresh conversation in the editor's own chat."""
        self.chat.locator('.composite.title [aria-label^="New Chat"], [aria-label^="New Chat"]').first.click()
        self.until(lambda: not self.chat.locator(".interactive-response").count(), "the chat is empty")

    def said(self, text: str) -> None:
        """Return once the editor's own chat shows the text."""
        self.until(lambda: text in self.chat.inner_text(), f"the chat shows {text!r}")

    def answer(self) -> str:
        """The last answer in the editor's own chat."""
        found = self.chat.locator(".interactive-response .value")
        return str(found.last.inner_text()) if found.count() else ""

    def stop(self) -> None:
        """The stop button of the editor's own chat."""
        self.chat.locator(".chat-input-toolbars .codicon-stop-circle, .codicon-stop-circle").first.click()

    def picked(self) -> str:
        """The label of the native picker."""
        bar = self.chat.locator(".chat-input-toolbars")
        return str(bar.first.inner_text()).replace("\n", " ") if bar.count() else ""

    def offered(self, *names: str) -> list[str]:
        """The rows of the native picker, opened and closed again; `names` are waited for."""
        rows = self._native_picker(names).inner_text().split("\n")
        self.shot("picker")
        self.page.keyboard.press("Escape")
        return [row.strip() for row in rows if row.strip()]

    def choose(self, name: str) -> None:
        """Another model in the native picker."""
        self._native_picker((name,)).get_by_text(name, exact=True).first.click()
        self.until(lambda: name in self.picked(), f"{name} is picked")

    def _native_picker(self, names: tuple[str, ...]) -> Any:
        """Opened, with all of `names`. It closes, or opens empty, when its button is drawn again meanwhile."""
        self.clear_notifications()  # one may lie over the button
        widget = self.page.locator(".action-widget").first
        others = widget.get_by_text("Other Models", exact=True)

        def complete() -> bool:
            if not widget.is_visible():
                self.chat.locator(".model-picker-name").first.click()
            for _ in range(15):
                if widget.is_visible() and all(name in widget.inner_text() for name in names):
                    return True
                self.page.wait_for_timeout(50)
            if others.count():
                others.first.click()  # the editor remembers whether this part was open
            else:
                self.page.keyboard.press("Escape")
            return False

        self.until(complete, f"the picker has {names}")
        return widget

    # --- the extension's own parts -----------------------------------------------------------------

    def status(self) -> str:
        """Our entry of the status bar, as it is read out."""
        entry = self.page.locator('.part.statusbar [id="modeld.modeld.modeld.status"]')
        return str(entry.first.get_attribute("aria-label") or "") if entry.count() else ""

    def pick(self, name: str) -> None:
        """A model in our own picker."""
        self.run("Local Models: Choose Model")
        widget = self.page.locator(QUICK_INPUT)
        self.until(lambda: name in widget.inner_text(), f"our picker has {name}")
        self.page.keyboard.type(name)
        self.page.keyboard.press("Enter")
        widget.wait_for(state="hidden")

    @property
    def panel(self) -> Any:
        """The page of our chat panel: a frame in a frame."""
        return self.page.frame_locator("iframe.webview.ready").frame_locator("iframe#active-frame")

    def ask_panel(self, text: str) -> Any:
        """A question in a new conversation of our panel; its answer, as an element."""
        self.run("Local Models: Open Chat")
        self.panel.locator("#clear").click()
        self.until(lambda: not self.panel.locator("article").count(), "the panel is empty")
        self.panel.locator("#input").fill(text)
        self.panel.locator("#input").press("Enter")
        return self.panel.locator("article").last
