"""The llama engine alone in this process, asked in tokens: what speculating, loops and overhead are measured with."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from modeld.engine.contract import AbortFlag, DecodeOptions, LoadRequest
from modeld.engine.llama.engine import LlamaEngine
from modeld.template.render import Template
from shared.catalog.identity import RequestedIdentity


class Timed(NamedTuple):
    """One turn: seconds of its parts, and the tokens of prompt and answer."""

    prefix_s: float
    prefill_s: float
    first_s: float
    decode_s: float
    reused: int
    prefilled: int
    said: list[int]

    @property
    def rate(self) -> float:
        """Tokens a second behind the first."""
        return (len(self.said) - 1) / self.decode_s


class Bare:
    """One loaded model."""

    def __init__(self, path: Path, *, speculation: bool = True, threads: int = 0) -> None:
        self.engine = LlamaEngine(AbortFlag())
        with quiet():
            self.engine.prepare()
            self.loaded = self.engine.load(
                LoadRequest(
                    identity=RequestedIdentity(backend="llama", name=path.stem, digest="bench", path=str(path)),
                    model={},
                    num_ctx=4096,
                    threads=threads,
                    parked_bytes=1 << 30,
                    speculation=speculation,
                ),
                lambda done, total: None,
            )
        special = self.engine.special
        self.template = Template(self.loaded.template, special.bos_text, special.eos_text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.engine.close()

    def tokens(self, messages: list[dict[str, Any]]) -> list[int]:
        """A conversation, rendered."""
        return self.engine.tokenize(self.template.render(messages, [], None), special=True)

    def turn(self, prompt: Sequence[int], options: DecodeOptions) -> Timed:
        """Whatever of the prompt is warm is reused."""
        clock = time.perf_counter
        began = clock()
        reused = self.engine.ensure_prefix(prompt)
        prefixed = clock()
        self.engine.prefill_suffix(options, lambda done, total: None)
        prefilled = first = clock()
        said: list[int] = []
        for token in self.engine.decode(options):
            said.append(token)
            if len(said) == 1:
                first = clock()
        ended = clock()
        self.engine.end_turn()
        return Timed(
            prefixed - began, prefilled - prefixed, first - prefilled, ended - first, reused, len(prompt) - reused, said
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What native libraries print goes nowhere."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
