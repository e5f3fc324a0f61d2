"""The service manager of this platform: where its file stands, and the commands that make it read it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from modeld.service import files
from shared.paths import DataRoot

#: A manager that does not answer is given up. Seconds.
COMMAND_SECONDS = 30.0
#: Variables that decide which modeld this is; a session's services do not have the shell's.
CARRIED = ("MODELD_DATA_ROOT", "MODELD_CONFIG", "MODELD_MODEL_FOLDERS")


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One manager: `path` and `text` of its file, the commands for each verb, and how text is stored there."""

    manager: str
    path: Path
    text: str
    install: list[list[str]]
    remove: list[list[str]]
    status: list[str]
    encoding: str = "utf-8"


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What is started at login, and by which command."""

    program: files.Program
    command: list[str]


def daemon(backend: str | None) -> Start:
    """The daemon itself."""
    chosen = ["--backend", backend] if backend else []
    return Start(program=files.DAEMON, command=[sys.executable, "-P", "-m", "modeld", "serve", "--quiet", *chosen])


def http(root: DataRoot, port: int) -> Start:
    """`acp-bridge http` on a port that stays, with a key that stays."""
    where = ["--port", str(port), "--key-file", str(root.path / "http" / "service.key")]
    return Start(program=files.HTTP, command=[sys.executable, "-P", "-m", "acp_bridge", "http", *where])


def service(
    platform: str, home: Path, root: DataRoot, start: Start, environ: Mapping[str, str] = os.environ
) -> Service:
    """The service for a platform (`sys.platform`)."""
    carried = {name: environ[name] for name in CARRIED if environ.get(name)}
    if platform == "win32":
        return _windows(root, start, environ)
    if platform == "darwin":
        return _launchd(home, root, start, carried)
    return _systemd(home, start, carried, environ)


def _systemd(home: Path, start: Start, carried: Mapping[str, str], environ: Mapping[str, str]) -> Service:
    given = environ.get("XDG_CONFIG_HOME", "")
    config = Path(given) if os.path.isabs(given) else home / ".config"
    user, unit = ["systemctl", "--user"], start.program.unit
    return Service(
        manager="systemd",
        path=config / "systemd" / "user" / unit,
        text=files.systemd_unit(start.command, carried, start.program),
        install=[[*user, "daemon-reload"], [*user, "enable", "--now", unit]],
        remove=[[*user, "disable", "--now", unit], [*user, "daemon-reload"]],
        status=[*user, "is-active", unit],
    )


def _launchd(home: Path, root: DataRoot, start: Start, carried: Mapping[str, str]) -> Service:
    label = start.program.label
    path = home / "Library" / "LaunchAgents" / f"{label}.plist"
    domain = f"gui/{_uid()}"
    return Service(
        manager="launchd",
        path=path,
        text=files.launchd_plist(start.command, carried, root.logs, start.program),
        install=[["launchctl", "bootstrap", domain, str(path)]],
        remove=[["launchctl", "bootout", f"{domain}/{label}"]],
        status=["launchctl", "print", f"{domain}/{label}"],
    )


def _uid() -> int:
    if sys.platform == "win32":
        return 0  # launchd is not there
    return os.getuid()


def _windows(root: DataRoot, start: Start, environ: Mapping[str, str]) -> Service:
    domain, name = environ.get("USERDOMAIN", ""), environ.get("USERNAME", "")
    words, task = list(start.command), start.program.name
    windowless = Path(words[0]).with_name("pythonw.exe")
    if windowless.exists():
        words[0] = str(windowless)
    path = root.path / f"{task}-task.xml"
    return Service(
        manager="task scheduler",
        path=path,
        text=files.windows_task(words, f"{domain}\\{name}" if domain else name, start.program),
        install=[
            ["schtasks", "/Create", "/TN", task, "/XML", str(path), "/F"],
            ["schtasks", "/Run", "/TN", task],
        ],
        remove=[["schtasks", "/Delete", "/TN", task, "/F"]],
        status=["schtasks", "/Query", "/TN", task],
        encoding="utf-16",
    )


def run(words: Sequence[str]) -> tuple[int, str]:
    """Run one of the manager's commands: its exit code and what it said. 127 where there is no such command."""
    if shutil.which(words[0]) is None:
        return 127, f"{words[0]} is not on this machine"
    try:
        done = subprocess.run(
            list(words), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 126, str(error)
    return done.returncode, (done.stderr or done.stdout).strip()
