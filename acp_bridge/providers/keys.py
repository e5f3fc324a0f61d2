"""Where a provider's key comes from: the environment, else the keyring of the operating system.

The keyring's library is imported at the first use of an entry that is configured. A key is never in the config file,
in arguments or in a log; what comes back from an endpoint is cleaned of it (`shared.text.secret`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from shared.diagnosis.remedy import install_command
from shared.errors import BackendUnavailable
from shared.text.secret import Secret, SecretUnusable, looks_secret, read_secret

if TYPE_CHECKING:
    from acp_bridge.providers.config import Provider

#: The service under which entries are looked up: `keyring set modeld <entry>` makes one.
SERVICE = "modeld"


def key_of(provider: Provider, environ: Mapping[str, str]) -> Secret | None:
    """The key, None when none is configured or the variable is not set. May wait for the user to unlock; blocks.

    Raises BackendUnavailable when a configured keyring entry cannot be had, or a key cannot be sent.
    """
    try:
        if provider.key_env:
            key = read_secret(environ.get(provider.key_env, ""), _variable(provider))
            if key is not None:
                return key
        return _from_keyring(provider) if provider.key_keyring else None
    except SecretUnusable as error:
        raise BackendUnavailable(backend=provider.name, reason=str(error), hint=key_hint(provider)) from None


def header_values(provider: Provider, environ: Mapping[str, str]) -> dict[str, Secret]:
    """The headers whose values stand in variables. Raises BackendUnavailable for one that is not set, or unusable."""
    found = {}
    for header, variable in provider.headers_env.items():
        place = f"the environment variable {_shown(variable)}"
        try:
            value = read_secret(environ.get(variable, ""), place, spaces=True)
        except SecretUnusable as error:
            raise BackendUnavailable(backend=provider.name, reason=str(error), hint=f"set {place}") from None
        if value is None:
            reason = f"{place}, which the header {header} needs, is not set"
            raise BackendUnavailable(backend=provider.name, reason=reason, hint="set it where the editor is started")
        found[header] = value
    return found


def key_source(provider: Provider) -> str:
    """Where its key would come from, in words; "" where none is configured."""
    if provider.key_env:
        return _variable(provider)
    return f"the keyring's entry {_entry(provider)}" if provider.key_keyring else ""


def key_hint(provider: Provider) -> str:
    """What to do about a key that is missing or was refused."""
    if provider.key_keyring:
        return f"`keyring set {SERVICE} {_entry(provider)}` stores it"
    return f"set {_variable(provider)}" if provider.key_env else "set key_env or key_keyring in the config file"


def _variable(provider: Provider) -> str:
    """The variable by its name, unless somebody wrote the key itself in its place."""
    return f"the environment variable {_shown(provider.key_env)}"


def _shown(variable: str) -> str:
    named = re.fullmatch(r"[A-Z_][A-Z0-9_]*", variable) is not None
    return variable if named else "that the config file names"


def _entry(provider: Provider) -> str:
    """The keyring's entry by its name, unless somebody wrote the key itself in its place."""
    return "<the entry that key_keyring names>" if looks_secret(provider.key_keyring) else provider.key_keyring


def _from_keyring(provider: Provider) -> Secret:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError as error:
        raise BackendUnavailable(
            backend=provider.name,
            reason="the keyring library is not installed",
            hint=f"`{install_command('remote')}`, or use key_env",
        ) from error
    try:
        stored = keyring.get_password(SERVICE, provider.key_keyring) or ""
    except (KeyringError, OSError, RuntimeError) as error:
        reason = f"the keyring cannot be read: {str(error) or type(error).__name__}"
        raise BackendUnavailable(backend=provider.name, reason=reason, hint="unlock it, or use key_env") from error
    found = read_secret(stored, f"the keyring's entry {_entry(provider)}")
    if found is None:
        reason = f"the keyring has no entry {_entry(provider)} for {SERVICE}"
        raise BackendUnavailable(backend=provider.name, reason=reason, hint=key_hint(provider))
    return found
