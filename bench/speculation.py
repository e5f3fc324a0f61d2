"""Answers that repeat their conversation, drafted from it: what that gains, and what it costs where nothing repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.bare import Bare
from bench.table import Table, spread
from modeld.engine.contract import DecodeOptions

ROUNDS = 6
FIELDS = ("host", "port", "user", "password", "timeout", "retries", "proxy", "encoding")
SOURCE = "\n".join(
    [
        "class Settings:",
        *(f"    {name}: str = read_setting(source, '{name}', default=None)" for name in FIELDS),
        "",
        *(
            f"    def with_{name}(self, value: str) -> 'Settings':\n"
            f"        return dataclasses.replace(self, {name}=check_{name}(value))\n"
            for name in FIELDS
        ),
    ]
)
STORIES = ("the sea", "a lost key", "two brothers", "a train at night", "the first snow", "an old map", "a garden")


def measure(table: Table, model: Path) -> None:
    """Rates with and without, in interleaved pairs: a file said again, and stories sampled as a chat is."""
    with Bare(model) as speculating, Bare(model, speculation=False) as plain:
        for what, asked, limit in (
            ("a file said again with one name changed", _edit, 1.1),
            ("stories, sampled by the defaults", story, 0.98),
        ):
            ratios, ours, theirs = [], [], []
            for number in range(ROUNDS + 1):
                messages, options = asked(number)
                rates = {}
                for engine in (speculating, plain) if number % 2 else (plain, speculating):
                    rates[engine] = engine.turn(engine.tokens(messages), options).rate
                if number:
                    ours.append(rates[speculating])
                    theirs.append(rates[plain])
                    ratios.append(rates[speculating] / rates[plain])
            table.add(f"llama: {what}, drafted from its context, tokens/s", spread(ours))
            table.add(f"llama: {what}, token by token, tokens/s", spread(theirs))
            table.at_least("llama: the first by the second", ratios, limit, "")


def edit(number: int) -> list[dict[str, Any]]:
    """A question whose answer repeats it."""
    name = FIELDS[number % len(FIELDS)]
    ask = f"Here is a file:\n\n{SOURCE}\n\nWrite the whole file again, with `{name}` renamed to `{name}_{number}`."
    return [{"role": "user", "content": ask}]


def _edit(number: int) -> tuple[list[dict[str, Any]], DecodeOptions]:
    return edit(number), DecodeOptions(max_tokens=400)


def story(number: int) -> tuple[list[dict[str, Any]], DecodeOptions]:
    """A question whose answer repeats nothing, sampled as a chat is."""
    messages = [{"role": "user", "content": f"Write a story about {STORIES[number % len(STORIES)]}."}]
    options = DecodeOptions(max_tokens=300, temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, seed=number)
    return messages, options
