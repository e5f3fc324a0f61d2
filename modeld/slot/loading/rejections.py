"""Remembers models whose load failed for a lasting reason (pure).

A file that is corrupt, or whose architecture the engine does not know, fails each time: pickers drop it with the
reason. What may pass (no memory, a stop, a worker that died) rejects nothing. Kept by the content's digest, so that a
repaired file is another one, and for this process's life only, so that an upgraded engine gets its chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.catalog.identity import AUTO, RequestedIdentity
from shared.protocol.api import Rejected

#: Stages of a load at which the file itself is what is wrong.
LASTING_STAGES = frozenset({"header", "weights", "template", "probe"})
#: Words of an engine's reason that tell of the moment and not of the file.
PASSING_WORDS = ("memory", "alloc", "cancelled", "no progress", "too many open files", "no such file", "permission")
#: No more are remembered; the oldest is forgotten first.
MOST = 256


class Rejections:
    """The models that failed for good."""

    def __init__(self) -> None:
        self._known: dict[str, Rejected] = {}

    def note(self, target: RequestedIdentity, error: Mapping[str, Any] | None) -> None:
        """How a load ended; `error` as on the wire, None when it succeeded."""
        reason = lasting_reason(target, error) if error is not None else ""
        if error is None or reason:
            self._known.pop(target.digest, None)
        if reason and target.digest:
            self._known[target.digest] = Rejected(name=target.name, digest=target.digest, reason=reason)
            while len(self._known) > MOST:
                del self._known[next(iter(self._known))]

    def rows(self) -> list[Rejected]:
        """What is rejected now, in order of time."""
        return list(self._known.values())

    def reasons(self) -> dict[str, str]:
        """The reasons by digest."""
        return {digest: one.reason for digest, one in self._known.items()}


def lasting_reason(target: RequestedIdentity, error: Mapping[str, Any]) -> str:
    """Why the model will fail each time, or "" when another try may do better or the request was special."""
    data = error.get("data", {})
    if data.get("kind") != "model_load_failed" or data.get("stage") not in LASTING_STAGES:
        return ""
    if target.adapters or target.template_digest != AUTO or target.tensor_split != AUTO:
        return ""  # what was asked for beside the file may be what failed
    reason = str(data.get("reason") or "it cannot be loaded")
    return "" if any(word in reason.lower() for word in PASSING_WORDS) else reason
