"""Tokens, keys and passwords: read through one door, sent in one request, taken out of every text that comes back.

A server may echo what it was sent, and a library may quote it in an error. So whoever sends a secret has a `Cleaner`
that knows it in the encodings in use, and cleans what it got before anything shows, logs or stores it. Pure.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit, urlunsplit

from shared.text.shown import escaped, in_markdown, one_line

HIDDEN = "<hidden>"
#: Longer ones are no key: servers refuse a header of this size (8 to 16 KiB).
LONGEST = 8192
#: Shorter ones are hidden where they stand as a word of their own: any text holds their letters by chance.
WORD = 8
#: Still shorter ones are hidden only where their place says what they are (`Bearer x`, `token=x`, `//x@`).
SHORTEST = 4
#: Keys that the manuals of servers give for servers that check none. They are words, and no secret.
PLACEHOLDERS = frozenset(
    {"empty", "none", "null", "dummy", "test", "ollama", "lm-studio", "not-needed", "no-key", "no-key-required",
     "sk-no-key-required", "unused", "true", "false"}
)  # fmt: skip
#: Names of variables, headers, options and query parameters whose values are secrets.
SECRET_NAME = re.compile(
    r"(?i)token(?!s|iz)|secret|passw|passphrase|credential|signature|authorization|cookie|(?<=[_-])pwd|(?:^|[^a-z])"
    r"(?:auth|pat|sig|jwt|(?:api|access|account|auth|master|private|session|ssl)?key)(?:[^a-z]|$)"
)
#: Names of places, which are none although their names tell of one (`SSH_AUTH_SOCK`, `HF_TOKEN_PATH`).
_PLACE_NAME = re.compile(r"(?i)_(?:sock|file|path|dir|home)$")
#: What looks like one whatever it is called: long, of letters and digits, and neither a path nor words.
_LOOKS_SECRET = re.compile(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_.+=~-]{24,}")
#: Lines of a key file that are reported one by one are known from this length on.
_LINE = 16
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy")

#: What texts in quotes put a backslash before.
_MARKS = re.compile(r"[\\\"'/]")
#: How many times longer a secret may get in a stream by the backslashes of texts in texts.
_DEPTH = 8
#: Backslashes in a row that may be the escapes of one; a bound, since servers may send any number of them.
_MOST = 32
#: With a `/`, `?` or `#` that somebody forgot to encode only behind `user:`, and where no port can be meant.
_USERINFO = re.compile(
    r"(\b[A-Za-z][\w+.-]{0,30}:/{1,3})(?:[^/\s\"'<>?#]+|[^/\s\"'<>?#:@]{0,99}:(?!\d+[/?#])[^\s\"'<>]{0,999})@"
)
_SCHEME = re.compile(r"(?i)\b(bearer|basic|token)(\s+|%20)(?=[^\s\"',;]*[\d+=_])[\w.~+/=%-]{8,}")
_PARAMETER = re.compile(r"([?&;#])([\w.%~-]+)(=)([^&;\s\"'<>#]+)")


class SecretUnusable(ValueError):
    """A secret that cannot be sent. The text says where it came from and why, and never shows it."""


class Secret:
    """One secret. What prints it, writes it down or copies it elsewhere gets its place only."""

    __slots__ = ("_parts", "_text", "source")

    def __init__(self, text: str, source: str, parts: Iterable[str] = ()) -> None:
        self._text = text
        self._parts = tuple(parts)
        self.source = source

    def reveal(self) -> str:
        """The secret itself, for the header of the request that it is for."""
        return self._text

    def known(self) -> list[str]:
        """What must not be shown: the secret, and what it was made of."""
        return [self._text, *self._parts]

    def __repr__(self) -> str:
        return f"Secret({HIDDEN} from {self.source})"

    __str__ = __repr__

    def __reduce__(self) -> Any:
        raise TypeError("a secret is not copied")


def read_secret(text: str, source: str, *, spaces: bool = False) -> Secret | None:
    """The secret in `text`, without the blanks and line ends that files and mounts put around it; None where none is.

    `source` names its place in words ("the environment variable HF_TOKEN"). A header with several words allows
    `spaces` inside. Raises SecretUnusable for what no header can carry.
    """
    stripped = text.strip().strip("\ufeff\u200b").strip()
    if not stripped:
        return None
    if len(stripped) > LONGEST:
        raise SecretUnusable(f"{source} holds {len(stripped)} characters, where a key has {LONGEST} at most")
    if not stripped.isascii():
        raise SecretUnusable(f"{source} holds a character that is not ASCII, which no key has; copy the key again")
    if not stripped.isprintable() or (" " in stripped and not spaces):
        raise SecretUnusable(f"{source} holds a blank or a line end inside, which no key has; copy the key again")
    return Secret(stripped, source)


def bearer(secret: Secret) -> Secret:
    """The value of an Authorization header with a token."""
    return Secret(f"Bearer {secret.reveal()}", secret.source, secret.known())


def split_address(address: str, source: str) -> tuple[str, Secret | None]:
    """An address without its user name and password, and the Authorization header that carries them instead.

    Raises SecretUnusable when the address cannot be taken apart.
    """
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as error:
        raise SecretUnusable(f"{source} cannot be understood as an address") from error
    userinfo, at, host = parts.netloc.rpartition("@")
    if not at:
        return address, None
    user, _, password = userinfo.partition(":")
    pair = f"{unquote(user)}:{unquote(password)}"
    encoded = base64.b64encode(pair.encode("utf-8", "surrogatepass")).decode()
    return urlunsplit(parts._replace(netloc=host)), Secret(
        f"Basic {encoded}", source, [encoded, *address_secrets(address)]
    )


# --- what is secret -----------------------------------------------------------------------------


def looks_secret(text: str) -> bool:
    """Whether a value is taken for a secret whatever its name."""
    return _LOOKS_SECRET.fullmatch(text) is not None


def address_secrets(address: str) -> list[str]:
    """What must not be shown of an address: its password, and the parameters that sign or open it."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return []
    userinfo, _, _ = parts.netloc.rpartition("@")
    found = []
    if userinfo:
        user, colon, password = userinfo.partition(":")
        pair = [userinfo, password, unquote(userinfo), unquote(password)] if colon else [user, unquote(user)]
        found += pair
    for _, name, _, value in _PARAMETER.findall(f"?{parts.query}&{parts.fragment}"):
        if _is_secret_parameter(name, value):
            found += [value, unquote(value)]
    return [one for one in found if one]


