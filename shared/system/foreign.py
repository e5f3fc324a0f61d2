"""Calls that may never return: looks at paths that are not ours, and reads of the net. Nobody waits for them.

What a person keeps models in may be a share whose server is away, a mount whose program was killed, a disk that sleeps.
No call of the system takes a limit, so each is made by a thread that can be left behind: the caller goes on after
`PATIENCE` with a typed error, and while that thread still waits, everything below the same folder is refused at once.
When it comes back the folder answers again, and `returned` is called.

Threads that wait in a dead file system hold up neither the end of the process nor another place.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Seconds without progress after which a place does not answer. A walk that meets one waits twice, and then looks for
#: the culprit: within 2 s it is named.
PATIENCE = 0.7
#: What answers at all does so within this time; a folder that does not is late, or to blame.
SOON = 0.2
#: How often it is asked whether a call is still wanted.
CHECK_EVERY = 0.1
#: Links followed on the way to it.
_MOST_LINKS = 8
#: What the system says of a path that is simply not there.
MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})


class NoAnswer(TimeoutError):
    """A file system did not answer in time. `filename` is the highest folder that does not."""

    def __init__(self, folder: str) -> None:
        super().__init__(errno.ETIMEDOUT, "it does not answer", folder)


class _Job(Generic[T]):
    """One piece of work and what came of it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.done = threading.Event()
        self.moved = time.monotonic()
        self.result: T | None = None
        self.error: BaseException | None = None
        self.late: Callable[[T], object] | None = None

    def run(self) -> None:
        try:
            self.result = self.work()
        except BaseException as error:  # the caller gets it, whatever it is
            self.error = error

    def wait(self, patience: float) -> bool:
        """Whether it is done; false after `patience` seconds without progress."""
        while not self.done.wait(max(0.0, self.moved + patience - time.monotonic())):
            if time.monotonic() - self.moved >= patience:
                return self.done.is_set()
        return True

    def value(self) -> T:
        """What the work gave. Raises what it raised."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]  # None only where the work gives None


class _Thread(threading.Thread):
    """Runs one job after another; `after` is called behind each."""

    def __init__(self, after: Callable[[_Thread, _Job[Any]], None]) -> None:
        super().__init__(name="foreign-path", daemon=True)
        self.jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self.current: _Job[Any] | None = None
        self._after = after

    def run(self) -> None:
        while (job := self.jobs.get()) is not None:
            self.current = job
            job.run()
            self.current = None
            self._after(self, job)


class Foreign:
    """Calls into file systems that may never answer. Thread-safe."""

    def __init__(self, returned: Callable[[], object] | None = None, patience: float = PATIENCE) -> None:
        """`returned` is called, from a thread, when a folder that did not answer does again."""
        self._returned = returned
        self._patience = patience
        self._lock = threading.Lock()
        self._idle: list[_Thread] = []
        self._stuck: dict[_Job[Any], str] = {}
        self._closed = False

    def call(self, path: str | PurePath, work: Callable[[], T], patience: float | None = None) -> T:
        """The result of `work`, which touches `path` and what lies below it. Inside of a `walk` it is simply run.

        Raises NoAnswer, an OSError, and whatever else `work` raises.
        """
        text = os.path.abspath(path)
        self._refuse(text)
        if not isinstance(threading.current_thread(), _Thread):
            return self._outcome(text, self._begin(work), patience or self._patience)
        result = work()
        progressed()
        return result

    def walk(self, work: Callable[[], T], patience: float | None = None) -> T:
        """The result of `work`, which makes many a `call` of its own: all in one thread, which costs next to nothing.

        Where one of them does not answer, `work` is run once more from its beginning, each call by itself.
        """
        job = self._begin(work)
        if not job.wait(patience or self._patience):
            return work()
        return job.value()

    def each(self, paths: Sequence[str], work: Callable[[str], T]) -> list[Answer[T]]:
        """All paths asked at once; what does not answer soon is late, and may be waited for when the rest is done."""
        begun = [(path, self._begin(_bound(work, path))) for path in paths]
        return [Answer(self, path, job, job.wait(SOON)) for path, job in begun]

    def attended(self, work: Callable[[], T], check: Callable[[], None], late: Callable[[T], object]) -> T:
        """The result of `work`, which has a limit of its own, unless `check` raises: it is called all the time.

        What `work` gives in spite of that is handed to `late`. Raises what either raises.
        """
        job = self._begin(work)
        try:
            while not job.done.wait(CHECK_EVERY):
                check()
        except BaseException:
            with self._lock:
                job.late = late
                ended = job.done.is_set()
            if ended:
                _hand_over(job)
            raise
        return job.value()

    def close(self) -> None:
        """Let the threads that wait for work end."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.jobs.put(None)

    # --- inside ------------------------------------------------------------------------------------

    def _begin(self, work: Callable[[], T]) -> _Job[T]:
        job = _Job(work)
        with self._lock:
            thread = self._idle.pop() if self._idle else None
        if thread is None:
            thread = _Thread(self._ended)
            thread.start()
        thread.jobs.put(job)
        return job

    def _outcome(self, path: str, job: _Job[T], patience: float) -> T:
        if not job.wait(patience):
            folder = self._to_blame(path)
            with self._lock:
                if not job.done.is_set():
                    self._stuck[job] = folder
                    raise NoAnswer(folder)
        return job.value()

    def _ended(self, thread: _Thread, job: _Job[Any]) -> None:
        with self._lock:
            job.done.set()
            late = job.late is not None
            back = self._stuck.pop(job, None) is not None and not self._closed
            keep = not self._closed and not self._idle
            if keep:
                self._idle.append(thread)
        if not keep:
            thread.jobs.put(None)
        if late:
            _hand_over(job)
        if back and self._returned is not None:
            self._returned()

    def _refuse(self, path: str) -> None:
        """Raises NoAnswer for what lies in a folder that is being waited for, also behind a link."""
        if not self._stuck:
            return
        self._refuse_below(path)
        link = self._begin(lambda: _target(path))
        if link.wait(SOON) and link.result is not None:
            self._refuse_below(link.result)

    def _refuse_below(self, path: str) -> None:
        with self._lock:
            folders = set(self._stuck.values())
        for folder in folders:
            if path == folder or path.startswith(folder.rstrip(os.sep) + os.sep):
                raise NoAnswer(folder)

    def _to_blame(self, path: str) -> str:
        """The highest folder on the way to `path`, links followed, that does not answer either; else `path` itself."""
        for _ in range(_MOST_LINKS):
            for folder in (*reversed(PurePath(path).parents), PurePath(path)):
                probe = self._begin(_bound(os.lstat, str(folder)))
                if not probe.wait(SOON):
                    return str(folder)
            link = self._begin(_bound(_target, path))
            if not link.wait(SOON) or link.result is None:
                return path
            path = link.result
        return path


