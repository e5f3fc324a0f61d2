"""Throws damaged model outputs at the parsers of every family.

    python tests/fuzz/fuzz_output.py [--count 1000000] [--seed 1]

Every output must be read to its end: the same however it is split, with calls whose arguments are JSON objects, and
with no more work than `MOST_WORK` for each character and piece. Work is counted by the reader itself (looks and
characters copied), so neither a slow machine nor a fast one decides.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "unit" / "output"), str(HERE.parent.parent)]

from outputs import SAMPLES, TOOLS  # noqa: E402

from modeld.output.calls import STYLES  # noqa: E402 - after the path
from modeld.output.format import OutputFormat  # noqa: E402
from modeld.output.parser import OutputParser, format_marks  # noqa: E402
from modeld.output.reader import REST  # noqa: E402
from shared.protocol.api import ReasoningDelta, TextDelta, ToolCallDelta  # noqa: E402
from shared.text.nesting import DEEPEST, too_deep  # noqa: E402

#: Looks and copied characters that one character or one piece may cost. Most take fewer than 10; a mark that begins a
#: call has what follows it copied for the grammar of that call, up to `REST` characters.
MOST_WORK = 48
BRACKETS = "[]{}()<>\"':,`\\"
DEEP = ('{"function":', '{"arguments":', '{"a":', "[", "{", "(", "{a:", "<think>", "]<]minimax[><a>", "-")

Mutation = Callable[[random.Random, str, tuple[str, ...]], str]


class Case(NamedTuple):
    """One damaged output, and where it is cut into pieces (bytes)."""

    form: OutputFormat
    data: bytes
    cuts: list[int]


class Defect(Exception):
    """An output that was not read as every output must be."""


def bases() -> list[tuple[OutputFormat, str]]:
    """The samples, and every opener of every family before the bodies of the others."""
    arguments = '{"path": "a", "more": {"x": [1, true]}}'
    bodies = (
        f'{{"name": "read", "arguments": {arguments}}}',
        f'[{{"read": {arguments}}}]',
        f"read\n{arguments}",
        'call:read{path:<|"|>a<|"|>,more:{x:[1,true]}}',
        "read>\n<parameter=path>\na\n</parameter>\n</function>",
        'read(path="a", more=[1, {"x": None}])',
    )
    made = [
        (OutputFormat(tools=name, reasoning="tags"), opener + body + "".join(style.noise[:1]))
        for name, style in STYLES.items()
        for opener in style.openers
        for body in bodies
    ]
    return [*((sample.form, sample.output) for sample in SAMPLES), *made]


def swap(chooser: random.Random, text: str, marks: tuple[str, ...]) -> str:
    at = [index for index, char in enumerate(text) if char in BRACKETS]
    if not at:
        return text
    place = chooser.choice(at)
    return text[:place] + chooser.choice(BRACKETS) + text[place + 1 :]


def cut(chooser: random.Random, text: str, marks: tuple[str, ...]) -> str:
    return text[: chooser.randrange(len(text) + 1)]


def drop(chooser: random.Random, text: str, marks: tuple[str, ...]) -> str:
    at = chooser.randrange(len(text) + 1)
    return text[:at] + text[at + chooser.choice((1, 1, 3, 10)) :]


def repeat(chooser: random.Random, text: str, marks: tuple[str, ...]) -> str:
    start = chooser.randrange(len(text) + 1)
    stop = min(len(text), start + chooser.choice((1, 2, 8, 40)))
    return text[:start] + text[start:stop] * chooser.choice((2, 3, 20)) + text[stop:]


def mark(chooser: random.Random, text: str, marks: tuple[str, ...]) -> str:
    at = chooser.randrange(len(text) + 1)
    return text[:at] + chooser.choice((*marks, "\n", " ", '"', "\\", "é", "\x00")) + text[at:]


def deep(chooser: random.Random, text: str, marks: tuple[str, ...]) -> str:
    at = chooser.randrange(len(text) + 1)
    return text[:at] + chooser.choice(DEEP) * chooser.choice((DEEPEST, DEEPEST + 1, 600)) + text[at:]


def splice(chooser: random.Random, text: str, marks: tuple[str, ...]) -> str:
    other: str = chooser.choice(SAMPLES).output
    start = chooser.randrange(len(other) + 1)
    at = chooser.randrange(len(text) + 1)
    return text[:at] + other[start : start + 60] + text[at:]


MUTATIONS: tuple[Mutation, ...] = (swap, swap, swap, cut, drop, drop, repeat, mark, mark, splice)


def cases(count: int, seed: int) -> Iterator[Case]:
    """`count` damaged outputs, the same for the same seed."""
    chooser = random.Random(seed)
    sound = [(form, text, format_marks(form)) for form, text in bases()]
    for _ in range(count):
        form, text, marks = chooser.choice(sound)
        for _round in range(chooser.choice((1, 1, 2, 3, 6))):
            text = chooser.choice(MUTATIONS)(chooser, text, marks)
        if chooser.randrange(200) == 0:
            text = deep(chooser, text, marks)
        data = text.encode()
        cuts = sorted(chooser.randrange(len(data) + 1) for _ in range(chooser.choice((0, 1, 5, 40))))
        yield Case(form, data, cuts)


def try_case(case: Case) -> float:
    """Work for each character and piece. Raises Defect."""
    whole, work = _read(case.form, [case.data])
    pieces = [case.data[start:stop] for start, stop in zip([0, *case.cuts], [*case.cuts, None], strict=True)]
    split, more = _read(case.form, pieces)
    if whole != split:
        raise Defect("it is read in another way when it comes in other pieces")
    size = len(case.data) + 1
    most = max((work - REST) / size, (more - REST) / (size + len(pieces)))
    if most > MOST_WORK:
        raise Defect(f"it takes {most:.1f} steps for a character")
    return most


def _read(form: OutputFormat, pieces: list[bytes]) -> tuple[object, int]:
    parser = OutputParser(form, (), TOOLS, new_id=lambda: "id")
    events = []
    try:
        for piece in pieces:
            events += parser.feed(piece)
        last, calls = parser.finish()
    except Exception as error:
        raise Defect(f"{type(error).__name__}: {error}") from error
    events += last
    for call in calls:
        value = json.loads(call.arguments)
        if not isinstance(value, dict) or too_deep(value):
            raise Defect("a call whose arguments are no plain object")
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    thoughts = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    parts = "".join(event.arguments for event in events if isinstance(event, ToolCallDelta))
    return (text, thoughts, parts, [(call.name, call.arguments) for call in calls]), parser.work


def run(count: int, seed: int) -> tuple[list[str], float]:
    """One line for each defect, and the most work that a character took."""
    defects: list[str] = []
    most = 0.0
    for number, case in enumerate(cases(count, seed)):
        try:
            most = max(most, try_case(case))
        except Defect as defect:
            defects.append(f"seed {seed} case {number} ({case.form.tools}, {case.form.reasoning}): {defect}")
    return defects, most


def main(arguments: list[str] | None = None) -> int:
    """Exit 1 when an output was not read as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    started = time.monotonic()
    defects, most = run(options.count, options.seed)
    seconds = time.monotonic() - started
    print(f"{options.count} outputs (seed {options.seed}) in {seconds:.0f} s: at most {most:.1f} steps a character")
    for line in defects:
        print(f"DEFECT {line}")
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
