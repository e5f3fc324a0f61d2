"""A real VS Code for one user's world: code-server with our extension, and windows of it in a headless Chromium."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psutil

from clients.home import Home, eventually

ROOT = Path(__file__).resolve().parents[2]
#: screenshots of every run, for a person to judge; never committed
SHOTS = ROOT / ".work" / "vscode"
VIEWPORT = {"width": 1280, "height": 800}
BROWSER_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
START_SECONDS = 90.0
#: a step of the editor that takes longer has failed
STEP_SECONDS = 40.0
#: nothing may come up by itself, nothing may call home
QUIET: dict[str, Any] = {
    "workbench.startupEditor": "none",
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "extensions.autoCheckUpdates": False,
    "extensions.autoUpdate": False,
    "security.workspace.trust.enabled": False,
    "workbench.enableExperiments": False,
    "workbench.tips.enabled": False,
    "workbench.welcomePage.walkthroughs.openOnInstall": False,
    "chat.allowAnonymousAccess": True,
    "git.openRepositoryInParentFolders": "never",
}


@cache
def paths() -> dict[str, str]:
    """Where node, the editor's server, the browser and the extension are; set up first where something is missing."""
    return _set_up()


@cache
def tools() -> dict[str, str]:
    """Where node and the extension with its compilers are; needs no browser."""
    return _set_up("--tools")


