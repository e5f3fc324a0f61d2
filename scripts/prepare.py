"""Brings `.venv` of this checkout to what a command needs: `python scripts/prepare.py EXTRA...`.

Standard library only. Safe to run again; quick when nothing changed: a stamp in `.venv` holds the digest of what
pyproject.toml and constraints.txt say of the installation, and the extras installed so far.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from steps import PYTHON, ROOT, VENV, StepFailed, fail, quiet, say, shown

STAMP = VENV / "modeld-setup.json"
LOG = ROOT / ".work" / "setup.log"
#: a third of llama.cpp's build is for programs that the binding does not have
LLAMA_CMAKE = ROOT / "scripts" / "llama.cmake"
NETWORK = "Check the network and the package index pip is set up with, then run the same command again."


def setup(extras: Iterable[str], optional: Iterable[str] = ()) -> set[str]:
    """Install the package, editable, with `extras`; of `optional`, what can be. Returns the extras that are there.

    Raises StepFailed.
    """
    wanted = set(extras)
    digest = _digest()
    stamp = _read_stamp()
    have = set(stamp.get("extras", [])) if stamp.get("digest") == digest and _works(PYTHON) else set()
    missing = (wanted | set(optional)) - have
    if not missing and have:
        return have
    say(f"setting up {VENV.relative_to(ROOT)} for: {', '.join(sorted(wanted | set(optional)))}")
    LOG.parent.mkdir(exist_ok=True)
    LOG.unlink(missing_ok=True)
    _make_venv()
    have |= _install(wanted | have)
    for extra in sorted(set(optional) - have):
        have |= _try_install(extra, have)
    STAMP.write_text(json.dumps({"digest": digest, "extras": sorted(have)}), encoding="utf-8")
    return have


def _digest() -> str:
    whole = hashlib.sha256(str(sys.version_info[:2]).encode())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    installed = [project["build-system"], project["project"], project["tool"]["hatch"]]  # the rest is of other tools
    whole.update(json.dumps(installed).encode())
    whole.update((ROOT / "constraints.txt").read_bytes())
    whole.update(str(ROOT).encode())  # a checkout that was moved needs its scripts again
    return whole.hexdigest()


def _read_stamp() -> dict[str, Any]:
    try:
        content = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _works(python: Path) -> bool:
    try:
        done = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _make_venv() -> None:
    if _works(PYTHON):
        return
    if VENV.exists() and not (VENV / "pyvenv.cfg").exists():
        raise StepFailed(f"{VENV} exists and is no virtual environment; move it away, then run the same command again.")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not _has_module("ensurepip") and is_root() and shutil.which("apt-get"):
        say(f"  Python {version} lacks its venv module: installing it with apt-get (as root)")
        install_with_apt("python3-venv")
    if _has_module("ensurepip"):
        command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    elif _has_module("virtualenv"):
        command = [sys.executable, "-m", "virtualenv", "--clear", str(VENV)]
    else:
        raise StepFailed(
            f"MISSING: Python {version} at {sys.executable} has no venv module.\n"
            f"  Debian: apt-get install python{version}-venv (as root); any system: python3 -m pip install --user "
            "virtualenv;\n  or name another Python: make PYTHON=/path/to/python3.12 ..."
        )
    quiet("making the virtual environment", command, log=LOG, remedy="Is there room on the disk? See the log.")


def _has_module(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def is_root() -> bool:
    """Whether packages of the system may be installed."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def install_with_apt(*packages: str) -> None:
    """Install packages of Debian; options may stand before them. Raises StepFailed."""
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    remedy = f"Install {' '.join(packages)} by hand, then run the same command again."
    quiet("apt-get update", ["apt-get", "update", "-qq"], log=LOG, remedy=remedy, environ=environ)
    quiet(
        f"apt-get install {' '.join(packages)}",
        ["apt-get", "install", "-y", "-qq", *packages],
        log=LOG,
        remedy=remedy,
        environ=environ,
    )


def _install(extras: set[str]) -> set[str]:
    if "llama" in extras:
        _need_compiler()
    target = f"{ROOT}[{','.join(sorted(extras))}]" if extras else str(ROOT)
    note = ", llama.cpp is built from source: minutes the first time" if "llama" in extras else ""
    command: list[str | Path] = [
        PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off",
        "--constraint", ROOT / "constraints.txt", "--editable", target,
    ]  # fmt: skip
    label = f"installing modeld with {', '.join(sorted(extras)) or 'nothing more'}{note}"
    quiet(label, command, log=LOG, remedy=NETWORK, environ=_build_environ())
    return extras


def _build_environ() -> dict[str, str]:
    """What the build of llama.cpp leaves out, before what the user asks of CMake."""
    ours = shlex.quote(f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={LLAMA_CMAKE.as_posix()}")
    return {**os.environ, "CMAKE_ARGS": f"{ours} {os.environ.get('CMAKE_ARGS', '')}".strip()}


def _try_install(extra: str, have: set[str]) -> set[str]:
    try:
        return _install(have | {extra})
    except StepFailed as error:
        say(f"\n{error}\n")
        say(f"*** {extra} could not be installed: what needs it is NOT tested ***")
        return have


def _need_compiler() -> None:
    """llama-cpp-python comes as source: without its wheel a C and C++ compiler is needed (cmake comes by pip)."""
    if _compiler_found() or _llama_is_built():
        return
    if is_root() and shutil.which("apt-get"):
        say("  no C++ compiler: installing one with apt-get (as root)")
        install_with_apt("build-essential")
    if not _compiler_found():
        raise StepFailed(
            "MISSING: a C and C++ compiler, which the llama engine is built with.\n"
            "  Debian: apt-get install build-essential; Fedora: dnf install gcc-c++; macOS: xcode-select --install;\n"
            "  or use the prebuilt engine: make chat BACKEND=openvino"
        )


def _llama_is_built() -> bool:
    """It is installed already, or pip keeps the wheel of an earlier build."""
    if any(VENV.glob("**/site-packages/llama_cpp_python-*.dist-info")):
        return True
    command = [str(PYTHON), "-m", "pip", "cache", "list", "llama_cpp_python", "--format", "abspath"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0 and ".whl" in done.stdout


def _compiler_found() -> bool:
    if os.environ.get("CC") and os.environ.get("CXX"):
        return True
    pairs = (("cc", "c++"), ("gcc", "g++"), ("clang", "clang++"))
    return any(shutil.which(c) and shutil.which(cxx) for c, cxx in pairs)


def main() -> int:
    """Exit 0 when the extras named on the command line are installed."""
    started = time.monotonic()
    try:
        have = setup(sys.argv[1:])
    except StepFailed as error:
        return fail(error)
    say(f"ready: {', '.join(sorted(have))} ({time.monotonic() - started:.0f} s)")
    return 0 if shown([PYTHON, "-c", "import shared.version"]) == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
