"""A file of this machine into the store. It may lie on a share that does not answer: that costs this pull alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from shared.errors import DownloadFailed
from shared.fetch.download import CHUNK, Job, Progress, require_space, verify, write_or_full
from shared.system import private
from shared.system.foreign import Foreign, is_missing


class LocalFile:
    """A regular file, looked at once."""

    def __init__(self, path: Path, source: str) -> None:
        """`source`: the path as it may be shown. Raises DownloadFailed."""
        self._path = path
        self._source = source
        self._foreign = Foreign()
        try:
            facts = self._foreign.call(path, path.stat)
        except OSError as error:
            reason = "there is no such file" if is_missing(error) else f"{error.filename}: {error.strerror}"
            raise DownloadFailed(source=source, reason=reason, resumable=False) from error
        if not stat.S_ISREG(facts.st_mode):
            reason = "give a file; a folder is added with `modeld library add`"
            raise DownloadFailed(source=source, reason=reason, resumable=False)
        self._size = facts.st_size

    def fetch(self, part: Path, digest: str, job: Job) -> str:
        """Copy it into `part`; its SHA-256. Raises DownloadFailed, DigestMismatch, DiskFull."""
        require_space(part.parent, self._size)
        done = 0
        with open(part, "wb", opener=private.opener) as writer:
            for chunk in self._chunks():
                job.check(self._source)
                write_or_full(writer, chunk, part, self._size - done)
                done += len(chunk)
                job.progress(Progress("downloading", done, self._size))
        return verify(part, digest, self._source, job)

    def _chunks(self) -> Iterator[bytes]:
        try:
            descriptor = self._foreign.call(self._path, lambda: os.open(self._path, _READ))
            try:
                while chunk := self._foreign.call(self._path, lambda: os.read(descriptor, CHUNK)):
                    yield chunk
            finally:
                os.close(descriptor)
        except OSError as error:
            reason = f"it cannot be read: {error.strerror or error}"
            raise DownloadFailed(source=self._source, reason=reason, resumable=True) from error
        finally:
            self._foreign.close()


_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