def _set_up(*options: str) -> dict[str, str]:
    command = [sys.executable, str(ROOT / "scripts" / "editor.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"it could not be set up:\n{done.stderr[-3000:]}"
    found: dict[str, str] = json.loads(done.stdout)
    return found


def run_node(*arguments: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
    """One command of Node in the extension's folder, with its output."""
    return subprocess.run(
        [tools()["node"], *arguments],
        cwd=tools()["extension"],
        env={**os.environ, "PATH": f"{Path(tools()['node']).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@cache
def vsix() -> Path:
    """The extension, bundled and packed as it is now."""
    target = SHOTS.parent / "modeld.vsix"
    target.parent.mkdir(exist_ok=True)
    vsce = "node_modules/@vscode/vsce/vsce"
    for arguments in (["esbuild.mjs"], [vsce, "package", "--no-dependencies", "--out", str(target)]):
        done = run_node(*arguments)
        assert done.returncode == 0, f"{arguments}:\n{done.stdout}\n{done.stderr}"
    return target


class Editor:
    """One served editor on one user's world. Its windows share the extension's files, not its processes."""

    def __init__(self, home: Home, *, settings: dict[str, Any] | None = None, options: Iterable[str] = ()) -> None:
        self.home = home
        self.settings: dict[str, Any] = {"modeld.python": sys.executable, **QUIET, **(settings or {})}
        self.options = list(options)
        self.folder = home.folder / "code"
        self.workspace = home.folder / "wörk späce"
        self.workspace.mkdir(exist_ok=True)
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @property
    def user(self) -> Path:
        return self.folder / "user-data"

    def __enter__(self) -> Self:
        self.configure(**self.settings)
        self._install()
        self._serve()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def configure(self, **settings: Any) -> None:
        """Settings for every window; those of the machine are read from a file of their own in a served editor."""
        self.settings = {**self.settings, **settings}
        for name in ("User", "Machine"):
            (self.user / name).mkdir(parents=True, exist_ok=True)
            whole = json.dumps(self.settings, indent=1)
            (self.user / name / "settings.json").write_text(whole, encoding="utf-8")

    def _command(self, *arguments: str) -> list[str]:
        return [
            paths()["node"],
            paths()["server"],
            "--user-data-dir",
            str(self.user),
            "--extensions-dir",
            str(self.folder / "extensions"),
            "--config",
            str(self.folder / "config.yaml"),
            *arguments,
        ]

    def _install(self) -> None:
        (self.folder / "config.yaml").write_text("auth: none\n", encoding="utf-8")
        done = subprocess.run(
            self._command("--install-extension", str(vsix()), "--force"),
            env=self.home.environ,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"

    def _serve(self) -> None:
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/"
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command(
                    "--bind-addr",
                    f"127.0.0.1:{port}",
                    "--auth",
                    "none",
                    "--disable-telemetry",
                    "--disable-update-check",
                    "--disable-workspace-trust",
                    "--disable-getting-started-override",
                    "--reconnection-grace-time",
                    "2",
                    *self.options,
                ),
                env=self.home.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        eventually(self._answers, START_SECONDS, "the editor's server answers")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}healthz", timeout=5):
                return True
        except (OSError, urllib.error.URLError):
            return False

    def stop(self) -> None:
        """End the server and everything below it."""
        if self.process is None:
            return
        below = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
        _, alive = psutil.wait_procs(below, timeout=10)
        for process in alive:
            process.kill()
        psutil.wait_procs(alive, timeout=5)
        self.process = None

    def bridges(self) -> list[psutil.Process]:
        """The bridge processes of all windows."""
        return [process for process in self.home.processes() if _is(process, "acp_bridge")]

    def hosts(self) -> list[psutil.Process]:
        """The extension hosts of all windows."""
        return [process for process in self.home.processes() if _is(process, "--type=extensionHost")]

    def address(self, **query: str) -> str:
        """The address of a window on the workspace."""
        asked = {"folder": str(self.workspace), **query}
        return self.url + "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in asked.items())


def _is(process: psutil.Process, word: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and any(word in part for part in process.cmdline())
    except psutil.Error:
        return False


class Window:
    """One window, driven as a user would: keys, clicks, and what can be read on the screen."""

    def __init__(self, editor: Editor, page: Any) -> None:
        self.editor = editor
        self.page = page
        page.set_default_timeout(STEP_SECONDS * 1000)
        page.set_default_navigation_timeout(START_SECONDS * 1000)

    def open(self, **query: str) -> Self:
        """Load the workbench and wait until it is painted."""
        self.page.goto(self.editor.address(**query), wait_until="commit")  # some frames load for ever
        return self.painted()

    def painted(self) -> Self:
        """Return once the status bar shows something."""
        self.page.wait_for_selector(".monaco-workbench .part.statusbar .statusbar-item", timeout=START_SECONDS * 1000)
        return self

    def shot(self, name: str) -> Path:
        """Keep a picture of the window."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        path = SHOTS / f"{name}.png"
        self.page.screenshot(path=str(path))
        return path

    def run(self, title: str) -> None:
        """A command of the palette; the palette does not refresh while it is open, so it is opened again."""
        deadline = time.monotonic() + 3 * STEP_SECONDS
        while True:
            assert time.monotonic() < deadline, f"no command {title}"
            self.page.keyboard.press("F1")
            box = self.page.locator(".quick-input-widget .quick-input-box input").first
            if not self._seen(box):
                self.page.keyboard.press("Escape")
                self.chat.locator(".interactive-input-part .monaco-editor").first.click()  # where keys are heard
                continue
            box.fill(f">{title}")
            row = self.page.locator(".quick-input-widget .quick-input-list .monaco-list-row", has_text=title).first
            if self._seen(row):
                row.click()
                return
            self.page.keyboard.press("Escape")

    def _seen(self, element: Any) -> bool:
        """Whether it comes up soon."""
        for _ in range(20):
            if element.is_visible():
                return True
            self.page.wait_for_timeout(100)
        return False

    def open_file(self, name: str) -> None:
        """Open a file of the workspace and put the cursor into it."""
        self.page.keyboard.press("Control+P")
        box = self.page.locator(".quick-input-widget .quick-input-box input").first
        box.wait_for(state="visible")
        box.fill(name)
        row = self.page.locator(".quick-input-widget .quick-input-list .monaco-list-row", has_text=name).first
        row.wait_for(state="visible")
        self.page.keyboard.press("Enter")
        self.page.locator(f'.tabs-container .tab[aria-label^="{name}"]').first.wait_for(state="visible")
        self.page.locator(".editor-group-container.active .monaco-editor .view-lines").first.click()

    # --- the extension, seen on the screen ---------------------------------------------------------

    @property
    def chat(self) -> Any:
        """The editor's own chat view."""
        return self.page.locator(".part.auxiliarybar")

    @property
    def panel(self) -> Any:
        """The page of our chat panel: a frame in a frame."""
        return self.page.frame_locator("iframe.webview.ready").frame_locator("iframe#active-frame")

    def ready(self, model: str = "alpha") -> Self:
        """Return once a bridge runs and the editor's own picker shows our models."""
        self.until(self.editor.bridges, "a bridge runs", 2 * STEP_SECONDS)
        self.until(lambda: model in self.picked(), f"the native picker shows {model}", 2 * STEP_SECONDS)
        return self

    def picked(self) -> str:
        """The label of the native picker."""
        bar = self.chat.locator(".chat-input-toolbars")
        return str(bar.first.inner_text()).replace("\n", " ") if bar.count() else ""

    def status(self) -> str:
        """Our entry of the status bar, with its icon's name."""
        entry = self.page.locator('.part.statusbar [id="modeld.modeld.modeld.status"]')
        return str(entry.first.get_attribute("aria-label") or "") if entry.count() else ""

    def ask(self, text: str) -> None:
        """A message in the editor's own chat."""
        self.chat.locator(".interactive-input-part .monaco-editor").first.click()
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    def new_chat(self) -> None:
        """A fresh conversation in the editor's own chat."""
        self.chat.locator('.composite.title [aria-label^="New Chat"], [aria-label^="New Chat"]').first.click()
        self.until(lambda: not self.chat.locator(".interactive-response").count(), "the chat is empty")

    def said(self, text: str, seconds: float = STEP_SECONDS) -> None:
        """Return once the editor's own chat shows the text."""
        self.until(lambda: text in self.chat.inner_text(), f"the chat shows {text!r}", seconds)

    def stop(self) -> None:
        """The stop button of the editor's own chat."""
        self.chat.locator(".chat-input-toolbars .codicon-stop-circle, .codicon-stop-circle").first.click()

    def offered(self) -> list[str]:
        """The rows of the native picker, opened and closed again."""
        rows = self._native_picker().inner_text().split("\n")
        self.shot("picker")
        self.page.keyboard.press("Escape")
        return [row.strip() for row in rows if row.strip()]

    def choose(self, name: str) -> None:
        """Another model in the native picker."""
        self._native_picker().get_by_text(name, exact=True).first.click()
        self.until(lambda: name in self.picked(), f"{name} is picked")

    def _native_picker(self) -> Any:
        self.chat.locator(".chat-input-toolbars .action-label", has_text=self.model_label()).first.click()
        widget = self.page.locator(".action-widget").first
        widget.wait_for(state="visible")
        others = widget.get_by_text("Other Models", exact=True)
        self.until(lambda: others.count() or "beta" in widget.inner_text(), "the picker has rows")
        if "beta" not in widget.inner_text() or "alpha" not in widget.inner_text():
            others.first.click()  # the editor remembers whether this part was open
        self.until(lambda: all(name in widget.inner_text() for name in ("alpha", "beta")), "it has all rows")
        return widget

    def model_label(self) -> str:
        """The name on the native picker's button."""
        for name in ("alpha", "beta", "Auto"):
            if name in self.picked():
                return name
        raise AssertionError(f"no model on the button: {self.picked()}")

    def dialog(self, button: str) -> str:
        """The text of the modal dialog, answered with a button."""
        box = self.page.locator(".monaco-dialog-box")
        box.wait_for(state="visible")
        text = str(box.inner_text())
        box.get_by_role("button", name=button, exact=True).click()
        return text

    def toasts(self) -> list[str]:
        """The texts of the notifications on screen."""
        found: list[str] = self.page.locator(".notifications-toasts .notification-list-item").all_inner_texts()
        return found

    def until(self, what: Callable[[], Any], label: str, seconds: float = STEP_SECONDS) -> Any:
        """The first true answer of `what`; the page lives on while it is waited for."""
        deadline = time.monotonic() + seconds
        while not (answer := what()):
            if time.monotonic() > deadline:
                self.shot(f"failed-{os.getpid()}")
                raise AssertionError(f"not within {seconds} s: {label}\nchat: {self.chat.inner_text()[-1500:]}")
            self.page.wait_for_timeout(30)
        return answer


def ended(process: psutil.Process) -> bool:
    """Whether the process is gone."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def copy_workspace(editor: Editor, files: dict[str, str]) -> None:
    """Files of a user's project."""
    for name, text in files.items():
        target = editor.workspace / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def git(editor: Editor, *arguments: str) -> None:
    """A Git command in the workspace."""
    settings = ["-c", "user.email=a@example.org", "-c", "user.name=A", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *settings, *arguments], cwd=editor.workspace, check=True, capture_output=True)


def remove_shots() -> None:
    """Pictures of an older run say nothing of this one."""
    shutil.rmtree(SHOTS, ignore_errors=True)
