"""What a load would take, by llama.cpp's own reckoning: `python -P -m modeld.engine.llama.dry_run`.

A process to throw away: it makes the model and its context without memory behind them (some 40 MB and a
tenth of a second, most of it the vocabulary) and reads the sizes from the library's log, since a wrong
combination of parameters ends the process. Standard input: `Question` as msgpack; output: `Sizes`.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import msgspec

from modeld.engine.contract import AbortFlag, LoadRequest
from modeld.engine.dry_run import Question, Sizes
from modeld.engine.llama.library import Library
from modeld.engine.llama.model import LoadedContext
from modeld.engine.llama.vocabulary import Vocabulary
from shared.errors import ModelLoadFailed

_MIB = 1024 * 1024
_WEIGHTS = re.compile(r"file size\s*=\s*([0-9.]+) (MiB|GiB)")
_CACHE = re.compile(r"^(?:llama_kv_cache|llama_memory_recurrent)[\w:]*: size =\s*([0-9.]+) MiB")
_COMPUTE = re.compile(r"(?:compute|output) buffer size =\s*([0-9.]+) MiB")


def sizes_in(lines: list[str]) -> Sizes:
    """Bytes of weights, KV memory and working buffers as the log of one load tells them. Pure."""
    weights = sum(float(size) * (1024 if unit == "GiB" else 1) for size, unit in _all(_WEIGHTS, lines))
    cache = sum(float(size) for size in _all(_CACHE, lines))
    compute = sum(float(size) for size in _all(_COMPUTE, lines))
    return Sizes(weights=int(weights * _MIB), kv=int(cache * _MIB), compute=int(compute * _MIB))


def _all(pattern: re.Pattern[str], lines: list[str]) -> list[Any]:
    return [found for line in lines for found in pattern.findall(line)]


def measure(question: Question) -> list[Sizes]:
    """Raises ModelLoadFailed, BackendUnavailable."""
    library, abort = Library(), AbortFlag()
    read: list[str] = []
    library.tap.lines = read
    request = LoadRequest(identity=question.identity, model={}, num_ctx=question.contexts[0], threads=1)
    native = LoadedContext(library, request, dry=True)
    native.load_model(lambda _: None, abort)
    special = Vocabulary(library.api, native.model).special
    fill = None not in (special.fim_prefix, special.fim_suffix, special.fim_middle)
    found = []
    for num_ctx in question.contexts:
        library.tap.lines = lines = list(read)
        request = msgspec.structs.replace(request, num_ctx=num_ctx)
        context = LoadedContext(library, request, dry=True)
        context.model = native.model
        context.open_context(fill=fill, abort=abort)
        found.append(sizes_in(lines))
    return found


def main() -> None:
    """Entry of the process; exit code 0 with an answer, else none."""
    private = os.dup(1)
    os.dup2(2, 1)
    question = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Question)
    try:
        answer = msgspec.msgpack.encode(measure(question))
    except ModelLoadFailed as error:
        sys.stderr.write(f"{error.data['stage']}: {error.data['reason']}\n")
        os._exit(2)
    os.write(private, answer)
    os._exit(0)  # no native destructor on what was never allocated


if __name__ == "__main__":
    main()
