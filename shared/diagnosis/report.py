"""Writes the redacted support bundle: one zip, everything in it redacted."""

from __future__ import annotations

import getpass
import importlib.metadata
import os
import platform
import socket
import zipfile
from collections.abc import Mapping
from pathlib import Path

from shared.backends import BACKENDS
from shared.paths import DataRoot, home
from shared.text.redact import Redactor
from shared.text.secret import named_secrets, proxy_secrets
from shared.text.shown import escaped

#: Distributions whose versions matter.
DISTRIBUTIONS = (
    "modeld", "anyio", "jinja2", "jsonrpcclient", "lsprotocol", "msgspec", "platformdirs", "psutil", "pygls",
    *(each.distribution for each in BACKENDS.values()), "openvino", "openvino-tokenizers", "pillow", "httpx2", "mcp",
)  # fmt: skip


def write(path: Path, parts: Mapping[str, str], root: DataRoot | None) -> list[str]:
    """Make the zip of `parts` (text by name) and of the versions here; the names in it. Raises OSError.

    It is readable by this user alone until they send it.
    """
    hide = redactor(root)
    whole = {**parts, "versions.txt": "\n".join(versions())}
    path.touch(mode=0o600)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in whole.items():
            archive.writestr(name, escaped(hide(text)) + "\n")  # read with `cat` by whoever gets it
    return list(whole)


def redactor(root: DataRoot | None) -> Redactor:
    """A cleaner that knows this user, this machine, and the secrets of this data root and of the environment."""
    secrets = [*named_secrets(os.environ), *proxy_secrets(os.environ)]
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
