"""Names of models: short, stable, unique (pure).

`SmolLM2-135M-Instruct.Q4_1.gguf` is called `smollm2-135m-instruct-q4_1`; a file whose own name says nothing
(`model.gguf`, `ggml-model-Q4_K_M.gguf`) takes that of its repository or folder. A name once given to a path
or to a content stays with it while it is known; a second model of the same name gets `@` and where it came from, or
six hex digits of its digest, which need no memory to come out the same everywhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping

import msgspec

MAX_NAME = 120
MAX_MARK = 40
MAX_KNOWN = 10_000
LIKENESS = 0.55

SPLIT = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})$")
QUANT_DOT = re.compile(r"\.(?=(?:u?d?-?i?q\d|f16|f32|bf16|mxfp4|nvfp4|tq\d))", re.IGNORECASE)
_UNWANTED = re.compile(r"[\s/\\:*?\"'<>|@,;`$()\[\]{}\x00-\x1f\x7f]+")
_DASHES = re.compile(r"-{2,}")
#: A quantization at the end of a name.
_QUANT_END = re.compile(
    r"(?:^|[-._ ])((?:ud[-_])?(?:i?q\d(?:_[a-z0-9]+)*|b?f(?:p)?(?:16|32)|mxfp4(?:_[a-z]+)?|nvfp4|tq\d_\d))$",
    re.IGNORECASE,
)
#: Words of which file names are made that say nothing of the model: converters' and savers' defaults, layouts.
# fmt: off
_GENERIC = frozenset(
    {
        "ggml", "gguf", "model", "models", "unsloth", "main", "default", "weights", "pytorch", "consolidated", "output",
        "converted", "merged", "final", "latest", "file", "download", "resolve", "llm", "checkpoint", "snapshots",
    }
)
# fmt: on
_WORDS = re.compile(r"[-._ ]+")
_GGUF_END = re.compile(r"(?i)(?:[-._ ]i1)?[-._ ]gguf$")


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


def is_generic(stem: str) -> bool:
    """Whether a file's or folder's name says nothing of the model in it, a quantization at most."""
    rest = _QUANT_END.sub("", stem.casefold())
    return all(word in _GENERIC or not word for word in _WORDS.split(rest))


def readable(stem: str, origin: str) -> str:
    """How a file is called: as it is written, or where that says nothing as its repository or folder, and its quant.

    `origin`: folders or owner and repository, with slashes between.
    """
    if not is_generic(stem):
        return stem
    place = next((part for part in reversed(origin.split("/")) if not is_generic(part)), "")
    if not place:
        return stem
    name = _GGUF_END.sub("", place)
    quant = _QUANT_END.search(stem)
    return name if quant is None or quant[1].casefold() in name.casefold() else f"{name}-{quant[1]}"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is to be named. `path` is unique among them; `also`: further bases that a name of this content may
    have (its copies elsewhere); `marks`: what tells it from a namesake, best first; `fixed`: its mark in any case.
    """

    path: str
    base: str
    digest: str
    also: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    fixed: str = ""


def assign(models: Iterable[Wanted], known: Mapping[str, str]) -> dict[str, str]:
    """Names by path for models in rank order.

    `known` maps `path_key` and `digest_key` to names given before; those stay.
    """
    models = list(models)
    names: dict[str, str] = {}
    taken: set[str] = set()
    for model in models:
        name = _kept(model, known)
        if name and name not in taken:
            names[model.path] = name
            taken.add(name)
    for model in models:
        if model.path not in names:
            name = names[model.path] = _free(model, taken)
            taken.add(name)
    return names


def _kept(model: Wanted, known: Mapping[str, str]) -> str:
    """The name that this path or content has; one that no longer fits the file (renamed on disk) is not kept."""
    for key in (path_key(model.path), digest_key(model.digest)):
        name = known.get(key, "")
        base, _, mark = name.partition("@")
        if name and base in (model.base, *model.also) and (not model.fixed or mark == model.fixed):
            return name
    return ""


def _free(model: Wanted, taken: Collection[str]) -> str:
    digits = model.digest.rpartition("-")[2]
    marks = (model.fixed,) if model.fixed else ("", *model.marks)
    for mark in (*marks, *(digits[:length] for length in (6, 12, 32))):
        name = f"{model.base}@{mark}" if mark else model.base
        if name not in taken:
            return name
    number = 2
    while f"{model.base}@{number}" in taken:
        number += 1
    return f"{model.base}@{number}"


def marks(origin: str) -> tuple[str, ...]:
    """What tells a model that came from here from a namesake: the owner or publisher, the folder, both."""
    parts = [base_name(part) for part in origin.split("/") if part]
    found = [*parts[:1], *parts[-1:], "-".join(parts)] if parts else []
    return tuple(dict.fromkeys(mark[:MAX_MARK] for mark in found))


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
    return newest(names)


def newest(table: Mapping[str, str]) -> dict[str, str]:
    """The end of a table that grows, as long as it may be."""
    surplus = max(0, len(table) - MAX_KNOWN)
    return dict(list(table.items())[surplus:])


def renamed(known: Mapping[str, str], rows: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """What models were called before, by that name, with the key of what it means: rows as for `remember`."""
    former: dict[str, str] = {}
    for path, digest, name in rows:
        for key in (path_key(path), digest_key(digest)):
            before = known.get(key, "")
            if before and before != name:
                former[before] = digest_key(digest) if digest else path_key(path)
    return former


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
