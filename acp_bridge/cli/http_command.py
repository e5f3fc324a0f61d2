"""`acp-bridge http`: the HTTP face in the foreground. The only command of the product that listens on a port."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

from acp_bridge.models.picker import is_remote
from shared.diagnosis.remedy import install_command
from shared.errors import BackendUnavailable, SettingInvalid


def http(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C. Raises BackendUnavailable without the extra, SettingInvalid, RootUnusable, OSError."""
    if any(importlib.util.find_spec(package) is None for package in ("starlette", "uvicorn", "h11")):
        hint = f"install it with `{install_command('http')}`"
        raise BackendUnavailable(backend="http", reason="the HTTP server is not installed", hint=hint)
    if not 0 <= options.port <= 65535:
        raise SettingInvalid(name="port", source="flag --port", reason="a port is 0 to 65535")
    for name in options.remote:
        if not is_remote(name):
            raise SettingInvalid(name="remote", source="flag --remote", reason="a remote model is named PROVIDER/MODEL")
    from acp_bridge import app
    from acp_bridge.faces.http.options import HttpOptions

    return app.serve_http(
        HttpOptions(
            port=options.port,
            socket=_path(options.socket),
            key_file=_path(options.key_file),
            key_env=options.key_env,
            switch=options.switch,
            remote=tuple(options.remote),
            json=options.json,
        )
    )


def _path(given: str | None) -> Path | None:
    return None if given is None else Path(given).expanduser().absolute()
