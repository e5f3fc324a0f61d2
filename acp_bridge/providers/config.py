"""The providers of the config file: tables `[providers.<name>]`, each checked by itself (docs/providers.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import msgspec

from shared.errors import SettingInvalid
from shared.text.secret import SECRET_NAME, looks_secret
from shared.text.shown import one_line

_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
MOST_TIMEOUT_S = 24 * 3600.0
MOST_RETRIES = 10
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
#: What the HTTP library writes itself.
OWN_HEADERS = frozenset({"authorization", "connection", "content-length", "content-type", "host", "transfer-encoding"})
#: How a model is told to think: by `reasoning_effort`, or by variables of its chat template (vLLM, SGLang,
#: llama-server: `chat_template_kwargs`). "" where it does not think, or cannot be told.
Thinking = Literal["", "effort", "template"]


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of some models of an endpoint; None leaves it to the endpoint. Under an entry, for all of them.

    `context` in tokens. `inline_completion`: true sends the text before the cursor as the prompt and the rest as
    `suffix`; a text with `{prefix}` and `{suffix}` is the prompt itself, for servers without `suffix`.
    """

    context: int | None = None
    vision: bool | None = None
    thinking: Thinking | None = None
    inline_completion: bool | str | None = None


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One endpoint. `timeout_s` bounds the wait for the first byte and between two, `connect_timeout_s` that for a
    connection. `include` and `exclude` are patterns of names as the endpoint lists them; `alias` maps names of the
    user's to those. `model` maps patterns to facts. The values of `headers_env` and `key_env` are variables' names.
    """

    name: str = ""
    base_url: str
    key_env: str = ""
    key_keyring: str = ""
    models: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    alias: dict[str, str] = {}
    context: int = 0
    vision: bool | None = None
    thinking: Thinking | None = None
    inline_completion: bool | str | None = None
    model: dict[str, ModelFacts] = {}
    timeout_s: float = 60.0
    connect_timeout_s: float = 5.0
    max_retries: int = 2
    headers: dict[str, str] = {}
    headers_env: dict[str, str] = {}
    organization: str = ""
    project: str = ""
    api_version: str = ""
    affinity_header: str = "X-Session-ID"
    ca_file: str = ""

    def offers(self, served: str) -> bool:
        """Whether a model of the endpoint may be shown and called."""
        wanted = not self.include or _matches(served, self.include)
        return wanted and not _matches(served, self.exclude)

    def facts(self, served: str) -> ModelFacts:
        """What the config file says of one model: of its patterns the last that matches wins, field by field."""
        found = ModelFacts(
            context=self.context or None,
            vision=self.vision,
            thinking=self.thinking,
            inline_completion=self.inline_completion,
        )
        for pattern, facts in self.model.items():
            if fnmatchcase(served, pattern):
                said = {name: value for name, value in msgspec.structs.asdict(facts).items() if value is not None}
                found = msgspec.structs.replace(found, **said)
        return found


class Configured(msgspec.Struct, frozen=True, kw_only=True):
    """What the file holds: the providers in order of name, and what is wrong with other entries, by name."""

    providers: tuple[Provider, ...] = ()
    problems: dict[str, str] = {}
    key_variables: frozenset[str] = frozenset()


def read_configured(file: Path) -> Configured:
    """Every entry by itself: one with something wrong in it costs itself alone. Raises SettingInvalid for a file that
    cannot be read at all.
    """
    entries = _entries(file)
    providers, problems = [], {}
    for name in sorted(entries):
        try:
            providers.append(_provider(name, entries[name], file))
        except SettingInvalid as error:
            problems[name] = error.message
    return Configured(providers=tuple(providers), problems=problems, key_variables=_variables(entries))


def key_variables(file: Path, environ: Mapping[str, str]) -> frozenset[str]:
    """The variables that the file names for keys, also in entries with something wrong in them.

    What is no name (somebody wrote the key itself in its place) is left out: names are shown to others.
    """
    try:
        named = _variables(_entries(file))
    except SettingInvalid:
        return frozenset()
    return frozenset(name for name in named if name in environ or _NAME.fullmatch(name))


def _variables(entries: Mapping[str, Any]) -> frozenset[str]:
    tables = [entry for entry in entries.values() if isinstance(entry, dict)]
    named = [entry.get("key_env") for entry in tables]
    for entry in tables:
        headers = entry.get("headers_env")
        named += headers.values() if isinstance(headers, dict) else []
    return frozenset(name for name in named if isinstance(name, str) and name)


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
    where = f"providers.{one_line(name, 60)}"
    if not re.fullmatch(NAME_PATTERN, name):
        raise SettingInvalid(name=where, source=str(file), reason="letters, digits, dots, - and _ only")
    try:
        provider = msgspec.convert(entry, Provider)
    except msgspec.ValidationError as error:
        raise SettingInvalid(name=where, source=str(file), reason=str(error)) from error
    reason = _wrong(provider)
    if reason:
        raise SettingInvalid(name=where, source=str(file), reason=reason)
    ca_file = str((file.parent / Path(provider.ca_file).expanduser()).absolute()) if provider.ca_file else ""
    return msgspec.structs.replace(provider, name=name, base_url=provider.base_url.rstrip("/"), ca_file=ca_file)


def _wrong(provider: Provider) -> str:
    """What is wrong with an entry, "" when nothing is. Shows no value that may be a secret."""
    return _wrong_address(provider.base_url) or _wrong_numbers(provider) or _wrong_headers(provider) or _odd(provider)


def _wrong_address(address: str) -> str:
    if not address.startswith(("http://", "https://")):
        return "base_url must begin with http:// or https://"
    if not _is_usable(address):
        return "base_url must be an address: http://host:port/v1"
    if _carries_more(address):
        return "base_url must hold no user name, password, query or fragment; the key's place is key_env or key_keyring"
    return ""


def _wrong_numbers(provider: Provider) -> str:
    for name in ("timeout_s", "connect_timeout_s"):
        if not 0 < getattr(provider, name) < MOST_TIMEOUT_S:
            return f"{name} must be more than 0, and less than a day"
    if not 0 <= provider.max_retries <= MOST_RETRIES:
        return f"max_retries must be 0 to {MOST_RETRIES}"
    contexts = [provider.context, *(facts.context or 0 for facts in provider.model.values())]
    return "context must not be negative" if min(contexts) < 0 else ""


def _wrong_headers(provider: Provider) -> str:
    names = [*provider.headers, *provider.headers_env]
    for name in [*names, provider.affinity_header]:
        if name and not _HEADER.fullmatch(name):
            return f"{one_line(name, 60)!r} is not the name of a header"
        if name.lower() in OWN_HEADERS:
            return f"the header {name} is written by the bridge (the key's place is key_env or key_keyring)"
    for name, value in provider.headers.items():
        if SECRET_NAME.search(name) or looks_secret(value):
            return f"the header {name} may hold a secret: name its variable under headers_env"
    values = [*provider.headers.values(), provider.organization, provider.project, provider.api_version]
    if not all(value.isascii() and (value.isprintable() or not value) for value in values):
        return "headers, organization, project and api_version take printable ASCII"
    return ""


def _odd(provider: Provider) -> str:
    wrong = [alias for alias in provider.alias if not alias.strip() or len(alias) > 200]
    if wrong:
        return "alias maps names of your own to the endpoint's: short = 'org/long-name'"
    for text in (provider.inline_completion, *(facts.inline_completion for facts in provider.model.values())):
        if isinstance(text, str) and not ("{prefix}" in text and "{suffix}" in text):
            return "inline_completion is true, or a text with {prefix} and {suffix}"
    return ""


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


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