class Answer(Generic[T]):
    """What one of several paths said, or will have said."""

    def __init__(self, foreign: Foreign, path: str, job: _Job[T], soon: bool) -> None:
        self._foreign = foreign
        self._path = os.path.abspath(path)
        self._job = job
        self.soon = soon
        """Whether it is there already."""

    def value(self) -> T:
        """The result, waited for as long as every call is. Raises as `Foreign.call` does."""
        return self._foreign._outcome(self._path, self._job, self._foreign._patience)  # noqa: SLF001 - its own part


def progressed() -> None:
    """Say from inside a piece of work that it gets on: a big file on a slow disk is no dead one."""
    thread = threading.current_thread()
    if isinstance(thread, _Thread) and thread.current is not None:
        thread.current.moved = time.monotonic()


def ask(path: str | PurePath, work: Callable[[], T]) -> T:
    """One call for whoever has no `Foreign` at hand. Raises as `Foreign.call` does."""
    foreign = Foreign()
    try:
        return foreign.call(path, work)
    finally:
        foreign.close()


def is_missing(error: OSError) -> bool:
    """Whether there is simply nothing at that path."""
    return error.errno in MISSING


def _hand_over(job: _Job[T]) -> None:
    if job.error is None and job.late is not None:
        job.late(job.value())


def _bound(work: Callable[[str], T], path: str) -> Callable[[], T]:
    return lambda: work(path)


def _target(path: str) -> str | None:
    """Where a link points to; None for what is no link."""
    try:
        return os.path.abspath(os.path.join(os.path.dirname(path), os.readlink(path)))
    except OSError:
        return None
