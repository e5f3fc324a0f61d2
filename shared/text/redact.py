"""Redacts text for support bundles: secrets, names of people and machines, paths into a home. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from shared.text.secret import HIDDEN, Cleaner

#: Long runs of letters and digits that may be secrets; identities of instances (UUIDs) are none and stay.
_SECRET = re.compile(r"(?<![\w-])(?=[A-Za-z0-9_-]*\d)(?=[A-Za-z0-9_-]*[A-Za-z])[A-Za-z0-9_-]{32,}(?![\w-])")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DIGEST = re.compile(r"(?:fp1-|sha256:)?[0-9a-f]{16,}")
_NAMED = re.compile(
    r"(?i)(\b[\w.-]*(?:token|secret|password|passwd|api[_-]?key|authorization|cookie)[\w.-]*[\"']?\s*[=:]\s*)"
    r"(?:bearer\s+)?(\"[^\"]*\"|'[^']*'|[^\s,;}]+)"
)
#: Names that say nothing about anybody and are ordinary words of a report.
_COMMON = frozenset({"root", "user", "admin", "localhost", "host", "home", "data", "model"})
#: Words that are no secret by themselves although their name looks like one.
_HARMLESS = {"none", "null", "true", "false"}


class Redactor:
    """Hides what was found out about this user: home folder, user name, host name, and known secrets."""

    def __init__(self, *, home: str = "", user: str = "", host: str = "", secrets: Iterable[str] = ()) -> None:
        self._clean = Cleaner(tuple(secrets))
        self._home = home if len(home) > 1 else ""
        named = ((host, "host"), (user, "user"))
        self._names = [(name, f"<{what}>") for name, what in named if len(name) > 1 and name.lower() not in _COMMON]

    def __call__(self, text: str) -> str:
        """The text without what identifies; running it again changes nothing."""
        text = self._clean(text)
        if self._home:
            text = text.replace(self._home, "~")
        text = _NAMED.sub(lambda found: found[0] if _plain(found[2]) else found[1] + HIDDEN, text)
        text = _SECRET.sub(lambda found: found[0] if _public(found[0]) else HIDDEN, text)
        for name, new in self._names:
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", new, text)
        return text


def _plain(value: str) -> bool:
    bare = value.strip("\"'").lower()
    return not bare or bare in _HARMLESS or bare.isdigit() or bare.startswith(("<", "~", "/"))


def _public(word: str) -> bool:
    return _UUID.fullmatch(word) is not None or _DIGEST.fullmatch(word) is not None
