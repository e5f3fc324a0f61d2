"""A window of VS Code, as the bridge has it: how fast it greets, and how fast Stop frees the slot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.table import Table
from clients.editor import Editor, LspError
from clients.home import Home, command
from clients.script import write_models
from modeld_process import ENDLESS, write_script

ROUNDS = 10
#: Tokens a second of the scripted engine.
RATES = (25, 100)


def measure(table: Table) -> None:
    """With a scripted engine: what is measured is all that stands between it and the editor."""
    for rate in RATES:
        with Home() as home:
            home.environ.update(write_script(home.folder, [ENDLESS], token_s=1 / rate))
            write_models(home, "alpha")
            home.start("scripted")
            if rate == RATES[0]:
                table.at_most("spawn to LSP initialize answer", _greetings(home), 700, "ms", scale=1000)
            answered, free = _stops(home)
            table.at_most(f"Stop to the editor's answer, {rate} tokens/s", answered, 50, "ms", scale=1000)
            table.at_most(f"Stop to a free slot, {rate} tokens/s", free, 150, "ms", scale=1000)


@contextmanager
def _window(home: Home) -> Iterator[Editor]:
    with Editor(home.environ, home.work, [command("acp-bridge"), "lsp"]) as editor:
        yield editor


def _greetings(home: Home) -> list[float]:
    seconds = []
    for round_ in range(ROUNDS + 1):
        began = time.perf_counter()
        with _window(home) as editor:
            editor.initialize()
            if round_:  # the first one fills the caches of the file system
                seconds.append(time.perf_counter() - began)
    return seconds


def _stops(home: Home) -> tuple[list[float], list[float]]:
    """From the cancel to its answer, and to a status that says that nothing runs."""
    answered, free = [], []
    with _window(home) as editor:
        editor.initialize()
        model = editor.model("alpha")["id"]
        for _ in range(ROUNDS):
            turn = editor.turn(model, "go on")
            editor.until(lambda turn=turn: len(turn.events) > 3 and turn.texts(), "some text")  # type: ignore[misc]
            began = time.perf_counter()
            editor.cancel(turn)
            try:
                editor.wait(turn)
            except LspError as error:
                if error.code != -32800:
                    raise
            answered.append(time.perf_counter() - began)
            while editor.request("modeld/status")["busy"] is not None:
                pass
            free.append(time.perf_counter() - began)
    return answered, free
