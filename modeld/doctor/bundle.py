"""`modeld doctor --bundle`: what was found, the status, the settings, the records, and the end of each log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from modeld.log.logfile import last_lines
from shared.diagnosis import report
from shared.diagnosis.finding import Finding, lines
from shared.lease.reader import survey

if TYPE_CHECKING:
    from shared.paths import DataRoot
    from shared.protocol import api
    from shared.settings import Settings

#: What a report needs of each log.
LOG_LINES = 1000


def write(
    path: Path, findings: Sequence[Finding], status: api.Status | None, settings: Settings, root: DataRoot | None
) -> list[str]:
    """Make the zip; the names in it. Raises OSError."""
    parts = {
        "report.txt": "\n".join(lines(findings)),
        "report.json": _json(findings),
        "settings.json": _json(settings),
    }
    if status is not None:
        parts["status.json"] = _json(status)
    if root is not None:
        for name in ("modeld.log", "worker.log", "start.log"):
            parts[f"logs/{name}"] = "\n".join(last_lines(root.logs / name, LOG_LINES))
        parts["records.json"] = _json(survey(root))
    return report.write(path, parts, root)


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
