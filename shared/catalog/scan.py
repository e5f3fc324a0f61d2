"""Finds candidate models under the known places: names and stat results only, no file is opened
(but Ollama's manifests and the refs of the Hugging Face cache, which are small).

Symlinks are followed but never resolved: the Hugging Face cache keeps the siblings of a file in its
snapshot folder, not beside the blob. Folders already seen (by device and inode) are not entered again,
depth and count are bounded, and what cannot be read becomes one line in `problems` and one entry of `lost`.
Every look goes through `Foreign`: what does not answer costs itself alone.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal, TypeVar

import msgspec

from shared.catalog.entry import Format, Source
from shared.catalog.fingerprint import long_path
from shared.catalog.sources import SearchFolder
from shared.catalog.stores import hub_cache, llama_cache, ollama
from shared.system.foreign import Foreign, NoAnswer, is_missing
from shared.text.secret import shown_address

T = TypeVar("T")

MAX_DEPTH = 12
MAX_ENTRIES = 100_000
IR_MODEL = "openvino_model.xml"
IR_LANGUAGE = "openvino_language_model.xml"
_IR_FILES = (
    "openvino_tokenizer.xml",
    "openvino_detokenizer.xml",
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "modules.json",
    "preprocessor_config.json",
)
#: Folders of other programs that never hold a model under its own name.
_SKIPPED = frozenset({"blobs", "refs", "node_modules", "__pycache__"})


def graphs(names: Iterable[str]) -> list[str]:
    """The models of an IR folder without their endings: one, or several that work together."""
    return sorted(name[:-4] for name in names if name.startswith("openvino_") and name.endswith("_model.xml"))


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder that may be a model.

    `path` is a GGUF file or an IR folder; `signature` changes with its content (device, inode, size
    and mtime of its files); `group` is equal for files that belong side by side; `hint` a name given by
    the place ("" where the file's own name serves); `role` what a manifest says the file is. `origin` names where it
    came from (owner/repository, publisher, folder), `revision` which one where it is not the current one, `aliases`
    what else it is called. `plain` is false for a tag that is more than its weights.
    """

    path: str
    source: Source
    format: Format
    signature: str
    size: int
    group: str
    hint: str = ""
    role: str = ""
    origin: str = ""
    revision: str = ""
    aliases: tuple[str, ...] = ()
    plain: bool = True


class _Where(msgspec.Struct, frozen=True):
    """The surroundings of a folder that is walked."""

    source: Source
    origin: str = ""
    revision: str = ""
    depth: int = 0


Kind = Literal["folder", "file", "link"]


