"""From single files to models: split parts as one, projectors and adapters beside, duplicates once (pure)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

import msgspec

from shared.catalog import names
from shared.catalog.advertised.servable import backends
from shared.catalog.entry import Facts, ModelEntry
from shared.catalog.scan import Candidate
from shared.catalog.sources import RANK
from shared.text.shown import NAME_MOST, one_line

_PROJECTOR_WORD = re.compile(r"(?:^|[-.])(?:mmproj|fp?16|fp?32|bf16|q8_0|vision)(?=[-.]|$)")
_PROJECTOR_ORDER = ("F16", "BF16", "Q8_0", "F32")


class FileRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What reading one candidate gave; valid while its signature is the same. `fault` is "" or why it
    was rejected.
    """

    path: str
    signature: str
    facts: Facts = Facts()
    digest: str = ""
    sha256: str = ""
    fault: str = ""

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to read."""
        return bool(self.fault) or self.facts.complete


class Found(msgspec.Struct, frozen=True):
    """A candidate with its record."""

    candidate: Candidate
    record: FileRecord


class Draft(msgspec.Struct, frozen=True):
    """A model before it is named: the base of its name, its entry, the candidate it begins with, and its copies."""

    base: str
    entry: ModelEntry
    candidate: Candidate
    copies: tuple[Draft, ...] = ()

    @property
    def key(self) -> str:
        """What is unique among drafts: tags of Ollama's may share a blob."""
        shared = self.entry.source == "ollama"
        return f"{self.candidate.group}\n{self.entry.path}" if shared else self.entry.path


def entries(
    found: Iterable[Found],
    known: Mapping[str, str],
    own: frozenset[str] = frozenset(),
    former: Mapping[str, str] = MappingProxyType({}),
) -> list[ModelEntry]:
    """The library's rows, named and in a stable order (by name). `former`: see `names.renamed`."""
    by_group: dict[str, list[Found]] = {}
    for item in found:
        by_group.setdefault(item.candidate.group, []).append(item)
    drafts: list[Draft] = []
    for group in by_group.values():
        drafts.extend(_group(group))
    drafts.sort(key=_order)
    merged = _without_copies(drafts)
    given = names.assign([_wanted(draft, known) for draft in merged], known)
    before: dict[str, list[str]] = {}
    for name, key in former.items():
        before.setdefault(key, []).append(name)
    taken = set(given.values())
    named = []
    for draft in merged:
        aliases = [name for name in _aliases(draft, before) if name not in taken]
        taken.update(aliases)
        named.append(_finish(draft, given[draft.key], own, tuple(aliases)))
    return sorted(named, key=lambda entry: entry.name)


def _order(draft: Draft) -> tuple[int, bool, bool, str, str]:
    """Who keeps the plain name, and stands for its copies: what is current and no more than its weights."""
    candidate = draft.candidate
    rank = RANK.get(draft.entry.source, 9)
    return rank, bool(candidate.revision), not candidate.plain, draft.entry.path, draft.base


def _wanted(draft: Draft, known: Mapping[str, str]) -> names.Wanted:
    entry, candidate = draft.entry, draft.candidate
    return names.Wanted(
        path=draft.key,
        base=draft.base,
        digest=entry.digest,
        also=_other_bases(draft, known),
        marks=names.marks(candidate.origin),
        fixed=candidate.revision,
    )


def _other_bases(draft: Draft, known: Mapping[str, str]) -> tuple[str, ...]:
    """Under which other names this content may be known: a pulled copy comes first from now on, and what was picked
    stays picked, also when the copy that gave the name is cleared away. An Ollama blob is named by its tags alone, and
    a name that says nothing is not kept.
    """
    entry = draft.entry
    found = [copy.base for copy in draft.copies]
    name = known.get(names.path_key(entry.path))
    if entry.source != "ollama" and name is not None and name == known.get(names.digest_key(entry.digest)):
        found.append(name.partition("@")[0])
    return tuple(base for base in found if not names.is_generic(base))


def _aliases(draft: Draft, before: Mapping[str, Sequence[str]]) -> list[str]:
    """Other names: of its copies, of its tags in full, and those that it had."""
    found = []
    for one in (draft, *draft.copies):
        found += [one.base, *(names.base_name(alias) for alias in one.candidate.aliases)]
    for key in (names.digest_key(draft.entry.digest), names.path_key(draft.entry.path)):
        found += before.get(key, ())
    return list(dict.fromkeys(found))


def single(parts: list[Found], before: ModelEntry) -> ModelEntry:
    """The entry recreated from the parts of `before`, which keeps its name and its neighbours."""
    faults = [part.record.fault for part in parts if part.record.fault]
    entry = _adapted(_entry(before.title, parts, faults[0] if faults else ""), before.adapters)
    return msgspec.structs.replace(
        entry,
        name=before.name,
        title=before.title,
        source=before.source,
        projector=before.projector,
        vision=before.vision,
        available_adapters=before.available_adapters,
        copies=before.copies,
        aliases=before.aliases,
        own=before.own,
    )


