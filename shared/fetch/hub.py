"""Finds files of a Hugging Face repository: `hf:owner/repo[@revision][:pattern]`."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from shared.catalog import names
from shared.catalog.scan import IR_LANGUAGE, IR_MODEL
from shared.errors import DownloadFailed, SettingInvalid
from shared.fetch.download import Job, get_json
from shared.fetch.net import Wanted
from shared.system.foreign import ask
from shared.text.nesting import decode_json
from shared.text.secret import Cleaner, Secret, SecretUnusable, bearer, read_secret, shown_address, split_address

#: A listing of more pages than this is refused: a page has a thousand files.
MAX_PAGES = 100
MAX_LOGIN = 64 * 1024
ENDPOINT = "https://huggingface.co"
#: What a repository without a pattern means, best first: small, good, and served by both engines' rules.
PREFERRED = ("q4_k_m", "q4_0", "q4_1", "q5_k_m", "q8_0", "f16")
_PROJECTORS = ("f16", "bf16", "q8", "f32")
_SOURCE = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?(?::(?P<pattern>.+))?")


class HubFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the repository; `sha256` is known for files in large-file storage, `oid` is Git's for any file."""

    path: str
    size: int
    sha256: str = ""
    oid: str = ""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What to fetch: one model. `folder` is "" for GGUF files, else the name of the IR folder.

    `projector`: the file which the model needs for images, None where the repository has none.
    """

    files: list[tuple[str, Wanted]]
    folder: str = ""
    repository: str = ""
    mark: str = ""
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
    known = _listing(source, Wanted(url=tree, authorization=authorization), job)
    chosen, folder = choose(source, known, pattern, repo)
    beside = None if folder else projector_of(known, chosen[0])

    def wanted(file: HubFile) -> Wanted:
        address = f"{base}/{repo}/resolve/{quote(revision, safe='')}/{quote(file.path)}"
        return Wanted(url=address, sha256=file.sha256, size=file.size, authorization=authorization)

    return Choice(
        files=[(os.path.basename(file.path), wanted(file)) for file in chosen],
        folder=folder,
        repository=repo,
        mark=_mark(chosen),
        projector=None if beside is None else wanted(beside),
    )


def _listing(source: str, asked: Wanted, job: Job) -> list[HubFile]:
    """Every file of the repository: a big one is listed in pages. Raises DownloadFailed."""
    found: list[HubFile] = []
    for _ in range(MAX_PAGES):
        try:
            listing, following = _page(asked, job)
            items = decode_json(listing, list[dict[str, Any]])
        except msgspec.MsgspecError as error:
            reason = f"the listing cannot be read: {asked.clean(str(error))}"
            raise DownloadFailed(source=source, reason=reason, resumable=False) from error
        found += [file for item in items if (file := _file(item, asked.clean)) is not None]
        if not following:
            return found
        asked = msgspec.structs.replace(asked, url=following)
    raise DownloadFailed(source=source, reason=f"its listing has more than {MAX_PAGES} pages", resumable=False)


def _page(asked: Wanted, job: Job) -> tuple[bytes, str]:
    """The hub answers alike for what is not there and for what is not shown. Raises DownloadFailed."""
    try:
        return get_json(asked, job)
    except DownloadFailed as error:
        if not error.reason.endswith(("(401); for Hugging Face set HF_TOKEN, or `hf auth login`", "(404)")):
            raise
        reason = "there is no such repository or revision, or it needs a login (`hf auth login`, or HF_TOKEN)"
        raise DownloadFailed(source=asked.source, reason=reason, resumable=False) from error


def _mark(files: Sequence[HubFile]) -> str:
    listed = "\n".join(f"{file.path} {file.size} {file.sha256 or file.oid}" for file in files)
    return hashlib.sha256(listed.encode("utf-8", "surrogatepass")).hexdigest()


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
    sha256, oid = clean.value(large.get("oid")), clean.value(item.get("oid"))
    return HubFile(
        path=path,
        size=size if isinstance(size, int) else 0,
        sha256=sha256 if isinstance(sha256, str) else "",
        oid=oid if isinstance(oid, str) else "",
    )


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
        name = "HF_TOKEN_PATH"
        token = None if authorization is not None else _login(environ)
    except SecretUnusable as error:
        raise SettingInvalid(name=name, source="the environment", reason=str(error)) from None
    return base, authorization if token is None else bearer(token)


def _login(environ: Mapping[str, str]) -> Secret | None:
    """What `hf auth login` left, unless it is not to be used unasked (HF_HUB_DISABLE_IMPLICIT_TOKEN).

    Raises SecretUnusable.
    """
    path = login_file(environ)
    if path is None or environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").strip().lower() in ("1", "true", "yes", "on"):
        return None
    try:
        text = ask(path, lambda: _text(path))
    except OSError:
        return None  # nobody logged in here
    return read_secret(text, f"the login file {path}")


def _text(path: Path) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(MAX_LOGIN)


def login_file(environ: Mapping[str, str]) -> Path | None:
    """Where the hub's own command keeps its login; None where nobody is at home. Pure."""
    if environ.get("HF_TOKEN_PATH"):
        return Path(environ["HF_TOKEN_PATH"]).expanduser()
    if environ.get("HF_HOME"):
        return Path(environ["HF_HOME"]).expanduser() / "token"
    cache, home = environ.get("XDG_CACHE_HOME"), environ.get("HOME") or environ.get("USERPROFILE")
    if not cache and not home:
        return None
    return (Path(cache).expanduser() if cache else Path(str(home)) / ".cache") / "huggingface" / "token"
