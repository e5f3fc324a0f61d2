"""Text from outside, made fit for the place it is shown in: a terminal, a log, a title, Markdown. Pure.

Names of files, headers of models, other clients, servers and models say what they like. What could act there instead of
being read is shown as an escape: control characters (C0, DEL, C1), marks that turn the direction of writing, what
has no shape (zero width, tags, fillers), line and paragraph separators, halves of characters. The escapes are those
of JSON, so that a JSON text stays the same value.

Secrets are taken out before anything is escaped or cut.
"""

from __future__ import annotations

import re

#: The longest sentence of an error, in characters: a path (4,096 on Linux) has room beside the words.
MESSAGE_MOST = 6_000
#: The longest title of a card, a question or a conversation, in characters.
TITLE_MOST = 400
#: The longest name of a model, a client or a server, and the longest piece of code in a title.
NAME_MOST = 200
ELLIPSIS = "…"

#: Without a shape, or with one that changes what is read beside it; newline and tab are apart. ZWNJ, ZWJ and the
#: selectors of a variant (U+200C, U+200D, U+FE00 to U+FE0F) are apart too: words and emoji need them.
_ACTS = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b\\u200e\\u200f"
    "\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ud800-\\udfff\\ufeff\\uffa0\\ufff0-\\ufffb\\ufffe\\uffff"
    "\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff"
)
_JOINS = "\\u200c\\u200d\\ufe00-\\ufe0f"
_DROPPED = re.compile(f"[{_ACTS}]")
_ESCAPED = re.compile(f"[{_ACTS}{_JOINS}]")
_ESCAPED_IN_A_LINE = re.compile(f"[{_ACTS}{_JOINS}\\n\\t]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PART_OF_AN_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{0,3})?$")
#: A fenced block or a code span (within one line: a paragraph's end would end it), or what would make a link, a
#: image, HTML or code.
_CODE_OR_MARKUP = re.compile(
    r"(?P<code>^(?P<fence>`{3,})[^`\n]*\n(?:.*\n)*?(?P=fence)`*[ \t]*$|(?<!`)(?P<run>`+)(?!`).*?(?<!`)(?P=run)(?!`))"
    r"|(?P<before>\\*)(?P<mark>[\[\]<]|`+)",
    re.MULTILINE,
)
_RUNS = re.compile("`+")


def escaped(text: str) -> str:
    """What acts is an escape; newlines and tabs stay. Running it again changes nothing."""
    return _ESCAPED.sub(_escape, text)


def one_line(text: str, most: int = MESSAGE_MOST) -> str:
    """The same with newlines and tabs as escapes too, cut to `most` characters. Running it again changes nothing."""
    return cut(_ESCAPED_IN_A_LINE.sub(_escape, text[: most + 1]), most)


def readable(text: str) -> str:
    """A text that a model wrote, for a terminal: what acts is left out, for honest answers have such marks too."""
    return _DROPPED.sub("", text)


def cut(text: str, most: int) -> str:
    """At most `most` characters, the last one an ellipsis where something is missing."""
    if len(text) <= most:
        return text
    return _PART_OF_AN_ESCAPE.sub("", text[: most - 1]) + ELLIPSIS


def in_markdown(text: str) -> str:
    """For a place that reads Markdown: code stays code, and nothing else in it makes a link, an image or HTML."""
    return _CODE_OR_MARKUP.sub(_disarm, escaped(text))


def title(text: str, most: int = TITLE_MOST) -> str:
    """One line for a place that may read Markdown: the title of a card, a question, a step of a plan."""
    return in_markdown(one_line(text, most))


def code_span(text: str, most: int = NAME_MOST) -> str:
    """One line of code in Markdown: nothing in `text` ends it."""
    line = one_line(text, most)
    fence = _fence(line, 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line.strip() else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def fenced(text: str, language: str = "") -> str:
    """A block of code in Markdown: nothing in `text` ends it."""
    fence = _fence(text, 3)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _fence(text: str, least: int) -> str:
    longest = max((len(run) for run in _RUNS.findall(text)), default=0)
    return "`" * max(least, longest + 1)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return _SHORT.get(character) or "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _disarm(found: re.Match[str]) -> str:
    if found["code"]:
        return found[0]
    mark = "".join(f"\\{each}" for each in found["mark"])
    return found["before"] * 2 + mark  # a backslash in front would take the place of ours
