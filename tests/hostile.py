"""Texts from outside that try to act where they are shown, and what may never leave a program raw."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt

ESC, CSI, OSC = "\x1b", "\x9b", "\x9d"
#: One of each kind: what a terminal, an editor or a reader's eye would obey.
HOSTILE: dict[str, str] = {
    "title": f"{ESC}]0;PWNED\x07ab",
    "eight_bit": f"{CSI}2J{OSC}52;c;cHduZWQ=\x9c",
    "colour": f"{ESC}[31mred{ESC}[0m",
    "backspaces": "safe\x08\x08\x08\x08evil\x7f",
    "carriage": "good\rbad",
    "line": "one\nmodeld: forged line\n2026-01-01T00:00:00 [1] turn client=forged",
    "separators": "one\u2028two\u2029three\x85four\x0cfive",
    "bidi": "exe.\u202egpj\u202c.\u2066x\u2069\u200f\u200e\u061c",
    "zero_width": "ab\u200bcd\u200def\u2060gh\ufeffij\xad",
    "tags": "flag\U000e0041\U000e0042\U000e007f",
    "halves": "half\ud83d and \udc80",
    "link": "[Fix it](command:workbench.action.terminal.new)",
    "image": "![x](https://example.invalid/?q=1) <img src=x onerror=alert(1)>",
    "icon": "$(alert) $(sync~spin)",
    "code": "`` ` ``` [x](command:y)",
    "backslash": "\\[x](command:y) \\\\<b>",
    "long": "a" * 20_000,
}
#: Those that can be written as UTF-8, in one.
ALL = "".join(text for kind, text in HOSTILE.items() if kind not in ("long", "halves"))
#: What acts, found by another way than the product's: the properties that Unicode gives.
_NEVER = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f\ud800-\udfff]"
)


def raw(shown: str | bytes) -> list[str]:
    """Every character of it that would act; [] where it is harmless. Line feeds and tabs are the caller's to judge."""
    text = shown.decode("utf-8", "surrogateescape") if isinstance(shown, bytes) else shown
    return [f"U+{ord(each):04X}" for each in _NEVER.findall(text)]


def markup(shown: str) -> list[str]:
    """What a reader of Markdown would make of it beside words and code: links, images, HTML."""
    tokens = MarkdownIt("commonmark").parse(shown)
    kinds = [each.type for token in tokens for each in (token, *(token.children or []))]
    return [kind for kind in kinds if kind in ("link_open", "image", "html_inline", "html_block")]
