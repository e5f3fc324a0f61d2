"""The providers of the config file:

[providers.cluster]
base_url = "https://vllm.example.org/v1"
key_env = "CLUSTER_KEY"          # the variable that holds the key, when one is needed
key_keyring = "cluster"          # or the entry of the service `modeld` in the system's keyring
models = ["big-model"]           # listed live when left out
context = 32768                  # tokens, when the endpoint does not say
vision = true                    # its models take images
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from shared.errors import SettingInvalid

_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
MOST_TIMEOUT_S = 24 * 3600.0
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One endpoint. `timeout_s` bounds the wait for the first byte and between two."""

    name: str = ""
    base_url: str
    key_env: str = ""
    key_keyring: str = ""
    models: tuple[str, ...] = ()
    context: int = 0
    vision: bool = False
    timeout_s: float = 60.0


def key_variables(file: Path, environ: Mapping[str, str]) -> frozenset[str]:
    """The variables that the file names for keys, also in entries with something wrong in them.

    What is no name (somebody wrote the key itself in its place) is left out: names are shown to others.
    """
    try:
        entries = _entries(file)
    except SettingInvalid:
        return frozenset()
    named = (entry.get("key_env") for entry in entries.values() if isinstance(entry, dict))
    return frozenset(name for name in named if isinstance(name, str) and (name in environ or _NAME.fullmatch(name)))


def read_providers(file: Path) -> list[Provider]:
    """The providers in order of name. Raises SettingInvalid, naming the file and the entry."""
    entries = _entries(file)
    return [_provider(name, entries[name], file) for name in sorted(entries)]


def _entries(file: Path) -> dict[str, Any]:
    """The tables under `providers`. Raises SettingInvalid."""
    if not file.exists():
        return {}
    import tomllib

    try:
        content: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingInvalid(name="providers", source=str(file), reason=str(error)) from error
    entries = content.get("providers", {})
    if not isinstance(entries, dict):
        raise SettingInvalid(name="providers", source=str(file), reason="expected tables [providers.<name>]")
    return entries


def _provider(name: str, entry: object, file: Path) -> Provider:
    where = f"providers.{name}"
    if not re.fullmatch(NAME_PATTERN, name):
        raise SettingInvalid(name=where, source=str(file), reason="letters, digits, dots, - and _ only")
    try:
        provider = msgspec.convert(entry, Provider)
    except msgspec.ValidationError as error:
        raise SettingInvalid(name=where, source=str(file), reason=str(error)) from error
    if not provider.base_url.startswith(("http://", "https://")):
        raise SettingInvalid(name=where, source=str(file), reason="base_url must begin with http:// or https://")
    if not 0 < provider.timeout_s < MOST_TIMEOUT_S:
        raise SettingInvalid(name=where, source=str(file), reason="timeout_s must be more than 0, and less than a day")
    if not _is_usable(provider.base_url):
        raise SettingInvalid(name=where, source=str(file), reason="base_url must be an address: http://host:port/v1")
    if _carries_more(provider.base_url):
        reason = (
            "base_url must hold no user name, password, query or fragment; the key's place is key_env or key_keyring"
        )
        raise SettingInvalid(name=where, source=str(file), reason=reason)
    return msgspec.structs.replace(provider, name=name, base_url=provider.base_url.rstrip("/"))


def _carries_more(address: str) -> bool:
    """Whether an address says more than where the endpoint is: what it says besides would be shown and stored."""
    authority = address.partition("://")[2].partition("/")[0]
    return any(sign in address for sign in "?#") or "@" in authority


def _is_usable(address: str) -> bool:
    """Whether a host stands in it, and a port that can be one."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
