"""Finds files of a Hugging Face repository: `hf:owner/repo[@revision][:pattern]`."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from shared.catalog import names
from shared.catalog.scan import IR_LANGUAGE, IR_MODEL
from shared.errors import DownloadFailed, SettingInvalid
from shared.fetch.download import Job, Wanted, get_json
from shared.text.nesting import decode_json
from shared.text.secret import Cleaner, Secret, SecretUnusable, bearer, read_secret, shown_address, split_address

ENDPOINT = "https://huggingface.co"
#: What a repository without a pattern means, best first: small, good, and served by both engines' rules.
PREFERRED = ("q4_k_m", "q4_0", "q4_1", "q5_k_m", "q8_0", "f16")
_PROJECTORS = ("f16", "bf16", "q8", "f32")
_SOURCE = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?(?::(?P<pattern>.+))?")


class HubFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the repository; `sha256` is known for files in large-file storage."""

    path: str
    size: int
    sha256: str = ""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What to fetch: one model. `folder` is "" for GGUF files, else the name of the IR folder.

    `projector`: the file which the model needs for images, None where the repository has none.
    """

    files: list[tuple[str, Wanted]]
    folder: str = ""
    projector: Wanted | None = None


def parse(source: str) -> tuple[str, str, str]:
    """(repo, revision, pattern). Raises DownloadFailed."""
    found = _SOURCE.fullmatch(source)
    if found is None or ".." in found["repo"]:
        source = shown_address(source)
        raise DownloadFailed(source=source, reason="write hf:owner/repo or hf:owner/repo:pattern", resumable=False)
    return found["repo"], found["revision"] or "main", found["pattern"] or ""


def resolve(source: str, environ: Mapping[str, str], job: Job) -> Choice:
    """The files that `source` names, with their addresses and checksums. Raises DownloadFailed."""
    repo, revision, pattern = parse(source)
    base, authorization = _endpoint(environ)
    tree = f"{base}/api/models/{repo}/tree/{quote(revision, safe='')}?recursive=true"
    asked = Wanted(url=tree, authorization=authorization)
    listing = get_json(asked, job)
    clean = asked.clean
    try:
        files = [_file(item, clean) for item in decode_json(listing, list[dict[str, Any]])]
    except msgspec.MsgspecError as error:
        raise DownloadFailed(
            source=source, reason=f"the listing cannot be read: {clean(str(error))}", resumable=False
        ) from error
    known = [file for file in files if file is not None]
    chosen, folder = choose(source, known, pattern, repo)
    beside = None if folder else projector_of(known, chosen[0])

    def wanted(file: HubFile) -> Wanted:
        address = f"{base}/{repo}/resolve/{quote(revision, safe='')}/{quote(file.path)}"
        return Wanted(url=address, sha256=file.sha256, size=file.size, authorization=authorization)

    return Choice(
        files=[(os.path.basename(file.path), wanted(file)) for file in chosen],
        folder=folder,
        projector=None if beside is None else wanted(beside),
    )


def projector_of(files: list[HubFile], model: HubFile) -> HubFile | None:
    """The projector of a repository's model: its own folder's first, half precision where there are several. Pure."""
    found = [file for file in files if _is_projector(file)]
    folder = os.path.dirname(model.path)

    def rank(file: HubFile) -> tuple[bool, int, str]:
        name = os.path.basename(file.path).lower()
        types = (place for place, kind in enumerate(_PROJECTORS) if kind in re.split(r"[-_.]", name))
        return os.path.dirname(file.path) != folder, next(types, len(_PROJECTORS)), file.path

    return min(found, key=rank, default=None)


def projector_name(model: str) -> str:
    """The name of a projector's file that says whose it is: in one folder of all models it could be any's."""
    stem = os.path.splitext(model)[0]
    part = names.split_stem(stem)
    return f"mmproj-{part[0] if part else stem}.gguf"


def _is_projector(file: HubFile) -> bool:
    return file.path.lower().endswith(".gguf") and "mmproj" in file.path.lower()


def choose(source: str, files: list[HubFile], pattern: str, repo: str) -> tuple[list[HubFile], str]:
    """One model out of a listing: (files, IR folder name or ""). Pure. Raises DownloadFailed.

    A pattern is matched against the path, without wildcards as a part of the name. Shards of one split
    model go together; several models are refused with their names.
    """
    models = [file for file in files if file.path.lower().endswith(".gguf") and not _is_projector(file)]
    if not models and any(file.path in (IR_MODEL, IR_LANGUAGE) for file in files):
        return [file for file in files if "/" not in file.path and not file.path.startswith(".")], repo.split("/")[1]
    if pattern:
        glob = pattern.lower() if any(char in pattern for char in "*?[") else f"*{pattern.lower()}*"
        models = [f for f in models if fnmatch.fnmatchcase(f.path.lower(), glob) or f.path == pattern]
        models = [f for f in models if f.path == pattern] or models
    by_model: dict[str, list[HubFile]] = {}
    for file in sorted(models, key=lambda item: item.path):
        part = names.split_stem(file.path.rpartition(".")[0])
        by_model.setdefault(part[0] if part else file.path, []).append(file)
    if len(by_model) > 1 and not pattern:
        for wanted in PREFERRED:
            fitting = [model for model in by_model if wanted in model.lower()]
            if len(fitting) == 1:
                return by_model[fitting[0]], ""
    if len(by_model) != 1:
        raise DownloadFailed(source=source, reason=_several(by_model, files), resumable=False)
    return next(iter(by_model.values())), ""


def _several(by_model: Mapping[str, list[HubFile]], files: list[HubFile]) -> str:
    if by_model:
        return f"several models fit, name one after a colon: {', '.join(list(by_model)[:12])}"
    ggufs = [file.path for file in files if file.path.lower().endswith(".gguf")]
    if ggufs:
        return f"no file fits the pattern; there are: {', '.join(ggufs[:12])}"
    return "the repository holds no GGUF file and no OpenVINO model"


def _file(item: dict[str, Any], clean: Cleaner) -> HubFile | None:
    path = clean.value(item.get("path"))
    if item.get("type") != "file" or not isinstance(path, str) or ".." in path.split("/"):
        return None
    lfs = item.get("lfs")
    large = lfs if isinstance(lfs, dict) else {}
    size = large.get("size", item.get("size"))
    oid = clean.value(large.get("oid"))
    return HubFile(path=path, size=size if isinstance(size, int) else 0, sha256=oid if isinstance(oid, str) else "")


def _endpoint(environ: Mapping[str, str]) -> tuple[str, Secret | None]:
    """The hub's address, and who asks: by a token, else by a name and password that HF_ENDPOINT holds.

    Raises SettingInvalid.
    """
    address = (environ.get("HF_ENDPOINT") or "").strip() or ENDPOINT
    name = "HF_ENDPOINT"
    try:
        base, authorization = split_address(address.rstrip("/"), name)
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            token = read_secret(environ.get(name, ""), f"the environment variable {name}")
            if token is not None:
                return base, bearer(token)
    except SecretUnusable as error:
        raise SettingInvalid(name=name, source="the environment", reason=str(error)) from None
    return base, authorization