def named_secrets(values: Mapping[str, str]) -> list[str]:
    """The values that are secrets by their name, by their look, or as a part of an address."""
    found = []
    for name, value in values.items():
        text = value.strip()
        if "://" in text:
            found += address_secrets(text)
        counts = text.isdigit() and len(text) < WORD  # `TURN_TOKENS=8192`
        named = SECRET_NAME.search(name) is not None and _PLACE_NAME.search(name) is None
        if not counts and (named or looks_secret(text)):
            found += [text, text.rpartition(" ")[2]]  # `Bearer x`: echoed whole or without its scheme
    return [one for one in found if one]


def argument_secrets(arguments: Sequence[str]) -> list[str]:
    """The values of options that are named like secrets (`--token x`, `--token=x`), and those of addresses."""
    found = []
    for option, value in pairwise((*arguments, "")):
        name, equals, inside = option.partition("=")
        if name.startswith("-") and SECRET_NAME.search(name):
            found.append(inside if equals else value)
        for address in (option, inside):  # `https://...`, and `--url=https://...`
            found += address_secrets(address) if "://" in address else []
    return found


def proxy_secrets(environ: Mapping[str, str]) -> list[str]:
    """The credentials of the proxies that an environment names."""
    named = [value for name, value in environ.items() if name.lower() in _PROXIES]
    return [one for value in named for one in address_secrets(value if "://" in value else f"http://{value}")]


def _is_secret_parameter(name: str, value: str) -> bool:
    plain = unquote(name)
    return bool(SECRET_NAME.search(plain)) or plain.lower() in ("code", "policy") or looks_secret(unquote(value))


# --- cleaning -----------------------------------------------------------------------------------


