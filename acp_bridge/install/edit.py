"""Set or remove one value in JSON with comments, in the manner of the text around it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from acp_bridge.install.jsonc import Malformed, Member, Node, comma_after, content_end, parse

_LINE_ENDS = re.compile(r"[ \t]*(?:\r?\n|//|$)")


def set_value(text: str, path: Sequence[str], value: Any) -> str:
    """The text with `value` at `path`; the same text where it is there already. Raises Malformed.

    Objects on the way are made where they are missing. What is there and is no object (nor null) is not overwritten.
    """
    node = parse(text)
    if node is None:
        return _fresh(text, path, value)
    if node.members is None:
        raise Malformed(text, node.start, "the settings must be an object")
    for depth, key in enumerate(path):
        member = node.member(key)
        if member is None:
            return _insert(text, node, key, _nested(path[depth + 1 :], value))
        last = depth == len(path) - 1
        if last and member.value.value == value:
            return text
        if last or member.value.value is None:
            return _replace(text, member, _nested(path[depth + 1 :], value))
        if member.value.members is None:
            raise Malformed(text, member.value.start, f'"{key}" must be an object')
        node = member.value
    raise ValueError("a path has at least one key")


def remove_value(text: str, path: Sequence[str]) -> str:
    """The text without what is at `path`; objects that held nothing else, not even a comment, go too.

    Raises Malformed.
    """
    chain = _chain(text, path)
    if chain is None:
        return text
    while len(chain) > 1 and _alone(text, chain[-2][1].value):
        chain.pop()
    holder, member = chain[-1]
    return _cut(text, holder, member)


def _chain(text: str, path: Sequence[str]) -> list[tuple[Node, Member]] | None:
    """The objects and members on the way down, None where the path ends early."""
    node = parse(text)
    chain: list[tuple[Node, Member]] = []
    for key in path:
        member = node.member(key) if node is not None else None
        if node is None or member is None:
            return None
        chain.append((node, member))
        node = member.value
    return chain


def _alone(text: str, node: Node) -> bool:
    """Whether an object holds one member and nothing else."""
    members = node.members or ()
    if len(members) != 1:
        return False
    only = members[0]
    around = text[node.start + 1 : only.start] + text[only.value.end : node.end - 1]
    return not around.replace(",", "").strip()


def _nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _fresh(text: str, path: Sequence[str], value: Any) -> str:
    """A document for a file that is empty or all comments, which stay above it."""
    newline = _newline(text)
    head = text.rstrip()
    body = _written(_nested(path, value), "", "  ", newline)
    return f"{head}{newline if head.strip(chr(0xFEFF)) else ''}{body}{newline}"


def _written(value: Any, indent: str, unit: str, newline: str) -> str:
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return (newline + indent).join(lines)


def _line_indent(text: str, at: int) -> str:
    """The space at the begin of the line that holds `at`."""
    begin = text.rfind("\n", 0, at) + 1
    line = text[begin:at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _starts_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip(" \t")


def _unit(text: str) -> str:
    """One step of this file's indentation."""
    root = parse(text)
    for member in (root.members or ()) if root is not None else ():
        if _starts_line(text, member.start):
            return _line_indent(text, member.start) or "  "
    return "  "


def _replace(text: str, member: Member, value: Any) -> str:
    node = member.value
    if "\n" in text[node.start : node.end] or isinstance(value, dict):
        written = _written(value, _line_indent(text, member.start), _unit(text), _newline(text))
    else:
        written = json.dumps(value, ensure_ascii=False)
    return text[: node.start] + written + text[node.end :]


def _insert(text: str, holder: Node, key: str, value: Any) -> str:
    """A new last member of `holder`."""
    members, close, newline, unit = holder.members or (), holder.end - 1, _newline(text), _unit(text)
    if members and "\n" not in text[holder.start : holder.end]:
        return _insert_inline(text, members[-1], key, value)
    first = members[0] if members else None
    outer = _line_indent(text, holder.start)
    indent = _line_indent(text, first.start) if first and _starts_line(text, first.start) else outer + unit
    written = f"{json.dumps(key, ensure_ascii=False)}: {_written(value, indent, unit, newline)}"
    comma, trailing = "", ""
    begin = holder.start + 1
    if members:
        begin = members[-1].value.end
        found = comma_after(text, begin)
        if found is None:
            comma = ","
        else:
            trailing = ","
    end = content_end(text, begin, close)
    tail = text[end:close]
    after = tail if "\n" in tail else newline + outer
    return f"{text[:begin]}{comma}{text[begin:end]}{newline}{indent}{written}{trailing}{after}{text[close:]}"


def _insert_inline(text: str, last: Member, key: str, value: Any) -> str:
    comma = comma_after(text, last.value.end)
    at = last.value.end if comma is None else comma + 1
    entry = f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
    return f"{text[:at]}{',' if comma is None else ''} {entry}{',' if comma is not None else ''}{text[at:]}"


def _cut(text: str, holder: Node, member: Member) -> str:
    members = list(holder.members or ())
    place = members.index(member)
    end = member.value.end
    own = comma_after(text, end)
    if own is not None:
        end = own + 1
    begin = member.start
    line = text.rfind("\n", 0, begin)
    if line != -1 and not text[line:begin].strip():
        if _LINE_ENDS.match(text, end):  # else what follows could end up in a comment of the line above
            begin = line - (text[line - 1 : line] == "\r")
    elif place > 0:
        begin = content_end(text, members[place - 1].value.end, begin)
    head = text[:begin]
    if own is None and place > 0:
        # it was the last one: the comma that led to it has no use any more
        before = comma_after(text, members[place - 1].value.end)
        if before is not None and before < begin:
            head = text[:before] + text[before + 1 : begin]
    rest = text[end:]
    if len(members) == 1 and not (head[holder.start + 1 :] + text[end : holder.end - 1]).strip():
        return head[: holder.start + 1] + text[holder.end - 1 :]
    return head + rest
