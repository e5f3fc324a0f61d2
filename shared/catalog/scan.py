"""Finds candidate models under the model sources: names and stat results only, no file is opened
(but Ollama's manifests, which are small).

Symlinks are followed but never resolved: the Hugging Face cache keeps the siblings of a file in its
snapshot folder, not beside the blob. Folders already seen (by device and inode) are not entered again,
depth and count are bounded, and what cannot be read becomes one line in `problems`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

import msgspec

from shared.catalog.entry import Format, Source
from shared.catalog.fingerprint import long_path
from shared.catalog.sources import SearchFolder
from shared.text.nesting import decode_json

MAX_DEPTH = 12
MAX_ENTRIES = 100_000
MAX_MANIFEST = 1024 * 1024
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
    the place ("" where the file's own name serves); `role` what a manifest says the file is.
    """

    path: str
    source: Source
    format: Format
    signature: str
    size: int
    group: str
    hint: str = ""
    role: str = ""


class Scan:
    """One pass over the sources. `problems` collects lines for people."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._seen: set[tuple[int, int]] = set()
        self._entries = 0

    def place(self, place: SearchFolder) -> Iterator[Candidate]:
        """The candidates of one place, in a stable order."""
        if place.source == "ollama":
            yield from self._ollama(place)
            return
        if not os.path.isdir(long_path(place.path)):
            if place.source == "folder":
                self.problems.append(f"{place.path}: the folder is not there")
            return
        yield from self._folder(place, place.path, 0)

    def again(self, candidate: Candidate) -> Candidate | None:
        """The candidate as it is on disk now (another signature when it changed), None when it is gone."""
        place = SearchFolder(candidate.source, candidate.path)
        if candidate.format == "openvino":
            try:
                names = set(os.listdir(long_path(candidate.path)))
            except OSError:
                return None  # gone; the walk that follows says why
            return self._ir(place, candidate.path, names) if IR_MODEL in names or IR_LANGUAGE in names else None
        if not os.path.exists(long_path(candidate.path)):
            return None
        return self._file(place, candidate.path, candidate.group, hint=candidate.hint, role=candidate.role)

    # --- plain folders, LM Studio, Hugging Face -------------------------------------------------

    def _folder(self, place: SearchFolder, folder: str, depth: int) -> Iterator[Candidate]:
        listed = self._list(folder, depth)
        names = {name for name, _ in listed}
        if IR_MODEL in names or IR_LANGUAGE in names:
            candidate = self._ir(place, folder, names)
            if candidate is not None:
                yield candidate
        elif any(name.endswith(".safetensors") for name in names):
            self.problems.append(f"{folder}: safetensors weights are not served (GGUF and OpenVINO IR are)")
        for name, is_folder in listed:
            path = os.path.join(folder, name)
            if is_folder:
                if name not in _SKIPPED:
                    yield from self._folder(place, path, depth + 1)
            elif name.lower().endswith(".gguf"):
                candidate = self._file(place, path, folder)
                if candidate is not None:
                    yield candidate

    def _list(self, folder: str, depth: int) -> list[tuple[str, bool]]:
        """Names with whether each is a folder; empty when the folder cannot or need not be read."""
        try:
            status = os.stat(long_path(folder))
            if (status.st_dev, status.st_ino) in self._seen and status.st_ino:
                return []
            self._seen.add((status.st_dev, status.st_ino))
            if depth > MAX_DEPTH:
                self.problems.append(f"{folder}: folders nested deeper than {MAX_DEPTH} are not searched")
                return []
            with os.scandir(long_path(folder)) as entries:
                # hidden: temporary files of pulls, and the shadow files macOS writes beside real ones
                listed = [(entry.name, _is_folder(entry)) for entry in entries if not entry.name.startswith(".")]
        except OSError as error:
            self.problems.append(f"{folder}: {error.strerror or error}")
            return []
        self._entries += len(listed)
        if self._entries > MAX_ENTRIES:
            self.problems.append(f"{folder}: more than {MAX_ENTRIES} files; the rest is not searched")
            return []
        return sorted(listed)

    def _file(self, place: SearchFolder, path: str, group: str, *, hint: str = "", role: str = "") -> Candidate | None:
        if not _is_text(path):
            self.problems.append(f"{path.encode('utf-8', 'replace').decode()}: the name is not valid UTF-8; rename it")
            return None
        try:
            status = os.stat(long_path(path))
        except OSError as error:
            dangling = os.path.islink(path)
            self.problems.append(f"{path}: {'a link to nothing' if dangling else error.strerror or error}")
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return Candidate(
            path=path,
            source=place.source,
            format="gguf",
            signature=_signature(status),
            size=status.st_size,
            group=group,
            hint=hint,
            role=role,
        )

    def _ir(self, place: SearchFolder, folder: str, names: set[str]) -> Candidate | None:
        if not _is_text(folder):
            return None
        marks, size = [], 0
        weights = (f"{graph}.{end}" for graph in graphs(names) for end in ("xml", "bin"))
        for name in (*weights, *_IR_FILES):
            if name in names:
                try:
                    status = os.stat(long_path(os.path.join(folder, name)))
                except OSError as error:
                    self.problems.append(f"{os.path.join(folder, name)}: {error.strerror or error}")
                    continue
                marks.append(f"{name}={_signature(status)}")
                size += status.st_size
        return Candidate(
            path=folder,
            source=place.source,
            format="openvino",
            signature=";".join(marks),
            size=size,
            group=folder,
            hint=_folder_name(folder),
        )

    # --- Ollama ---------------------------------------------------------------------------------

    def _ollama(self, place: SearchFolder) -> Iterator[Candidate]:
        manifests = os.path.join(place.path, "manifests")
        for path in sorted(self._files(manifests, 0)):
            parts = os.path.relpath(path, manifests).split(os.sep)
            if len(parts) < 3:
                continue
            tag = "" if parts[-1] == "latest" else f"-{parts[-1]}"
            owner = "" if parts[-3] == "library" else f"{parts[-3]}-"
            for role, blob in self._layers(path, place.path):
                candidate = self._file(place, blob, path, hint=f"{owner}{parts[-2]}{tag}", role=role)
                if candidate is not None:
                    yield candidate

    def _files(self, folder: str, depth: int) -> Iterator[str]:
        if not os.path.isdir(folder):
            return
        for name, is_folder in self._list(folder, depth):
            path = os.path.join(folder, name)
            if is_folder:
                yield from self._files(path, depth + 1)
            else:
                yield path

    def _layers(self, manifest: str, store: str) -> list[tuple[str, str]]:
        """(role, blob path) of the layers that are weights."""
        try:
            with open(manifest, "rb") as file:
                content = decode_json(file.read(MAX_MANIFEST), _Manifest)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.problems.append(f"{manifest}: {error}")
            return []
        found = []
        for layer in content.layers:
            role = _OLLAMA_ROLES.get(layer.mediaType.rpartition(".")[2])
            name = layer.digest.replace(":", "-")
            if role is not None and name == os.path.basename(name) and name.startswith("sha256-"):
                found.append((role, os.path.join(store, "blobs", name)))
        return found


class _Layer(msgspec.Struct):
    mediaType: str = ""  # noqa: N815 - the name in the manifest
    digest: str = ""


class _Manifest(msgspec.Struct):
    layers: list[_Layer] = []


_OLLAMA_ROLES = {"model": "model", "projector": "projector", "adapter": "adapter"}


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link to itself; whoever opens it as a file will say so


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