class Cleaner:
    """Takes `secrets` out of texts in every usual encoding, and of any address its password and signatures."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        lines = [line for secret in secrets if "\n" in secret for line in secret.split("\n") if len(line) >= _LINE]
        known = {one for secret in (*secrets, *lines) for one in (secret, secret.strip()) if _worth(one)}
        long = {form for secret in known if len(secret) >= WORD for form in forms(secret)}
        self._forms = sorted(long, key=len, reverse=True)
        self._words = _any_of([one for one in known if len(one) < WORD], r"(?<!\w)()")
        self._behind = _any_of([one for one in secrets if 0 < len(one) < SHORTEST], r"(?i)(\b(?:bearer|basic)\s+)")
        marked = [secret for secret in known if len(secret) >= WORD and _MARKS.search(secret)]
        self._nested = re.compile("|".join(map(_however_deep, marked))) if marked else None
        self._bare = [bare for secret in marked if (bare := secret.replace("\\", ""))]

    def __call__(self, text: str) -> str:
        """The text as it may be shown; cleaning it again changes nothing."""
        text = self.known(text)
        for short in (self._words, self._behind):
            text = text if short is None else short.sub(rf"\1{HIDDEN}", text)
        text = _USERINFO.sub(rf"\1{HIDDEN}@", text)
        text = _SCHEME.sub(rf"\1\2{HIDDEN}", text)
        return _PARAMETER.sub(_parameter, text)

    def known(self, text: str) -> str:
        """The text without the secrets alone: for what people and models wrote, which may quote any address."""
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        return text if self._nested is None else self._nested.sub(HIDDEN, text)

    def value(self, value: Any) -> Any:
        """A JSON value with each of its texts, and names of fields, cleaned by `known`."""
        if isinstance(value, str):
            return self.known(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.value(name): self.value(item) for name, item in value.items()}
        return value

    def held(self, text: str) -> int:
        """How many characters at the end of `text` may be the beginning of a secret."""
        plain = max((_begun(text, form, len(form)) for form in self._forms), default=0)
        if not self._bare:
            return plain
        nested = max(_begun(text, bare, len(bare) * _DEPTH, "\\") for bare in self._bare)
        before = text[: len(text) - nested]  # the backslashes of the first character stand before it
        return max(plain, nested + min(len(before) - len(before.rstrip("\\")), _MOST))

    def shortened(self, text: str, most: int, read: int) -> str:
        """At most `most` characters of the cleaned text, of which no more than `read` are looked at.

        A secret that the second bound cuts is hidden too.
        """
        cleaned = self(text[:read])
        whole = len(cleaned) - self.held(cleaned) if len(text) >= read else most
        return cleaned[: min(most, whole)]


def _begun(text: str, form: str, within: int, ignored: str = "") -> int:
    """The length of the longest end of `text`, of less than `within` characters, that `form` begins with."""
    at = text.find(form[0], max(0, len(text) - within + 1))
    while at >= 0:
        tail = text[at:].replace(ignored, "") if ignored else text[at:]
        if form.startswith(tail):
            return len(text) - at
        at = text.find(form[0], at + 1)
    return 0


def shown_address(text: str) -> str:
    """An address, or a text with some in it, without passwords and signatures."""
    return Cleaner()(text)


class StreamCleaner:
    """Cleans a text that comes in pieces, where a secret may be cut between two."""

    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner
        self._kept = ""

    def feed(self, piece: str) -> str:
        """What may be shown now; the rest waits for the next piece."""
        text = self._cleaner.known(self._kept + piece)
        held = self._cleaner.held(text)
        self._kept = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        """What still waited."""
        kept, self._kept = self._kept, ""
        return kept


def _any_of(secrets: Collection[str], before: str) -> re.Pattern[str] | None:
    """A pattern for each of these as a word behind `before`, which keeps its one group. None where there is none."""
    words = "|".join(sorted(map(re.escape, secrets), key=len, reverse=True))
    return re.compile(rf"{before}(?:{words})(?!\w)") if words else None


def _worth(secret: str) -> bool:
    return len(secret) >= SHORTEST and secret.lower() not in PLACEHOLDERS and secret != HIDDEN


def _parameter(found: re.Match[str]) -> str:
    lead, name, equals, value = found.groups()
    return f"{lead}{name}{equals}{HIDDEN if _is_secret_parameter(name, value) else value}"


def forms(secret: str) -> set[str]:
    """A secret as it stands in texts: itself, percent-encoded, escaped for JSON, HTML, Python or a place where it is
    shown, in hex and base64.
    """
    import html  # its table of names costs more than a bridge that sends no secret wants to pay

    raw = secret.encode("utf-8", "surrogatepass")
    quoted = json.dumps(secret)[1:-1]
    percent = {quote(raw, safe=""), quote(raw), quote_plus(raw), quote(raw, safe="!~*'()")}
    line = one_line(secret, len(secret) * 12)  # the longest escape of a character
    found = {
        secret,
        line,
        escaped(secret),
        in_markdown(secret),
        in_markdown(line),
        quoted,
        quoted.replace("/", "\\/"),
        "".join(f"\\u{ord(char):04x}" if char in "<>&'" else char for char in quoted),
        html.escape(secret, quote=False),
        html.escape(secret),
        repr(secret)[1:-1],
        repr(raw)[2:-1],
        raw.hex(),
        raw.hex().upper(),
        *percent,
        *(re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), text) for text in percent),
    }
    return found | set(_in_base64(raw))


def _however_deep(secret: str) -> str:
    """A pattern for texts in texts (JSON in JSON, the repr of it), where each depth has put backslashes in front."""
    return "".join(
        rf"\\{{1,{_MOST}}}" if part[0] == "\\" else rf"\\{{0,{_MOST}}}{part}" if _MARKS.match(part) else re.escape(part)
        for part in re.findall(r"\\+|[\"'/]|[^\\\"'/]+", secret)
    )


def _in_base64(raw: bytes) -> Iterable[str]:
    """What every base64 text that holds these bytes has in common, at each of the three places they may begin."""
    for before in range(3):
        text = base64.b64encode(bytes(before) + raw).decode()
        inside = text[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6]
        if len(inside) >= WORD:
            yield inside
            yield inside.translate(str.maketrans("+/", "-_"))