class Scan:
    """One pass over the places. `problems` collects lines for people, `lost` reasons by path of what could not be
    looked at although it may be there.
    """

    def __init__(self, foreign: Foreign, seen: Iterable[tuple[int, int]] = (), patience: float | None = None) -> None:
        self.problems: list[str] = []
        self.lost: dict[str, str] = {}
        self.seen: set[tuple[int, int]] = set(seen)
        self._foreign = foreign
        self._patience = patience
        self._entries = 0

    def place(self, place: SearchFolder) -> Iterator[Candidate]:
        """The candidates of one place, in a stable order."""
        if place.is_address:
            self.problems.append(f"{shown_address(place.path)}: an address is no folder; `modeld pull` fetches a model")
            return
        origin = "" if place.source == "store" else os.path.basename(place.path)
        yield from self._folder(place.path, _Where(place.source, origin), named=place.named)

    def again(self, candidate: Candidate) -> Candidate | None:
        """The candidate as it is on disk now (another signature when it changed), None when it is gone."""
        if candidate.format == "openvino":
            try:
                names = set(self._look(candidate.path, partial(os.listdir, long_path(candidate.path))))
            except OSError as error:
                self._report(candidate.path, error)
                return None
            found = self._ir(candidate.path, _Where(candidate.source), names) if _is_ir(names) else None
        else:
            found = self._file(candidate.path, candidate.group, _Where(candidate.source))
        if found is None:
            return None
        return msgspec.structs.replace(candidate, signature=found.signature, size=found.size)

    # --- folders ----------------------------------------------------------------------------------

    def _folder(self, folder: str, where: _Where, *, named: bool = False) -> Iterator[Candidate]:
        listed = self._list(folder, where.depth, named=named)
        names = {name for name, _ in listed}
        if names >= ollama.FOLDERS:
            yield from self._ollama(folder)
            return
        if _is_ir(names):
            candidate = self._ir(folder, where, names)
            if candidate is not None:
                yield candidate
        elif any(name.endswith(".safetensors") for name in names):
            self.problems.append(f"{folder}: safetensors weights are not served (GGUF and OpenVINO IR are)")
        repository = hub_cache.repository(os.path.basename(folder))
        if repository and hub_cache.SNAPSHOTS in names:
            yield from self._revisions(folder, repository, where)
            return
        for name, kind in listed:
            path = os.path.join(folder, name)
            if kind == "folder" or (kind == "link" and self._is_folder(path)):
                if name not in _SKIPPED:
                    yield from self._folder(path, _inside(where, folder, name))
            elif name.lower().endswith(".gguf"):
                candidate = self._file(path, folder, where)
                if candidate is not None:
                    yield candidate

    def _revisions(self, folder: str, repository: str, where: _Where) -> Iterator[Candidate]:
        """The snapshots of a repository, the current one first."""
        snapshots = os.path.join(folder, hub_cache.SNAPSHOTS)
        names = [name for name, kind in self._list(snapshots, where.depth + 1) if kind != "file"]
        ref = os.path.join(folder, *hub_cache.MAIN)
        main = self._small(ref, hub_cache.MAX_REF).decode("ascii", "replace").strip()
        if main not in names and len(names) > 1:
            main = max(names, key=lambda name: self._changed(os.path.join(snapshots, name)))
        for name in sorted(names, key=lambda name: (name != main, name)):
            old = hub_cache.outdated(name, main, names)
            inside = _Where(where.source, repository, old, where.depth + 2)
            yield from self._folder(os.path.join(snapshots, name), inside)

    def _changed(self, path: str) -> tuple[int, str]:
        try:
            return self._look(path, partial(os.stat, long_path(path))).st_mtime_ns, path
        except OSError:
            return 0, path  # whoever lists it says why

    def _list(self, folder: str, depth: int, *, named: bool = False) -> list[tuple[str, Kind]]:
        """Names with what each is; empty when the folder cannot or need not be read."""
        try:
            mark, listed = self._look(folder, lambda: _listed(folder))
        except OSError as error:
            if not is_missing(error) or depth:
                self._report(folder, error)
            elif named:
                self.problems.append(f"{folder}: the folder is not there")
            return []
        if mark in self.seen and mark[1]:
            return []
        self.seen.add(mark)
        if depth > MAX_DEPTH:
            self.problems.append(f"{folder}: folders nested deeper than {MAX_DEPTH} are not searched")
            return []
        self._entries += len(listed)
        if self._entries > MAX_ENTRIES:
            self.problems.append(f"{folder}: more than {MAX_ENTRIES} files; the rest is not searched")
            return []
        return sorted(listed)

    def _is_folder(self, path: str) -> bool:
        """Whether a link leads to a folder. One to a dead drive is reported where it is opened as a file."""
        try:
            return stat.S_ISDIR(self._look(path, partial(os.stat, long_path(path))).st_mode)
        except OSError as error:
            if error.errno != errno.ELOOP and not path.lower().endswith(".gguf"):
                self._report(path, error)
            return False

    def _file(self, path: str, group: str, where: _Where) -> Candidate | None:
        if not _is_text(path):
            self.problems.append(f"{path.encode('utf-8', 'replace').decode()}: the name is not valid UTF-8; rename it")
            return None
        try:
            status = self._look(path, partial(os.stat, long_path(path)))
        except OSError as error:
            if is_missing(error) and self._is_link(path):
                self.problems.append(f"{path}: a link to nothing")
            else:
                self._report(path, error)
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        flat = llama_cache.parted(os.path.basename(path))
        return Candidate(
            path=path,
            source=where.source,
            format="gguf",
            signature=_signature(status),
            size=status.st_size,
            group=group if flat is None else os.path.join(group, flat.repository),
            hint="" if flat is None else flat.stem,
            origin=where.origin if flat is None else flat.repository,
            revision=where.revision,
        )

    def _ir(self, folder: str, where: _Where, names: set[str]) -> Candidate | None:
        if not _is_text(folder):
            return None
        marks, size = [], 0
        weights = (f"{graph}.{end}" for graph in graphs(names) for end in ("xml", "bin"))
        for name in (*weights, *_IR_FILES):
            if name in names:
                path = os.path.join(folder, name)
                try:
                    status = self._look(path, partial(os.stat, long_path(path)))
                except OSError as error:
                    self._report(path, error)
                    continue
                marks.append(f"{name}={_signature(status)}")
                size += status.st_size
        return Candidate(
            path=folder,
            source=where.source,
            format="openvino",
            signature=";".join(marks),
            size=size,
            group=folder,
            hint=_folder_name(folder),
            origin=where.origin,
            revision=where.revision,
        )

    # --- Ollama ---------------------------------------------------------------------------------

    def _ollama(self, store: str) -> Iterator[Candidate]:
        manifests = os.path.join(store, "manifests")
        for path in sorted(self._files(manifests, 1)):
            parts = os.path.relpath(path, manifests).split(os.sep)
            data = self._small(path, ollama.MAX_MANIFEST) if len(parts) >= 4 else b""
            if not data:
                continue
            try:
                tag = ollama.read_tag(parts, data)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                self.problems.append(f"{path}: this is no manifest of Ollama's ({error})")
                continue
            for layer in tag.layers:
                blob = os.path.join(store, "blobs", layer.blob)
                candidate = self._file(blob, path, _Where("ollama", tag.origin))
                if candidate is None:
                    self.problems.append(f"{tag.name}: its {layer.role} is not in Ollama's store; pull it again there")
                    continue
                yield msgspec.structs.replace(
                    candidate, hint=tag.name, role=layer.role, aliases=tag.aliases, plain=tag.plain
                )

    def _files(self, folder: str, depth: int) -> Iterator[str]:
        for name, kind in self._list(folder, depth):
            path = os.path.join(folder, name)
            if kind == "folder" or (kind == "link" and self._is_folder(path)):
                yield from self._files(path, depth + 1)
            else:
                yield path

    # --- every look ---------------------------------------------------------------------------------

    def _look(self, path: str, work: Callable[[], T]) -> T:
        return self._foreign.call(path, work, self._patience)

    def _small(self, path: str, most: int) -> bytes:
        """A small file; b"" with a problem where it cannot be read, without one where it is not there."""
        try:
            return self._look(path, lambda: _beginning(path, most))
        except OSError as error:
            if not is_missing(error):
                self._report(path, error)
            return b""

    def _is_link(self, path: str) -> bool:
        try:
            return self._look(path, lambda: os.path.islink(path))
        except OSError:
            return False

    def _report(self, path: str, error: OSError) -> None:
        """One line, however many paths a dead folder has."""
        if is_missing(error):
            return  # gone while it was looked at
        folder = error.filename if isinstance(error, NoAnswer) else path
        reason = error.strerror or str(error)
        self.lost[path] = f"{folder}: {reason}"
        line = f"{folder}: {reason}{_remedy(path, error)}"
        if line not in self.problems:
            self.problems.append(line)


