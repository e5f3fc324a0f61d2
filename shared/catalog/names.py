"""Names of models: short, stable, unique (pure).

`SmolLM2-135M-Instruct.Q4_1.gguf` is called `smollm2-135m-instruct-q4_1`. A name once given to a path
or to a content stays with it while it is known; a second model of the same name gets `@` and six
hex digits of its digest, which need no memory to come out the same everywhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

MAX_NAME = 120
MAX_KNOWN = 10_000
LIKENESS = 0.55

SPLIT = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})$")
QUANT_DOT = re.compile(r"\.(?=(?:u?d?-?i?q\d|f16|f32|bf16|mxfp4|nvfp4|tq\d))", re.IGNORECASE)
_UNWANTED = re.compile(r"[\s/\\:*?\"'<>|@,;`$()\[\]{}\x00-\x1f\x7f]+")
_DASHES = re.compile(r"-{2,}")


def base_name(text: str) -> str:
    """The name a file stem, folder or hint gives, before it is made unique. Never empty."""
    lowered = text.casefold() if text.isascii() else unicodedata.normalize("NFC", text.casefold())
    dotted = QUANT_DOT.sub("-", lowered)
    printable = dotted if dotted.isprintable() else "".join(c if c.isprintable() else "-" for c in dotted)
    name = _DASHES.sub("-", _UNWANTED.sub("-", printable)).strip("-.")
    return name[:MAX_NAME] or "model"


def split_stem(stem: str) -> tuple[str, int, int] | None:
    """(stem, number from 1, count) of one part of a split model, else None."""
    found = SPLIT.match(stem)
    if found is None:
        return None
    return found["stem"], int(found["number"]), int(found["count"])


def assign(
    wanted: Iterable[tuple[str, str, str]],
    known: Mapping[str, str],
    also: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> dict[str, str]:
    """Names by path for `(path, base, digest)` triples in rank order.

    `known` maps `path_key` and `digest_key` to names given before; those stay. `also`: by path, further bases that
    a name of this content may have (its copies elsewhere, and the name that a file of this very path had while a copy
    was there). Returns path -> name.
    """
    models = list(wanted)
    names: dict[str, str] = {}
    taken: set[str] = set()
    for path, base, digest in models:
        for key in (path_key(path), digest_key(digest)):
            name = known.get(key)
            # a remembered name that no longer fits the file (renamed on disk) is not kept
            if name is not None and name not in taken and name.partition("@")[0] in (base, *also.get(path, ())):
                names[path] = name
                taken.add(name)
                break
    for path, base, digest in models:
        if path in names:
            continue
        name = base
        for length in (6, 12, 32):
            if name not in taken:
                break
            name = f"{base}@{digest.rpartition('-')[2][:length]}"
        number = 2
        while name in taken:
            name, number = f"{base}@{number}", number + 1
        names[path] = name
        taken.add(name)
    return names


def path_key(path: str) -> str:
    """Key of a path in the table of known names."""
    return f"p:{path}"


def digest_key(digest: str) -> str:
    """Key of a content in the table of known names."""
    return f"d:{digest}"


def remember(known: Mapping[str, str], rows: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """`known` with the names of `(path, digest, name)` rows added, the oldest dropped past the bound."""
    names = dict(known)
    for path, digest, name in rows:
        for key in (path_key(path), digest_key(digest)):
            if not key.endswith(":"):
                names.pop(key, None)
                names[key] = name
    surplus = max(0, len(names) - MAX_KNOWN)
    return dict(list(names.items())[surplus:])


def begun(typed: str, candidates: Iterable[str]) -> str | None:
    """The one name that begins as a person typed it, case aside; None where none or several do."""
    wanted = typed.casefold()
    found = [candidate for candidate in candidates if wanted and candidate.casefold().startswith(wanted)]
    return found[0] if len(found) == 1 else None


def nearest(name: str, candidates: Iterable[str], most: int = 5) -> list[str]:
    """The names that were probably meant, best first: like the whole, the beginning or a part of one."""
    import difflib  # 5 ms, only on a miss

    wanted = base_name(name)
    scored = []
    for candidate in candidates:
        whole = difflib.SequenceMatcher(None, wanted, candidate).ratio()
        begun = difflib.SequenceMatcher(None, wanted, candidate[: len(wanted) + 1]).ratio()
        score = max(whole, 0.95 * begun, 0.9 if wanted in candidate else 0.0)
        if score >= LIKENESS:
            scored.append((-score, candidate))
    return [candidate for _, candidate in sorted(scored)[:most]]


def is_address(source: str) -> bool:
    """Whether the source of a pull is fetched by HTTP from where it says."""
    return source.lower().startswith(("http://", "https://"))