def _group(group: list[Found]) -> list[Draft]:
    """Every model of one folder or manifest."""
    projectors = [item for item in group if item.record.facts.kind == "projector" or item.candidate.role == "projector"]
    adapters = [item for item in group if item.record.facts.kind == "adapter"]
    used = {item.candidate.path for item in projectors}
    models: list[Draft] = []
    paired: set[str] = set()
    rest = [item for item in group if item.candidate.path not in used]
    alike = _split_parts(rest)
    count = sum(parts[0].record.facts.kind == "model" for _, parts, _ in alike)
    for written, parts, problem in alike:
        base, entry = names.base_name(written), _entry(written, parts, problem)
        if (projectors or adapters) and entry.kind == "model" and not entry.problem:
            projector = _projector(base, entry, projectors, count)
            paired.update([projector] if projector else [])
            same = [a.candidate.path for a in adapters if a.record.facts.architecture == entry.architecture]
            entry = msgspec.structs.replace(
                entry, projector=projector, vision=bool(projector), available_adapters=tuple(sorted(same))
            )
        models.append(Draft(base, _tagged(entry, adapters), parts[0].candidate))
    for item in projectors:
        if item.candidate.path not in paired and not any(draft.entry.kind == "model" for draft in models):
            models.append(Draft(_base(item), _entry(_written(item), [item], ""), item.candidate))
    return [draft for draft in models if draft.candidate.role != "adapter" or len(models) == 1]


def _tagged(entry: ModelEntry, adapters: Sequence[Found]) -> ModelEntry:
    """A tag of Ollama's that puts adapters over its model means both, or cannot be used."""
    layers = [item for item in adapters if item.candidate.role == "adapter"]
    if not layers or entry.kind != "model" or entry.problem:
        return entry
    faults = [item.record.fault for item in layers if item.record.fault]
    others = {item.record.facts.architecture for item in layers} - {entry.architecture}
    if faults or others:
        reason = faults[0] if faults else f"it is for {', '.join(sorted(others))}, the model is {entry.architecture}"
        return msgspec.structs.replace(entry, problem=f"its adapter cannot be used: {reason}", backends=(), reasons={})
    return _adapted(entry, tuple(item.candidate.path for item in layers))


def _adapted(entry: ModelEntry, adapters: tuple[str, ...]) -> ModelEntry:
    """The model with these adapters over it, which llama.cpp alone can do."""
    if not adapters or entry.problem:
        return entry
    able = tuple(backend for backend in entry.backends if backend == "llama")
    refused = {
        backend: "it does not apply adapters, and this tag has one" for backend in entry.backends if backend != "llama"
    }
    return msgspec.structs.replace(entry, adapters=adapters, backends=able, reasons={**entry.reasons, **refused})


def _written(item: Found) -> str:
    """The name as its place writes it."""
    stem = PurePath(item.candidate.path).stem
    part = names.split_stem(stem)
    return item.candidate.hint or names.readable(part[0] if part and part[2] == 1 else stem, item.candidate.origin)


def _base(item: Found) -> str:
    return names.base_name(_written(item))


def _split_parts(group: Sequence[Found]) -> list[tuple[str, list[Found], str]]:
    """(name as written, parts in order, problem) with the parts of a split model together."""
    single: list[tuple[str, list[Found], str]] = []
    split: dict[tuple[str, int], dict[int, Found]] = {}
    for item in group:
        stem = PurePath(item.candidate.path).stem
        part = names.split_stem(stem) if item.candidate.format == "gguf" and not item.candidate.hint else None
        if part is None or part[2] < 2:
            single.append((_written(item), [item], _lone_part(item)))
        else:
            split.setdefault((part[0], part[2]), {})[part[1]] = item
    for (stem, count), numbered in split.items():
        missing = [number for number in range(1, min(count, 10_000) + 1) if number not in numbered]
        parts = [numbered[number] for number in sorted(numbered)]
        problem = f"part {missing[0]} of {count} is missing" if missing else ""
        faults = [part.record.fault for part in parts if part.record.fault]
        written = names.readable(stem, parts[0].candidate.origin)
        single.append((written, parts, problem or (faults[0] if faults else "")))
    return single


def _lone_part(item: Found) -> str:
    split = item.record.facts.split
    return f"this is part {split[0] + 1} of {split[1]} of a split model under another name" if split else ""