def _listed(folder: str) -> tuple[tuple[int, int], list[tuple[str, Kind]]]:
    """(device and inode, what lies in it) of a folder; not temporary files of pulls and macOS's shadow files."""
    status = os.stat(long_path(folder))
    with os.scandir(long_path(folder)) as entries:
        listed = [(entry.name, _kind(entry)) for entry in entries if not entry.name.startswith(".")]
    return (status.st_dev, status.st_ino), listed


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return "link"
    return "folder" if entry.is_dir(follow_symlinks=False) else "file"


def _beginning(path: str, most: int) -> bytes:
    if not stat.S_ISREG(os.stat(long_path(path)).st_mode):
        return b""  # a FIFO would be waited for
    with open(long_path(path), "rb") as file:
        return file.read(most)


def _inside(where: _Where, folder: str, name: str) -> _Where:
    """One level deeper. In a repository its name stays, elsewhere the folders on the way are the origin."""
    depth = where.depth + 1
    if hub_cache.SNAPSHOTS in folder.split(os.sep):
        return msgspec.structs.replace(where, depth=depth)
    return _Where(where.source, name if where.depth == 0 else f"{where.origin}/{name}", where.revision, depth)


def _remedy(path: str, error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "; join the group `ollama` to use its models" if "ollama" in path.split(os.sep) else ""
    return ""


def _is_ir(names: set[str]) -> bool:
    return IR_MODEL in names or IR_LANGUAGE in names


def _signature(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def _folder_name(folder: str) -> str:
    """The folder's name, or in the Hugging Face cache the repository's."""
    parts = folder.split(os.sep)
    for above, part in zip(parts[-4:], parts[-3:], strict=False):
        if part == "snapshots" and above.startswith("models--"):
            return above.split("--")[-1]
    return parts[-1]


def _is_text(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
