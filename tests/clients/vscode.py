"""A real VS Code for users' worlds: code-server with our extension."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psutil

from clients.home import Home
from modeld.engine.backends import ENGINE_VARIABLE
from waiting import until

ROOT = Path(__file__).resolve().parents[2]
#: screenshots of every run, for a person to judge; never committed
SHOTS = ROOT / ".work" / "vscode"
_BROWSER_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
#: bounds for a machine that is busy with something else, not measurements
START_SECONDS = 180.0
STEP_SECONDS = 90.0
#: what makes the world of a user, and may be set for the bridge
WORLD = (
    "MODELD_DATA_ROOT", "MODELD_CONFIG", "MODELD_MODEL_FOLDERS", "MODELD_BACKEND", "MODELD_TURN_TOKENS", ENGINE_VARIABLE
)  # fmt: skip
#: nothing may come up by itself, nothing may call home
QUIET: dict[str, Any] = {
    "workbench.startupEditor": "none",
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "extensions.autoCheckUpdates": False,
    "extensions.autoUpdate": False,
    "security.workspace.trust.enabled": False,
    "security.workspace.trust.startupPrompt": "never",
    "security.workspace.trust.banner": "never",
    "workbench.enableExperiments": False,
    "workbench.tips.enabled": False,
    "workbench.welcomePage.walkthroughs.openOnInstall": False,
    "chat.allowAnonymousAccess": True,
    "git.openRepositoryInParentFolders": "never",
    "workbench.reduceMotion": "on",
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


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser, which leaves nothing in this user's home."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(prefix="md-", ignore_cleanup_errors=True) as own, sync_playwright() as playwright:
        environ = {**os.environ, "XDG_CONFIG_HOME": own, "XDG_CACHE_HOME": own}
        launched = playwright.chromium.launch(executable_path=paths()["browser"], args=_BROWSER_FLAGS, env=environ)
        yield launched
        launched.close()


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
    """One served editor. Its windows share the extension's files, not its processes.

    It runs in the world of `home`; `world` has its bridges serve another user's for a time.
    """

    def __init__(
        self,
        home: Home,
        *,
        settings: dict[str, Any] | None = None,
        options: Iterable[str] = (),
        extensions: Iterable[Path] = (),
        name: str = "code",
    ) -> None:
        self.home = home
        self.base = home
        self.standard: dict[str, Any] = {"modeld.python": sys.executable, **QUIET, **(settings or {})}
        self.settings = dict(self.standard)
        self.options = list(options)
        self.extensions = list(extensions)
        self.folder = home.folder / name
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
        whole = json.dumps(self.settings, indent=1)
        for name in ("User", "Machine"):
            path = self.user / name / "settings.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_text(encoding="utf-8") != whole:
                path.write_text(whole, encoding="utf-8")

    @contextmanager
    def set(self, **settings: Any) -> Iterator[None]:
        """Other settings for a time."""
        before = self.settings
        self.configure(**settings)
        try:
            yield
        finally:
            self.settings = before
            self.configure()

    @contextmanager
    def world(self, home: Home) -> Iterator[Home]:
        """The windows' bridges in another user's world for a time; none is left there afterwards."""
        before = self.home
        variables = {name: home.environ[name] for name in WORLD if name in home.environ}
        with self.set(**{"modeld.environment": variables}):
            self.home = home
            try:
                yield home
            finally:
                left, self.home = self.bridges(), before

        def moved() -> bool:
            """The windows that had bridges there have them here; one may have been there for a moment in between."""
            return all(ended(bridge) for bridge in left) and not _bridges(home) and (not left or bool(self.bridges()))

        until(moved, "the bridges have left that world", STEP_SECONDS)

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
        wanted = [part for path in (vsix(), *self.extensions) for part in ("--install-extension", str(path))]
        done = subprocess.run(
            self._command(*wanted, "--force"),
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
        until(self._answers, "the editor's server answers", START_SECONDS)

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
        """The bridge processes of all windows, as they are now."""
        return _bridges(self.home)

    def only_bridge(self, *gone: psutil.Process) -> psutil.Process | None:
        """The one bridge there is, once those of `gone` have ended; None while it is otherwise."""
        found = self.bridges()
        alone = len(found) == 1 and found[0] not in gone and all(ended(process) for process in gone)
        return found[0] if alone else None

    def only_host(self) -> psutil.Process | None:
        """The one extension host there is; None while it is otherwise."""
        found = [process for process in self.base.processes() if _is(process, "--type=extensionHost")]
        return found[0] if len(found) == 1 else None

    def address(self, **query: str) -> str:
        """The address of a window, on the workspace unless the query names another place."""
        asked = {"folder": str(self.workspace), **query}
        return self.url + "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in asked.items())


def _bridges(home: Home) -> list[psutil.Process]:
    return [process for process in home.processes() if _is(process, "acp_bridge")]


def _is(process: psutil.Process, word: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and any(word in part for part in process.cmdline())
    except psutil.Error:
        return False


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
    """Screenshots of an older run say nothing of this one."""
    shutil.rmtree(SHOTS, ignore_errors=True)
