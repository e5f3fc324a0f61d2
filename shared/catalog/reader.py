"""Reads one candidate into a record: the only place where model files are opened by the library."""

from __future__ import annotations

import os
from typing import BinaryIO

from shared.catalog.entry import Facts
from shared.catalog.fingerprint import fingerprint, long_path
from shared.catalog.formats.facts import facts_of
from shared.catalog.formats.gguf import Header, read_header
from shared.catalog.formats.openvino import read_folder
from shared.catalog.formats.window import HeaderRejected
from shared.catalog.group import FileRecord
from shared.catalog.scan import Candidate, graphs
from shared.system.foreign import progressed


class _Noticed:
    """A file each reading of which is progress: a header of megabytes on a slow disk is no dead one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek = file.seek

    def read(self, count: int, /) -> bytes | None:
        """As the file's own."""
        progressed()
        return self._file.read(count)


def read_gguf(path: str, *, first: bool = False) -> Header:
    """The header of a GGUF file. Raises HeaderRejected for everything, unreadable files included."""
    try:
        with open(long_path(path), "rb", buffering=0) as file:
            return read_header(_Noticed(file), os.fstat(file.fileno()).st_size, first=first)
    except OSError as error:
        raise HeaderRejected("unreadable", error.strerror or str(error)) from error


def read_record(candidate: Candidate, *, first: bool, before: FileRecord | None = None) -> FileRecord:
    """Read a candidate; `before` is an earlier record of the same signature, whose digests are kept.

    Never raises: what is wrong with the file becomes `fault`.
    """
    known = before is not None and before.signature == candidate.signature
    digest = before.digest if known and before is not None else ""
    sha256 = before.sha256 if known and before is not None else ""
    facts, fault, signature = Facts(), "", candidate.signature
    try:
        if candidate.format == "openvino":
            facts = read_folder(candidate.path, first=first)
        else:
            facts = facts_of(read_gguf(candidate.path, first=first))
    except HeaderRejected as rejected:
        fault = rejected.reason
        if rejected.fault == "unreadable":
            signature = ""  # says nothing of the file: it is read again at the next look
    if not digest and not fault:
        try:
            digest = fingerprint(weight_files(candidate))
        except OSError as error:
            fault, signature = error.strerror or str(error), ""
    return FileRecord(path=candidate.path, signature=signature, facts=facts, digest=digest, sha256=sha256, fault=fault)


def weight_files(candidate: Candidate) -> list[str]:
    """The files whose content makes the digest."""
    if candidate.format == "openvino":
        stems = (os.path.join(candidate.path, graph) for graph in graphs(os.listdir(long_path(candidate.path))))
        inside = (f"{stem}.{end}" for stem in stems for end in ("xml", "bin"))
        return [path for path in inside if os.path.exists(long_path(path))]
    return [candidate.path]
