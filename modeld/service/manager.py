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


def command(backend: str | None) -> list[str]:
    """What the manager runs."""
    return [sys.executable, "-P", "-m", "modeld", "serve", "--quiet", *(["--backend", backend] if backend else [])]


def service(
    platform: str, home: Path, root: DataRoot, backend: str | None, environ: Mapping[str, str] = os.environ
) -> Service:
    """The service for a platform (`sys.platform`)."""
    carried = {name: environ[name] for name in CARRIED if environ.get(name)}
    if platform == "win32":
        return _windows(root, backend, environ)
    if platform == "darwin":
        return _launchd(home, root, backend, carried)
    return _systemd(home, backend, carried, environ)


def _systemd(home: Path, backend: str | None, carried: Mapping[str, str], environ: Mapping[str, str]) -> Service:
    given = environ.get("XDG_CONFIG_HOME", "")
    config = Path(given) if os.path.isabs(given) else home / ".config"
    user = ["systemctl", "--user"]
    return Service(
        manager="systemd",
        path=config / "systemd" / "user" / files.UNIT,
        text=files.systemd_unit(command(backend), carried),
        install=[[*user, "daemon-reload"], [*user, "enable", "--now", files.UNIT]],
        remove=[[*user, "disable", "--now", files.UNIT], [*user, "daemon-reload"]],
        status=[*user, "is-active", files.UNIT],
    )


def _launchd(home: Path, root: DataRoot, backend: str | None, carried: Mapping[str, str]) -> Service:
    path = home / "Library" / "LaunchAgents" / f"{files.LABEL}.plist"
    domain = f"gui/{_uid()}"
    return Service(
        manager="launchd",
        path=path,
        text=files.launchd_plist(command(backend), carried, root.logs),
        install=[["launchctl", "bootstrap", domain, str(path)]],
        remove=[["launchctl", "bootout", f"{domain}/{files.LABEL}"]],
        status=["launchctl", "print", f"{domain}/{files.LABEL}"],
    )


def _uid() -> int:
    if sys.platform == "win32":
        return 0  # launchd is not there
    return os.getuid()


def _windows(root: DataRoot, backend: str | None, environ: Mapping[str, str]) -> Service:
    domain, name = environ.get("USERDOMAIN", ""), environ.get("USERNAME", "")
    program = command(backend)
    windowless = Path(program[0]).with_name("pythonw.exe")
    if windowless.exists():
        program[0] = str(windowless)
    path = root.path / "modeld-task.xml"
    return Service(
        manager="task scheduler",
        path=path,
        text=files.windows_task(program, f"{domain}\\{name}" if domain else name),
        install=[
            ["schtasks", "/Create", "/TN", files.TASK, "/XML", str(path), "/F"],
            ["schtasks", "/Run", "/TN", files.TASK],
        ],
        remove=[["schtasks", "/Delete", "/TN", files.TASK, "/F"]],
        status=["schtasks", "/Query", "/TN", files.TASK],
        encoding="utf-16",
    )


def run(words: Sequence[str]) -> tuple[int, str]:
    """One of the manager's commands: its exit code and what it said. 127 where there is no such command."""
    if shutil.which(words[0]) is None:
        return 127, f"{words[0]} is not on this machine"
    try:
        done = subprocess.run(
            list(words), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 126, str(error)
    return done.returncode, (done.stderr or done.stdout).strip()
