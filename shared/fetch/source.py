"""What a person means by the source of a pull, and by a checksum. Pure.

Sources are `starter`, `hf:owner/repo[@revision][:pattern]`, an http(s) address, a path. What is none of them gets the
nearest one as an answer: nobody who mistypes a name means a file.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import re
from typing import Literal
from urllib.parse import unquote, urlsplit

from shared.errors import DownloadFailed
from shared.text.secret import shown_address

STARTER = "starter"
HUB = "hf:"
Kind = Literal["starter", "hub", "address", "path"]

_LIKENESS = 0.6
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+(?::.+)?")
_HUB_HOSTS = ("huggingface.co", "hf.co", "www.huggingface.co")
_HUB_PREFIX = re.compile(r"(?i)(?:hf|huggingface|hugging-face|hub)(?::/*|/+)|(?:(?:www\.)?huggingface\.co|hf\.co)[:/]+")
_OLLAMA = re.compile(r"[a-z0-9][\w.-]*:[\w.-]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HEX = re.compile(r"[0-9a-f]+")
#: By how many hex digits a checksum of another kind is known.
_OTHERS = {32: "an MD5", 40: "a SHA-1, or a commit", 56: "a SHA-224", 96: "a SHA-384", 128: "a SHA-512"}


def kind_of(source: str) -> Kind:
    """What sort of source this is, as it is written; a path is whatever is nothing else."""
    lowered = source.strip().lower()
    if lowered == STARTER:
        return "starter"
    if lowered.startswith(HUB):
        return "hub"
    return "address" if lowered.startswith(("http://", "https://")) else "path"


def understood(source: str, *, exists: bool) -> str:
    """The source as it is fetched. `exists`: whether there is a file of this name here.

    Raises DownloadFailed with the nearest source for what is none.
    """
    source = source.strip()
    kind = kind_of(source)
    if kind == "starter":
        return STARTER
    if kind == "hub":
        return HUB + source[len(HUB) :].strip("/ ")
    if kind == "address":
        return _address(source)
    if exists or _is_path(source):
        return source
    raise DownloadFailed(source=shown_address(source), reason=_meant(source), resumable=False)


def _address(source: str) -> str:
    """A page of the hub's is no file: it says what it shows. Raises DownloadFailed."""
    try:
        parts = urlsplit(source)
    except ValueError:
        return source  # whoever fetches it says what is wrong with it
    words = [unquote(word) for word in parts.path.split("/") if word]
    if parts.hostname not in _HUB_HOSTS or len(words) < 2 or "resolve" in words:
        return source
    repository, rest = "/".join(words[:2]), words[4:] if words[2:3] in (["blob"], ["tree"]) else []
    meant = HUB + repository + (f":{'/'.join(rest)}" if rest else "")
    raise DownloadFailed(source=shown_address(source), reason=f"this is a page; pull {meant}", resumable=False)


def _is_path(source: str) -> bool:
    if _HUB_PREFIX.match(source) or "://" in source:
        return False
    looks = source.startswith((".", "/", "~", "\\")) or source[1:3] in (":\\", ":/")
    return looks or "\\" in source or source.lower().endswith(".gguf") or source.count("/") > 1


def _meant(source: str) -> str:
    hub = _HUB_PREFIX.match(source)
    if hub is not None:
        return f"did you mean {HUB}{source[hub.end() :]}?"
    if "://" in source:
        return "only http and https addresses are fetched; did you mean https://...?"
    if _REPOSITORY.fullmatch(source):
        return f"did you mean {HUB}{source}? (there is no such file here)"
    if difflib.SequenceMatcher(None, source.lower(), STARTER).ratio() >= _LIKENESS:
        return f"did you mean {STARTER}?"
    if _OLLAMA.fullmatch(source.lower()):
        return (
            f"for a model of Ollama's run `ollama pull {source}`: it is found there; or name a source as hf:owner/repo"
        )
    return "it is none of: starter, hf:owner/repo[:pattern], an https address, a file of this machine"


def sha256_of(text: str) -> str:
    """A SHA-256 in 64 hex digits, from the spellings of the usual tools. Raises ValueError, saying what it is instead.

    `sha256:HEX`, `sha256-HEX`, `SHA256 (file) = HEX`, `HEX  file`, upper case, and the base64 of `sha256-...=`.
    """
    stripped = text.strip().strip("\"'")
    bare = re.sub(r"(?i)^sha-?256(?:\s*\(.*\)\s*=|[:=-])?\s*", "", stripped)
    encoded = _from_base64(bare) if len(bare) in (43, 44) else ""
    digits = encoded or (bare.split() or [""])[0].lower()
    if _SHA256.fullmatch(digits):
        return digits
    if _HEX.fullmatch(digits):
        other = _OTHERS.get(len(digits))
        raise ValueError(f"this is {other}" if other else f"it has {len(digits)} hex digits where a SHA-256 has 64")
    raise ValueError("a SHA-256 is 64 hex digits, as `sha256sum` prints them")


def _from_base64(text: str) -> str:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return ""
    return data.hex() if len(data) == 32 else ""
