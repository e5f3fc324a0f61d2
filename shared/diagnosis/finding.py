"""One look of a doctor (`modeld doctor`, `acp-bridge doctor`), as a value, and how both print theirs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from shared.text.shown import one_line

Verdict = Literal["ok", "note", "problem"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`what` names it, `text` says what was found, `fix` what to do about it ("" where nothing has to be done).

    `verdict`: a problem keeps something from working; a note is worth knowing (modeld is stopped, a disk fills up).
    """

    what: str
    verdict: Verdict = "ok"
    text: str
    fix: str = ""


def problems(findings: Iterable[Finding]) -> bool:
    """Whether a doctor ends with exit code 1."""
    return any(one.verdict == "problem" for one in findings)


def lines(findings: Iterable[Finding]) -> list[str]:
    """For people: one line each, and the way out below it."""
    result = []
    for one in findings:
        what = one_line(one.what)
        result.append(f"{one.verdict:>8}  {what}: {one_line(one.text)}")
        if one.fix:
            result.append(f"{'':>8}  {'':>{len(what)}}  -> {one_line(one.fix)}")
    return result
