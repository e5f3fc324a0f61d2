"""Where a provider's key comes from: the environment, else the keyring of the operating system.

The keyring's library is imported at the first use of an entry that is configured. A key is never in the config file,
in arguments or in a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shared.errors import BackendUnavailable
from shared.remedy import install_command

if TYPE_CHECKING:
    from acp_bridge.providers.config import Provider

#: The service under which entries are looked up: `keyring set modeld <entry>` makes one.
SERVICE = "modeld"


def key_of(provider: Provider, environ: Mapping[str, str]) -> str:
    """The key, "" when none is configured or the variable is not set. May wait for the user to unlock; blocks.

    Raises BackendUnavailable when a configured keyring entry cannot be had.
    """
    if provider.key_env and environ.get(provider.key_env):
        return environ[provider.key_env]
    return _from_keyring(provider) if provider.key_keyring else ""


def key_hint(provider: Provider) -> str:
    """What to do about a key that is missing or was refused."""
    if provider.key_keyring:
        return f"`keyring set {SERVICE} {provider.key_keyring}` stores it"
    return f"set {provider.key_env}" if provider.key_env else "set key_env or key_keyring in the config file"


def _from_keyring(provider: Provider) -> str:
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
        found = (keyring.get_password(SERVICE, provider.key_keyring) or "").strip()
    except (KeyringError, OSError, RuntimeError) as error:
        reason = f"the keyring cannot be read: {str(error) or type(error).__name__}"
        raise BackendUnavailable(backend=provider.name, reason=reason, hint="unlock it, or use key_env") from error
    if not found:
        reason = f"the keyring has no entry {provider.key_keyring} for {SERVICE}"
        raise BackendUnavailable(backend=provider.name, reason=reason, hint=key_hint(provider))
    return found
