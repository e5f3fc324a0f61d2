"""Texts that repeat themselves and are wanted, and loops that are not: the two sides that the loop stop lies between.

Each comes with the request that it answers. Made by rule, with no chance in it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Answer(NamedTuple):
    """One text, and what it was asked with."""

    name: str
    request: str
    text: str


SCHOOL = "I will not talk in class.\n"
MANTRA = "Hare Krishna Hare Krishna Krishna Krishna Hare Hare\n"
REFRAIN = "Row, row, row your boat,\nGently down the stream.\n"
CODE = "    if (buffer[i] == 0) { count += 1; }\n"
SENTENCES = (
    "la femme, ",
    "of course. ",
    "I'm here to help with your coding needs. ",
    "I'm here for a chat.\n\n",
    "#\n\n",
    "The beauty of nature is in its simplicity.\n\n",
    "```python\n```\n\n",
    "This will output:\n\n```\n4\n```\n\n",
    "Here is a README for a Python script:\n\n```\n\n```\n\n",
    "data science applications, ",
    "Result: \n",
    "Expected Output:\n",
    "Input:\nOutput:\n",
    "File Structure:\n\n    File Name:\n\n",
    "It is also a perfect square of integer n because it is a perfect square. ",
    "我可以帮助你编写代码。",
    "Ich kann dir beim Programmieren helfen. ",
    "Я помогу тебе с кодом. ",
    "मैं आपकी मदद कर सकता हूँ। ",
    "The user wants a file. Let me read the file again. ",
    "Wait, let me check that again.\n\nThe answer is 4, so it is right.\n\n",
)
PROSE = (
    "The function reads every line of the file and keeps the ones that begin with a name which the caller gave. "
    "After that it sorts them by length, joins equal neighbours and returns the list to whoever asked for it. "
    "Errors are logged once, and the next file is taken up where the last one had to be left. "
)
ROWS = ("0", "<|im_end|>", "1.", "the ", "    pass\n", "| 0 | 0 | 0 |\n", '{"a": 0, "b": null},\n', "nop\n")


def wanted() -> list[Answer]:
    """More than 200 texts that must come through whole."""
    return [
        Answer(f"{family.__name__[1:]}-{place}", *pair) for family in FAMILIES for place, pair in enumerate(family())
    ]


def loops() -> list[Answer]:
    """More than 100 loops, each longer than it may get."""
    return list(_loops())


def _loops() -> Iterator[Answer]:
    prose = PROSE.split()
    for words in (3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377):
        for phase in range(0, 40, 8):
            block = " ".join(
                f"{prose[(place * 7 + phase) % len(prose)]}{'' if place % 5 else '.'}" for place in range(words)
            )
            lead = "Certainly! Here is what I found out about it. " * (phase % 3 > 0)
            yield Answer(f"prose-{words}-{phase}", "Explain this file", lead + _many(block + " ", 13_000)[phase:])
    for place, block in enumerate((*SENTENCES, *ROWS)):
        for phase in (0, 1, len(block) // 2):
            yield Answer(f"real-{place}-{phase}", "hello", "Hello! " + _many(block, 10_000)[phase:])


def _many(block: str, characters: int) -> str:
    return block * (characters // len(block) + 2)


Pairs = Iterator[tuple[str, str]]


def _zeros() -> Pairs:
    for count in (50, 100, 300, 500):
        yield f"print 0 {count} times", "0" * count
        yield "an array of zeros, please", "[" + ", ".join(["0"] * count) + "]"
        yield "zeros, one a line", "0\n" * count
        yield "a blank bitmap", "```\n" + (("." * 40) + "\n") * (count // 10) + "```"


def _asked_for() -> Pairs:
    for count in (20, 50, 100, 500):
        yield f"Write 'I will not talk in class.' {count} times", SCHOOL * count
        yield f"print hello {count} times", "hello\n" * count
        yield f"Say the mantra {min(count, 108)} times", MANTRA * min(count, 108)
        yield (
            f"{count} lines of All work and no play makes Jack a dull boy",
            ("All work and no play makes Jack a dull boy.\n" * count),
        )
    yield "Write I will not talk in class on the board, many times", SCHOOL * 100
    yield "Print hello world one thousand times", "hello world\n" * 500
    yield "1,000 times the word yes", "yes " * 1000
    yield "Ein Satz hundert Mal: Ich soll nicht stören", "Ich soll nicht stören. " * 100
    yield "我不再迟到 写一百遍", "我不再迟到。\n" * 100


def _tables() -> Pairs:
    for rows in (10, 25, 60):
        yield "a table", "| a | b | c |\n| --- | --- | --- |\n" + "| 0 | 0 | 0 |\n" * rows
        yield "a table", "| Name | State | Owner |\n|---|---|---|\n" + "| worker | idle | nobody |\n" * rows
        yield "a table", "<table>\n" + "  <tr><td>0</td><td>none</td></tr>\n" * rows + "</table>\n"
        yield "a matrix in LaTeX", "\\begin{pmatrix}\n" + "0 & 0 & 0 & 0 \\\\\n" * rows + "\\end{pmatrix}\n"
        yield "csv", "id,name,active,city\n" + "1,unknown,true,none\n" * rows
        yield "csv", "state,former,reason\n" + "active,inactive,pending\n" * rows
        yield "tsv", "0\t0\t1.000\tNaN\n" * rows


def _data() -> Pairs:
    for count in (8, 20, 40):
        item = {"name": "Alice", "age": 30, "city": "Paris"}
        yield "json", json.dumps([item] * count)
        yield "json", "[\n" + ",\n".join(["  " + json.dumps(item)] * count) + "\n]"
        yield "json", json.dumps([{"id": None, "tags": [], "on": False}] * count, indent=2)
        yield "a mask", json.dumps([[True, False] * 8] * count)
        yield "nulls", json.dumps([None] * count * 8)
        yield "yaml", "items:\n" + "  - name: widget\n    count: 1\n    tags: []\n" * count
        yield "xml", "<list>\n" + '  <item kind="none"><value>0</value></item>\n' * count + "</list>"
        yield "sql", "INSERT INTO points (x, y, z) VALUES (0, 0, 0);\n" * count
        yield "toml", '[[server]]\nhost = "localhost"\nport = 8080\n' * count


def _bytes() -> Pairs:
    for size in (96, 384, 640):
        yield "base64 of zeros", base64.b64encode(bytes(size)).decode()
        yield "base64", "\n".join([base64.b64encode(bytes(range(57))).decode()] * (size // 57 + 2))
        yield "a hexdump", "".join(f"{place:08x}  {'00 ' * 16} |{'.' * 16}|\n" for place in range(0, size, 16))
        yield "xxd of erased flash", "ff" * size
        yield "a C array", "{" + ", ".join(["0x00"] * (size // 2)) + "}"
        yield "bits", "01" * size
        yield (
            "test vectors",
            "".join("Key = 00000000000000000000000000000000\nMAC = ffffffffffffffff\n" for _ in range(size // 40)),
        )
        yield "a data address", "data:image/png;base64," + "A" * size


def _drawings() -> Pairs:
    for size in (10, 24, 40):
        yield "a box", "+" + "-" * 60 + "+\n" + ("|" + " " * 60 + "|\n") * size + "+" + "-" * 60 + "+\n"
        yield "a chess board", ("# " * 4 + "\n" + " #" * 4 + "\n") * size
        yield "a rule", "-" * size * 20
        yield "rules", ("=" * 78 + "\n") * size
        yield "waves", "~^" * size * 10 + "\n"
        yield "a maze", "".join(("##.##.." * 6) + "\n" for _ in range(size))
        yield "boxes", ("┌──┐" * 10 + "\n" + "│  │" * 10 + "\n" + "└──┘" * 10 + "\n") * (size // 6)
        yield "emoji", "🎉" * size * 5
        yield "emoji rows", "🟥🟧🟨🟩🟦🟪\n" * size
        yield "stars", "★☆" * size * 4
        yield "a svg path", "M0 0 " + "l10 0 l0 10 l-10 0 l0 -10 " * size + "z"


def _code() -> Pairs:
    for count in (10, 30, 60):
        yield "assembly", "    nop\n" * count
        yield "assembly", "    mov eax, [rbx]\n    add rbx, 4\n" * count
        yield "unrolled", CODE * count
        yield "minified", "a(b),c=d[0]||{};" * count
        yield "closing brackets", "}" * count * 4
        yield "tests", "        self.assertEqual(parse(b''), None)\n" * count
        yield "a stub file", "    pass\n" * count
        yield "latex", "\\vspace{1em}\\hrule\n" * count
        yield "brainfuck", "++++++++[>++++<-]>" * count
        yield "css", ".a{margin:0;padding:0}" * count
        yield "verilog", "  assign out = 1'b0;\n" * count
        yield "shell", "echo -n .; sleep 1; " * count
        yield "regular expression", "(?:[0-9]{3})?" * count


def _fenced() -> Pairs:
    for count in (9, 16, 30):
        for kind, record in (
            ("css", ".item {\n  margin: 0;\n  padding: 0;\n}\n\n"),
            ("boards to draw on", "   |   |   \n---+---+---\n   |   |   \n---+---+---\n   |   |   \n\n"),
            ("tablature", "e|---0---0---0---0---|\nB|---1---1---1---1---|\nG|---0---0---0---0---|\n\n"),
            ("a translation to fill in", 'msgid ""\nmsgstr ""\n\n'),
            ("scenarios", "  Given the user is logged in\n  When the button is clicked\n  Then the page is shown\n\n"),
            ("answers to mark", "A) \nB) \nC) \nD) \n\n"),
            ("an empty method", "    def run(self) -> None:\n        pass\n\n"),
            ("records", "BEGIN:VCARD\nFN:\nTEL:\nEND:VCARD\n\n"),
        ):
            yield kind, f"Here it is:\n\n```text\n{record * count}```\n"
    for size in (9, 27):
        row = "| . . . | . . . | . . . |\n"
        yield "a sudoku", "```\n" + ("+-------+-------+-------+\n" + row * 3) * (size // 3) + "```\n"
        yield "an empty sudoku", "grid = [\n" + f"    {[0] * 9},\n" * size + "]\n"
        yield "a picture", "<svg>\n" + '  <rect x="0" y="0" width="10" height="10" fill="white" />\n' * size + "</svg>"
        yield "a table in LaTeX", "\\begin{tabular}{ll}\n" + "Name & Value \\\\ \\hline\n" * size + "\\end{tabular}"
        yield "Go", "\tif err != nil {\n\t\treturn err\n\t}\n" * size
        yield "a tree", "│   ├── file\n" * size
        yield "a plan of meals", "| Day | Breakfast | Lunch |\n|---|---|---|\n" + "|  |  |  |\n" * size
        yield "genes", "ACGT" * size * 10


def _logs() -> Pairs:
    for count in (12, 25, 40):
        yield "a log", "2026-01-01 12:00:00 INFO  heartbeat ok\n" * count
        yield "a log", '127.0.0.1 - - [01/Jan/2026:12:00:00] "GET / HTTP/1.1" 200 0\n' * count
        yield "a ping", "64 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.03 ms\n" * count
        yield "a trace", '  File "a.py", line 3, in f\n    return f(n)\n' * count
        yield "pytest", "tests/test_a.py .......... [100%]\n" * count
        yield "a spectrum", "0.000 0.000 0.000 0.000\n" * count


def _songs() -> Pairs:
    verses = [f"{count} green bottles hanging on the wall,\n" for count in range(40, 2, -1)]
    yield "a song", "".join(verse * 2 + "And if one green bottle should accidentally fall,\n" for verse in verses)
    yield "a round", REFRAIN * 3
    yield "a chorus", ("We will, we will rock you!\n" * 4 + "Buddy, you are a boy, make a big noise\n") * 3
    yield "a laugh", "ha " * 100
    yield "la la", "la la la, " * 20
    yield "music", "C C G G A A G - F F E E D D C - | " * 20
    yield "abc notation", "|: G2 G2 A2 G2 :|\n" * 30
    yield "drums", "x-x-x-x-|o---o---|\n" * 30
    yield (
        "a litany",
        "".join(f"Saint {name}, pray for us.\n" for name in ("Anne", "Paul", "John", "Mary", "Luke", "Mark", "Rita"))
        * 3,
    )
    yield "meter", "da DUM da DUM da DUM da DUM\n" * 12
    yield "buffalo", "Buffalo buffalo " * 12
    yield (
        "lorem ipsum",
        ("Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor. " * 3 + "\n\n") * 3,
    )


def _prose() -> Pairs:
    for count in (10, 40):
        yield "steps", "".join(f"{step}. Open the file and press the button.\n" for step in range(count * 2))
        yield "a list that counts", ", ".join(str(number) for number in range(count * 20))
        yield (
            "tests",
            "".join(f"def test_{case}() -> None:\n    assert f({case}) == {case}\n\n\n" for case in range(count)),
        )
        yield "a multiplication table", "".join(f"{a} x {b} = {a * b}\n" for a in range(1, 11) for b in range(1, count))
        yield "getters", "".join(f"    def get_{n}(self) -> int:\n        return self._{n}\n\n" for n in range(count))
        yield "a glossary", "".join(f"**Term {n}**: see the chapter about terms.\n\n" for n in range(count))
        yield f"a worksheet with {count} lines to fill in", "Answer: ____________________\n\n" * count
        yield "a form", "Name: ______\n" * count
        yield "a checklist", "- [ ] \n" * count


FAMILIES: tuple[Callable[[], Pairs], ...] = (
    _zeros, _asked_for, _tables, _data, _bytes, _drawings, _code, _fenced, _logs, _songs, _prose,
)  # fmt: skip
