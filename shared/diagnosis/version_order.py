"""Which of two versions comes first. Apart from the version itself, which an upgrade exchanges. Pure."""

from __future__ import annotations

from shared.version import __version__


def is_older(version: str, than: str = __version__) -> bool:
    """Whether `version` comes before `than`. What cannot be compared counts as not older."""
    theirs, ours = _release(version), _release(than)
    return bool(theirs) and bool(ours) and theirs < ours


def _release(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()
