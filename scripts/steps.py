"""Runs the steps of a set-up: one line each, the whole output kept in a log, a failure explained.

Standard library only: this runs before anything is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")


class StepFailed(Exception):
    """A step failed; the message says what is missing and what to do."""


def say(text: str) -> None:
    """One line for the person who waits, flushed."""
    print(text, flush=True)


def quiet(
    label: str,
    command: Sequence[str | Path],
    *,
    log: Path,
    remedy: str,
    environ: Mapping[str, str] | None = None,
    folder: Path = ROOT,
) -> None:
    """Run in `folder`, output in `log`; print the label and how long it took. Raises StepFailed with the last lines."""
    print(f"  {label} ... ", end="", flush=True)
    started = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        sink.write(f"\n$ {' '.join(map(str, command))}\n".encode())
        sink.flush()
        mark = sink.tell()
        code = _run(command, stdout=sink, environ=environ, folder=folder)
    say(f"{'done' if code == 0 else 'FAILED'} ({time.monotonic() - started:.0f} s)")
    if code != 0:
        with log.open("rb") as source:
            source.seek(mark)
            tail = source.read()[-3000:].decode(errors="replace")
        raise StepFailed(f"{tail}\n{label} failed (exit {code}; the whole output is in {log}).\n  {remedy}")


def shown(command: Sequence[str | Path], *, environ: Mapping[str, str] | None = None) -> int:
    """Run with the output shown as it comes; the exit code."""
    return _run(command, stdout=None, environ=environ)


def captured(command: Sequence[str | Path]) -> tuple[int, str]:
    """Run to its end; the exit code and everything it said."""
    with tempfile.TemporaryFile() as said:
        code = _run(command, stdout=said, environ=None)
        said.seek(0)
        return code, said.read().decode(errors="replace")


def _run(
    command: Sequence[str | Path],
    *,
    stdout: IO[bytes] | None,
    environ: Mapping[str, str] | None,
    folder: Path = ROOT,
) -> int:
    try:
        return subprocess.run(
            [str(part) for part in command],
            cwd=folder,
            env=dict(environ) if environ is not None else None,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT if stdout is not None else None,
            check=False,
        ).returncode
    except OSError as error:
        raise StepFailed(f"{command[0]} could not be run: {error}") from error


def fail(error: StepFailed) -> int:
    """Print why a set-up ended early; the exit code for it."""
    print(f"\n{error}", file=sys.stderr, flush=True)
    return 1
