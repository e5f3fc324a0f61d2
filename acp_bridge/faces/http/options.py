"""What `acp-bridge http` was started with. Pure."""

from __future__ import annotations

from pathlib import Path

import msgspec


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`port` 0: the system chooses. `socket`, `key_file` and `key_env` are None where they were not given.

    `remote`: models of other machines that the user named; no others are served.
    """

    port: int = 0
    socket: Path | None = None
    key_file: Path | None = None
    key_env: str | None = None
    switch: bool = False
    remote: tuple[str, ...] = ()
    json: bool = False