def _entry(written: str, parts: list[Found], problem: str) -> ModelEntry:
    """What a file says of itself in words is one line in which nothing acts, from here on."""
    first = parts[0]
    first_facts = first.record.facts
    facts = msgspec.structs.replace(first_facts, architecture=one_line(first_facts.architecture, NAME_MOST))
    problem = one_line(problem or first.record.fault)
    fields: dict[str, Any] = {name: getattr(facts, name) for name in Facts.__struct_fields__}
    fields["format"] = first.candidate.format
    fields["title"] = one_line(written, NAME_MOST)
    if len(parts) > 1:
        fields.update(_summed(parts))
    able, reasons = backends(msgspec.convert(fields, Facts) if len(parts) > 1 else facts, shards=len(parts))
    if problem:
        able, reasons = (), {}
    elif not able and len(set(reasons.values())) == 1:
        problem = next(iter(reasons.values()))
    return ModelEntry(
        **fields,
        name="",
        path=first.candidate.path,
        source=first.candidate.source,
        size_bytes=sum(part.candidate.size for part in parts),
        digest=_joined([part.record.digest for part in parts], "fp1-"),
        sha256=_joined([part.record.sha256 for part in parts], ""),
        shards=tuple(part.candidate.path for part in parts) if len(parts) > 1 else (),
        backends=able,
        reasons=reasons,
        problem=problem,
    )


def _summed(parts: list[Found]) -> dict[str, Any]:
    types: dict[str, int] = {}
    for part in parts:
        for name, size in part.record.facts.tensor_types.items():
            types[name] = types.get(name, 0) + size
    return {
        "parameters": sum(part.record.facts.parameters for part in parts),
        "weights_bytes": sum(part.record.facts.weights_bytes for part in parts),
        "tensor_types": types,
        "complete": all(part.record.facts.complete for part in parts),
    }


def _joined(digests: list[str], prefix: str) -> str:
    if len(digests) == 1 or not all(digests):
        return digests[0] if len(digests) == 1 else ""
    joined = hashlib.sha256("\n".join(digests).encode()).hexdigest()
    return prefix + (joined[:32] if prefix else joined)


def _projector(base: str, entry: ModelEntry, projectors: list[Found], models: int) -> str:
    """The path of the projector that belongs to the model, or "".

    In a folder of one model any projector fits; among several it must carry the model's name. A
    projector that states another width than the model never fits.
    """
    fitting = [
        item
        for item in projectors
        if not (item.record.fault or (item.record.facts.n_embd and item.record.facts.n_embd != entry.n_embd))
    ]
    generic = [item for item in fitting if _bare(_base(item)) in ("", "model")]
    own = [item for item in fitting if _bare(_base(item)) and base.startswith(_bare(_base(item)))]
    choice = own or (fitting if models == 1 else generic if _one_family(entry, models) else [])
    ordered = sorted(choice, key=lambda item: (_rank(item.record.facts.quantization), item.candidate.path))
    return ordered[0].candidate.path if ordered else ""


def _one_family(entry: ModelEntry, models: int) -> bool:
    # a generic name in a repository's or publisher's folder belongs to all the files in it; the own
    # store is one flat folder, where it could belong to any
    return entry.source != "store" or models == 1


def _bare(name: str) -> str:
    """A projector's name without the words that only say what it is."""
    return _PROJECTOR_WORD.sub("", name).strip("-.")


def _rank(quantization: str) -> int:
    return _PROJECTOR_ORDER.index(quantization) if quantization in _PROJECTOR_ORDER else len(_PROJECTOR_ORDER)


def _without_copies(drafts: list[Draft]) -> list[Draft]:
    kept: list[Draft] = []
    by_digest: dict[tuple[str, ...], int] = {}
    for draft in drafts:
        entry = draft.entry
        content = (entry.digest, *entry.adapters)
        at = by_digest.get(content) if entry.digest and not entry.problem else None
        if at is not None and not _differ(kept[at].entry, entry):
            kept[at] = _with_copy(kept[at], draft)
            continue
        if entry.digest and not entry.problem:
            by_digest.setdefault(content, len(kept))
        kept.append(draft)
    return kept


def _with_copy(first: Draft, copy: Draft) -> Draft:
    entry = first.entry
    if copy.entry.path != entry.path and copy.entry.path not in entry.copies:
        entry = msgspec.structs.replace(entry, copies=(*entry.copies, copy.entry.path))
    return msgspec.structs.replace(first, entry=entry, copies=(*first.copies, copy))


def _differ(one: ModelEntry, other: ModelEntry) -> bool:
    """Whether two files with one fingerprint are known to be different after all."""
    return bool(one.sha256 and other.sha256 and one.sha256 != other.sha256) or one.size_bytes != other.size_bytes


def _finish(draft: Draft, name: str, own: frozenset[str], aliases: tuple[str, ...]) -> ModelEntry:
    entry = draft.entry
    ours = all(part in own for part in entry.shards or (entry.path,))
    title = _title(entry.title, name, draft.candidate.revision)
    return msgspec.structs.replace(entry, name=name, own=ours, title=title, aliases=aliases)


def _title(written: str, name: str, revision: str) -> str:
    """The name as its file writes it; what `general.name` says is too often a training run's."""
    title = names.QUANT_DOT.sub(" ", written)
    mark = name.partition("@")[2]
    if revision and mark == revision:
        mark = f"revision {revision}"
    return f"{title} ({mark})" if mark else title
