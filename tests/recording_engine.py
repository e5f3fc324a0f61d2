"""An engine of the product behind the real worker that also writes down what it was given and what it sampled.

For tests alone, as the scripted one: a modeld that is started with `recording_environ(...)` and `--backend scripted`
runs it. The product itself writes no prompt anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from modeld.engine.backends import ENGINE_VARIABLE
from modeld.engine.contract import (
    AbortFlag,
    DecodeOptions,
    Engine,
    LoadedModel,
    LoadRequest,
    ProgressCallback,
    Purpose,
)
from modeld.engine.factory import make_engine


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One decode: the prompt's tokens, how many of them were warm, and each token that was handed out."""

    prompt: list[int]
    sampled: list[int]
    reused: int
    purpose: Purpose
    options: DecodeOptions


def recording_environ(backend: str, path: Path) -> dict[str, str]:
    """What makes a worker run that backend and add its records to the file `path`."""
    return {ENGINE_VARIABLE: os.pathsep.join((str(Path(__file__).resolve()), backend, str(path)))}


def read_records(path: Path) -> list[Record]:
    """Everything recorded; a worker that was killed may have left half a line."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [msgspec.json.decode(line, type=Record) for line in lines if line.endswith(b"\n")]


def engine(abort: AbortFlag, argument: str) -> Engine:
    """What a worker calls (`modeld.engine.factory`)."""
    backend, _, path = argument.partition(os.pathsep)
    return recorded(make_engine(backend, abort), Path(path))


def recorded(made: Engine, path: Path) -> Engine:
    """`made`, whose methods write down what goes in and what comes out, under the name that it was asked for by."""
    load_model, ensure_prefix, decode = made.load, made.ensure_prefix, made.decode
    given: tuple[list[int], int, Purpose] = ([], 0, "turn")

    def load(request: LoadRequest, progress: ProgressCallback) -> LoadedModel:
        loaded = load_model(request, progress)
        identity = msgspec.structs.replace(loaded.identity, backend=request.identity.backend)
        return msgspec.structs.replace(loaded, identity=identity)

    def ensure(tokens: Sequence[int], purpose: Purpose = "turn", conversation: str | None = None) -> int:
        nonlocal given
        reused = ensure_prefix(tokens, purpose, conversation)
        given = (list(tokens), reused, purpose)
        return reused

    def sample(options: DecodeOptions) -> Iterator[int]:
        prompt, reused, purpose = given
        sampled: list[int] = []
        try:
            for token in decode(options):
                sampled.append(token)
                yield token
        finally:
            record = Record(prompt=prompt, sampled=sampled, reused=reused, purpose=purpose, options=options)
            with path.open("ab") as file:
                file.write(msgspec.json.encode(record) + b"\n")

    made.load = load  # type: ignore[method-assign]
    made.ensure_prefix = ensure  # type: ignore[method-assign]
    made.decode = sample  # type: ignore[method-assign]
    return made
