"""`acp-bridge http`: the HTTP face in the foreground. The only command of the product that listens on a port."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

from acp_bridge.install.http_provider import Provider, ProviderModel
from acp_bridge.models.picker import is_remote
from shared.diagnosis.remedy import install_command
from shared.errors import BackendUnavailable, SettingInvalid
from shared.paths import data_root


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


def provider(options: argparse.Namespace) -> Provider:
    """What an editor is told of the face: where it will be, and the models of this machine."""
    from acp_bridge.cli.report_commands import advertised

    rows = [] if options.remove else advertised()
    models = [
        ProviderModel(
            name=row.name,
            title=row.title,
            context=row.context_train,
            tools=row.tools,
            vision=row.vision,
            fim=row.fim,
            embeds=row.embedding_only,
        )
        for row in rows
    ]
    url = f"http://127.0.0.1:{options.port}/v1"
    return Provider(url=url, models=models, key_file=data_root().path / "http" / "service.key")


def _path(given: str | None) -> Path | None:
    return None if given is None else Path(given).expanduser().absolute()
