"""Whether an answer goes round in circles: its tail is copies of one block. Pure and incremental.

The rule works on the bytes of the answer, not on its tokens: a loop whose copies are cut into other tokens is still
one. How long a tail may be depends on what the block is, since a sentence said for the twentieth time is a loop and
the twentieth row of zeros is a table:

- **words** (a sentence, a paragraph, nothing visible at all): `WORDS` tokens, and `COPIES` copies at least;
- **rows** (digits, marks, code, a single word): `ROWS` tokens, which are `COPIES` copies of the longest block;
- **asked for**: words that all stand in the request are rows, and a number in it is a number of copies that may come.

A list that counts is no loop by this rule: each of its lines differs.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left

#: Tokens of the longest block that is looked for.
LONGEST_BLOCK = 512
#: A look costs microseconds and a token tenths of them: one look for so many tokens, and the end comes so much later.
EVERY = 16
#: Copies that make a loop of any block: three are a refrain.
COPIES = 4
#: Tokens of repeated words: 16 copies of "I'm here to help with your coding needs.", which small models say for ever.
WORDS = 160
#: Tokens of repeated rows: 85 equal JSON objects of 24 tokens, 1,000 zeros with their commas. A table that is asked
#: for without a number is seldom longer.
ROWS = 2048
#: Numbers above are years, ports and sizes, not copies.
MOST_COPIES = 1000
#: Stands for a token that shows nothing.
SILENT = b"\0"

_FENCE = "```"
#: Bytes that must stand a block earlier too before more is compared.
_ANCHOR = 32
#: Marks among the visible characters of a block, from which on it is no sentence.
_MARKS = 0.1
_CJK = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_WORD = re.compile(r"[^\W\d_]+")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
#: Lines that are a label each and hold nothing: "Result:", which small models say for ever.
_LABELS = re.compile(r"(?:[^\W\d_]+(?: [^\W\d_]+)*:[ \t]*\n)+")
_ONE_MARK = re.compile(r"([^,.;:!?]*)([,.;:!?])([^,.;:!?]*)")
_PHRASE = re.compile(r" ?[^\W\d_]{2,} [^\W\d_]{2,}")
_INDENT = re.compile(r"\n(?: {2}|\t)")


class RepetitionWatch:
    """Reads an answer token by token. `request`: the person's words that it answers.

    Keeps the answer and where its tokens end; a token costs amortised constant time.
    """

    __slots__ = ("_ends", "_request", "_text")

    def __init__(self, request: str = "") -> None:
        self._request = request
        self._text = bytearray()
        self._ends = array("Q")

    def feed(self, piece: bytes) -> bool:
        """Take the bytes of the next token. True when the answer has become a loop."""
        self._text += piece or SILENT
        ends = self._ends
        ends.append(len(self._text))
        count = len(ends)
        return count >= WORDS and count % EVERY == 0 and self._loops()

    def _loops(self) -> bool:
        """Try each earlier place of the last bytes, the nearest first, as the end of the copy before the last."""
        text, size = self._text, len(self._text)
        anchor = bytes(text[-_ANCHOR:])
        lowest = max(self._start_of(LONGEST_BLOCK) - len(anchor), 0)
        before = size - 1
        while (found := text.rfind(anchor, lowest, before)) >= 0:
            period = size - len(anchor) - found
            if COPIES * period > size:
                return False
            tokens = -(-self._whole_tokens(COPIES * period) // COPIES)  # a copy need not begin with a token
            tail = max(WORDS, COPIES * tokens)
            before = found + len(anchor) - 1
            if self._repeats(tail, period):
                if self._repeats(self._allowed(period, tokens), period):
                    return True
                while self._repeats(2 * tail, period):
                    tail *= 2
                before = self._start_of(tail) + len(anchor) - 1  # up to there, only multiples of the period are left
        return False

    def _allowed(self, period: int, tokens: int) -> int:
        block = bytes(self._text[-period:]).decode("utf-8", "replace")
        fenced = _FENCE not in block and self._text.count(_FENCE.encode()) % 2 == 1
        return allowed_tokens(block, tokens, self._request, fenced=fenced)

    def _repeats(self, tokens: int, period: int) -> bool:
        """Whether the last `tokens` tokens are copies of the last `period` bytes."""
        first = self._start_of(tokens)
        return len(self._ends) >= tokens and self._text[first + period :] == self._text[first:-period]

    def _whole_tokens(self, tail: int) -> int:
        """Tokens in the last `tail` bytes."""
        ends = self._ends
        return len(ends) - bisect_left(ends, len(self._text) - tail) - 1

    def _start_of(self, tokens: int) -> int:
        """Where the last `tokens` tokens begin."""
        ends = self._ends
        return ends[-tokens - 1] if len(ends) > tokens else 0


def allowed_tokens(block: str, tokens: int, request: str, *, fenced: bool = False) -> int:
    """How many tokens a tail of copies of `block` (`tokens` long, cut anywhere) has to have to be a loop.

    `fenced`: it stands in a code block that was opened before it.
    """
    whole = _aligned(block)
    tokens = max(tokens, 1)
    as_words = is_words(whole, fenced=fenced) and not _quoted(whole, request)
    floor = WORDS if as_words else ROWS
    return max(floor, COPIES * tokens, (_number(request) + 1) * tokens)


def is_words(block: str, *, fenced: bool = False) -> bool:
    """Whether a block is something one says (a sentence, a paragraph) or shows nothing; else it is a row of data.

    A blank line ends a paragraph, but in code it stands between rules, boards and records.
    """
    visible = [character for character in block if not character.isspace() and character != "\0"]
    if not visible or (not fenced and _BLANK_LINE.search(block * 2)):
        return True
    if _LABELS.fullmatch(_from_a_line(block)):
        return True
    marks = sum(unicodedata.category(character)[0] in "PSN" and character not in "'\u2019" for character in visible)
    words = max(len(block.split()), len(_CJK.findall(block)))
    said = words >= 3 and marks < _MARKS * len(visible)
    return (said or _is_phrase(block)) and not _INDENT.search(block * 2)


def _is_phrase(block: str) -> bool:
    """Two words and the mark behind them, wherever it is cut: "la femme, "."""
    parts = _ONE_MARK.fullmatch(block)
    return parts is not None and _PHRASE.fullmatch(parts[3] + parts[1]) is not None


def _aligned(block: str) -> str:
    """The block from a border of its words on: it was cut anywhere."""
    for place, character in enumerate(block):
        if character.isspace():
            return block[place:] + block[:place]
    return block


def _from_a_line(block: str) -> str:
    """The block from the first of its lines on."""
    head, end, rest = block.partition("\n")
    return rest + head + end


def _quoted(block: str, request: str) -> bool:
    words = _words(block)
    return bool(words) and words <= _words(request)


def _words(text: str) -> set[str]:
    return {word.casefold() for word in [*_WORD.findall(text), *_CJK.findall(text)]}


def _number(request: str) -> int:
    """The largest number of the request that may be a number of copies, or 0."""
    numbers = [int(digits) for digits in re.findall(r"\d{1,9}", request.replace(",", ""))]
    return max((number for number in numbers if number <= MOST_COPIES), default=0)
