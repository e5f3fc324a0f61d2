"""`modeld doctor --bundle`: one zip that may be shown to others. Everything in it went through the redactor."""

from __future__ import annotations

import getpass
import importlib.metadata
import platform
import socket
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from modeld.doctor.finding import Finding, lines
from modeld.logfile import last_lines
from shared.paths import home
from shared.redact import Redactor

if TYPE_CHECKING:
    from shared.paths import DataRoot
    from shared.protocol import api
    from shared.settings import Settings

#: What a report needs of each log.
LOG_LINES = 1000
#: Distributions whose versions matter.
DISTRIBUTIONS = (
    "modeld", "anyio", "jinja2", "jsonrpcclient", "lsprotocol", "msgspec", "platformdirs", "psutil", "pygls",
    "llama-cpp-python", "openvino", "openvino-genai", "openvino-tokenizers", "httpx2", "mcp",
)  # fmt: skip


def write(
    path: Path, findings: Sequence[Finding], status: api.Status | None, settings: Settings, root: DataRoot | None
) -> list[str]:
    """Make the zip; the names in it. Raises OSError. It is readable by this user alone until they send it."""
    hide = redactor(root)
    parts = {
        "report.txt": "\n".join(lines(findings)),
        "report.json": _json(findings),
        "settings.json": _json(settings),
        "versions.txt": "\n".join(versions()),
    }
    if status is not None:
        parts["status.json"] = _json(status)
    if root is not None:
        for name in ("modeld.log", "worker.log", "start.log"):
            parts[f"logs/{name}"] = "\n".join(last_lines(root.logs / name, LOG_LINES))
        parts["records.json"] = _records(root)
    path.touch(mode=0o600)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, hide(text) + "\n")
    return list(parts)


def redactor(root: DataRoot | None) -> Redactor:
    """One that knows this user, this machine, and the secrets of this data root."""
    secrets = []
    if root is not None:
        for token in root.instances.glob("*.token"):
            try:
                secrets.append(token.read_text(encoding="ascii").strip())
            except (OSError, UnicodeDecodeError):
                continue  # it was just replaced, or is none
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = ""
    return Redactor(home=str(home() or ""), user=user, host=socket.gethostname(), secrets=secrets)


def versions() -> list[str]:
    """Of the platform and of what modeld is built on."""
    rows = [f"{platform.platform()}, {platform.machine()}, Python {platform.python_version()}"]
    for name in DISTRIBUTIONS:
        try:
            rows.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            rows.append(f"{name} (not installed)")
    return rows


def _records(root: DataRoot) -> str:
    from shared.lease.reader import survey

    return _json(survey(root))


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
