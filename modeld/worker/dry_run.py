"""All of a load that needs no memory of the model's size: `python -P -m modeld.worker.dry_run BACKEND`.

A process to throw away, since native code may end it over a file or a combination of options: then that cost nobody
his model. Standard input: `Question` as msgpack. Standard output: lines, the last is `DryRun` as JSON; those before
name the step that began, so that the daemon knows in which one the process ended.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import msgspec

from modeld.engine.contract import AbortFlag, LoadRequest
from modeld.engine.dry_run import DryRun, Question
from modeld.engine.factory import make_engine
from modeld.pipe import exits
from modeld.worker.chat import compiled
from modeld.worker.place import of_error
from modeld.worker.template_limits import RenderGuard
from shared.errors import BackendUnavailable, ModeldError, ModelLoadFailed
from shared.text.shown import one_line

_WORDS = 300


def dry_run(backend: str, question: Question, began: Callable[[str], None]) -> DryRun:
    """What the load would run into, or what it would take. `began` gets the name of each step."""
    engine = make_engine(backend, AbortFlag())
    name = question.identity.name
    began("import")
    try:
        engine.prepare()
        request = LoadRequest(identity=question.identity, model=question.model, num_ctx=question.contexts[0], threads=1)
        loaded, sizes = engine.dry_run(request, question.contexts, began)
        began("template")
        compiled(loaded.template, engine.special, name, RenderGuard(question.template_deadline))
    except BackendUnavailable:
        return DryRun()  # it is told when the worker comes up
    except ModeldError as error:
        return DryRun(error=error.to_wire())
    except Exception as error:  # the process's own border, as the worker's; nobody's words are in it yet
        told = f"{type(error).__name__} at {of_error(error).name}: {(str(error).splitlines() or [''])[-1]}"
        return DryRun(error=ModelLoadFailed(model=name, stage="weights", reason=one_line(told, _WORDS)).to_wire())
    return DryRun(sizes=tuple(sizes))


def main(backend: str) -> None:
    """Entry of the process; its last line is there when the exit code is 0."""
    private = os.dup(1)
    os.dup2(2, 1)
    question = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Question)
    found = dry_run(backend, question, lambda step: _tell(private, step.encode()))
    _tell(private, msgspec.json.encode(found))
    os._exit(exits.CLOSED)  # no native destructor on what was never allocated


def _tell(descriptor: int, line: bytes) -> None:
    os.write(descriptor, line + b"\n")


if __name__ == "__main__":
    main(sys.argv[1])
