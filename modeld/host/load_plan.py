"""Asks an engine what a load would take, in a process to throw away. Daemon side; imports nothing native."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import anyio
import msgspec

from modeld.engine.dry_run import Question, Sizes
from shared.catalog.identity import RequestedIdentity

#: A dry run reads the vocabulary and little else; one that takes longer than this tells nothing.
PLAN_SECONDS = 20.0
_MODULES = {"llama": "modeld.engine.llama.dry_run"}


async def ask_engine(
    identity: RequestedIdentity, contexts: Sequence[int], command: Sequence[str] | None = None
) -> list[Sizes] | None:
    """The engine's own arithmetic for each context, or None where it has none to offer (then the formula has to do).

    None also where the process fails, whatever ends it: an estimate is advice, and the load itself
    will say what is wrong. `command` replaces the process in tests.
    """
    module = _MODULES.get(identity.backend)
    if module is None:
        return None
    from tempfile import TemporaryFile

    program = list(command or (sys.executable, "-P", "-m", module))
    with anyio.move_on_after(PLAN_SECONDS):
        try:
            with TemporaryFile() as question:  # no pipe: a process may end before it reads one
                question.write(msgspec.msgpack.encode(Question(identity=identity, contexts=tuple(contexts))))
                question.seek(0)
                done = await anyio.run_process(
                    program,
                    stdin=question,
                    check=False,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                )
        except OSError:
            return None
        if done.returncode != 0:
            return None
        try:
            sizes = msgspec.msgpack.decode(done.stdout, type=list[Sizes])
        except msgspec.MsgspecError:
            return None
        return sizes if len(sizes) == len(contexts) else None
    return None
