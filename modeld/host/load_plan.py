"""Tries a load in a process to throw away: what it would take, or why it would fail. Daemon side, nothing native."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from tempfile import TemporaryFile
from typing import IO

import anyio
import msgspec

from modeld.engine.dry_run import DryRun, Question, Sizes
from modeld.pipe import exits
from shared.errors import ModelLoadFailed, from_wire
from shared.text.nesting import decode_json
from shared.text.shown import one_line

#: A dry run reads the vocabulary and little else; one that takes longer than this tells nothing.
PLAN_SECONDS = 60.0
#: Engines that count in it what a load would take.
COUNTING = frozenset({"llama"})
#: Engines that have one.
_TRIED = frozenset({"llama", "openvino"})
#: What native code prints before it ends itself, behind the place in its own sources; looked for in the last bytes.
_ASSERTION = "GGML_ASSERT"
_LAST_BYTES = 65_536
_WORDS = 200


class NoAnswer(Exception):
    """A dry run ended without an answer. `step` is what it was at, "" before the first; `reason` is for people."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(reason)
        self.step = step
        self.reason = reason


async def ask_engine(question: Question, command: Sequence[str] | None = None) -> list[Sizes] | None:
    """The engine's own arithmetic for each context, [] where it has none; None where the engine has no dry run.

    Raises what the load would raise (ModelLoadFailed, UnsupportedFeature), and NoAnswer where the process crashed,
    took too long or could not start. `command` replaces the process in tests.
    """
    backend = question.identity.backend
    if backend not in _TRIED:
        return None
    program = list(command or (sys.executable, "-P", "-m", "modeld.worker.dry_run", backend))
    with TemporaryFile() as asked, TemporaryFile() as answer, TemporaryFile() as log:
        asked.write(msgspec.msgpack.encode(question))  # no pipe: a process may end before it reads one
        asked.seek(0)
        code = await _run(program, asked, answer, log)
        last = [b"", *_lines(answer)][-1]
        if code == exits.CLOSED:
            return _told(last, len(question.contexts))
        step = last.decode("utf-8", "replace")
        if code == exits.TEMPLATE_DEADLINE and step == "template":
            raise ModelLoadFailed(model=question.identity.name, stage="template", reason=exits.TEMPLATE_TOO_SLOW)
        raise NoAnswer(step, _why(code, log))


async def _run(program: list[str], asked: IO[bytes], answer: IO[bytes], log: IO[bytes]) -> int | None:
    """The exit code, None for one that took too long (it is gone by then). Raises NoAnswer."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        with anyio.move_on_after(PLAN_SECONDS):
            done = await anyio.run_process(program, stdin=asked, stdout=answer, stderr=log, check=False, env=environ)
            return done.returncode
    except OSError as error:
        raise NoAnswer("", f"it cannot be started: {error.strerror}") from error
    return None


def _told(line: bytes, count: int) -> list[Sizes]:
    try:
        found = decode_json(line, DryRun)
    except msgspec.MsgspecError as error:
        raise NoAnswer("", "it gave no answer") from error
    if found.error is not None:
        raise from_wire(found.error)
    if len(found.sizes) not in (0, count):
        raise NoAnswer("", "it gave no answer")
    return list(found.sizes)


def _lines(file: IO[bytes]) -> list[bytes]:
    file.seek(0)
    return file.read().splitlines()


def _why(code: int | None, log: IO[bytes]) -> str:
    if code is None:
        return f"no answer within {PLAN_SECONDS:.0f} s"
    log.seek(max(log.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
    told = [line for line in log.read().decode("utf-8", "replace").splitlines() if _ASSERTION in line]
    words = f" ({one_line(told[-1].partition(_ASSERTION)[2].strip(), _WORDS)})" if told else ""
    return exits.describe_exit(code) + words
