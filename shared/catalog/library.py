"""The library: every model on this machine, listed without a daemon and without an engine.

    library = Library(root, settings)
    library.rows()        # at once: cached rows, or the first rows of a cold scan
    library.complete      # False while headers are still being read in the background

One scanner thread does all reading; callers only see finished lists. Rows come from `library.cache`
when the files are unchanged. Asking for rows looks at the folders again in the background when the last
look is older than ten seconds (a few milliseconds of work when nothing changed), so that a new file is
seen by whoever keeps asking.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from shared.catalog import cachefile, names
from shared.catalog.entry import ModelEntry
from shared.catalog.find import match
from shared.catalog.fingerprint import checksum, long_path
from shared.catalog.group import FileRecord, Found, entries, single
from shared.catalog.pulled_record import own_records
from shared.catalog.reader import read_record
from shared.catalog.scan import Candidate, Scan
from shared.catalog.sources import search_folders
from shared.catalog.stores.look import kept, look_again, look_at
from shared.clock import Clock, SystemClock
from shared.errors import ModelLoadFailed, ModelNotFound
from shared.paths import DataRoot
from shared.settings import Settings
from shared.system.foreign import Foreign, NoAnswer, is_missing
from shared.text.shown import one_line

FIRST_WAIT = 1.0
MAX_AGE = 10.0
SAVE_EVERY = 2.0
#: A first look waits this long for a file that the cache knows: the walk that follows has all the time it needs.
CACHED_PATIENCE = 0.25
#: A stop waits this long for the file that is being read.
CLOSE_WAIT = 0.5


class Library:
    """The inventory of one process. Thread-safe; every method but `wait` and a first `rows` returns at once."""

    def __init__(
        self,
        root: DataRoot,
        settings: Settings,
        environ: Mapping[str, str] = os.environ,
        clock: Clock | None = None,
    ) -> None:
        self._root = root
        self._settings = settings
        self._environ = dict(environ)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._records: dict[str, FileRecord] = {}
        self._names: dict[str, str] = {}
        self._former: dict[str, str] = {}
        self._foreign = Foreign(returned=self.refresh)
        self._rows: list[ModelEntry] = []
        self._problems: list[str] = []
        self._listeners: list[Callable[[], None]] = []
        self._last: list[Candidate] = []
        self._loaded = False
        self._listed = False
        self._complete = False
        self._requested = 0
        self._served = 0
        self._looked_at = 0.0
        self._closed = False
        self._revision = 0
        self._thread: threading.Thread | None = None
        self.cache_note = ""
        """Why the cache could not be written (a read-only root), or ""."""

    # --- what callers see ----------------------------------------------------------------------

    def rows(self, wait: float = FIRST_WAIT) -> list[ModelEntry]:
        """Every entry in order of name. The first call starts the scan and waits up to `wait` seconds
        for first rows, unless the cache has them.
        """
        with self._lock:
            old = self._clock.awake() - self._looked_at > MAX_AGE
            due = self._thread is None and (old or not self._listed)
        if due:
            self.refresh()
        with self._lock:
            if not self._rows:
                self._changed.wait_for(lambda: self._listed or self._closed, timeout=wait)
            return list(self._rows)

    def find(self, name: str, wait: float = FIRST_WAIT) -> ModelEntry:
        """The entry of this name (case aside) or path. Raises ModelNotFound with the nearest names.

        For a name that is not among the rows, and for a file that could not be read, the folders are looked at again,
        `wait` seconds at most: the rows may be older than the file.
        """
        found = match(name, self.rows(wait))
        if found is None or found.problem:
            self.refresh(wait)
            found = match(name, self.rows(0))
        if found is not None:
            return found
        raise ModelNotFound(requested=name, near=names.nearest(name, [entry.name for entry in self.rows(0)]))

    def name_at(self, path: str, wait: float = FIRST_WAIT) -> str | None:
        """What the model at `path` is called, once the folders have been looked at again; None if it is not listed."""
        self.refresh(wait)
        found = match(path, self.rows(0))
        return None if found is None else found.name

    @property
    def complete(self) -> bool:
        """Whether every header has been read to its end."""
        with self._lock:
            return self._complete

    @property
    def problems(self) -> list[str]:
        """What could not be read in the last pass, one line each, for people."""
        with self._lock:
            return [one_line(problem) for problem in self._problems]

    @property
    def revision(self) -> int:
        """Rises whenever the rows change."""
        with self._lock:
            return self._revision

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` from the scanner thread after each change of the rows."""
        with self._lock:
            self._listeners.append(listener)

    def checked(self, entry: ModelEntry) -> ModelEntry:
        """The entry as its files are now, headers read to the end and extents compared with the files.

        For a load: call it before the old model is closed. Takes tens of milliseconds; blocks. Raises
        ModelLoadFailed at stage `header`.
        """
        scan = Scan(self._foreign)
        found = []
        for path in entry.shards or (entry.path,):
            source = Candidate(
                path=path, source=entry.source, format=entry.format, signature="", size=0, group=os.path.dirname(path)
            )
            candidate = scan.again(source)
            if candidate is None:
                reason = scan.problems[0] if scan.problems else f"{path} is gone"
                raise ModelLoadFailed(model=entry.name, stage="header", reason=reason)
            found.append(Found(candidate, self._record(candidate, first=False)))
        now = single(found, entry)
        if now.problem:
            raise ModelLoadFailed(model=entry.name, stage="header", reason=now.problem)
        return now

    def refresh(self, wait: float = 0.0) -> bool:
        """Look at the folders again, in the background; wait up to `wait` seconds until new files are listed.

        False when that took longer.
        """
        with self._lock:
            if self._closed:
                return False
            self._requested += 1
            ticket = self._requested
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="library-scan", daemon=True)
                self._thread.start()
            return self._changed.wait_for(lambda: self._served >= ticket or self._closed, timeout=wait)

    def wait(self, timeout: float | None = None, *, complete: bool = True) -> bool:
        """Wait until the rows are complete (or only listed); False when the time ran out."""
        self.rows(0)
        with self._lock:
            return self._changed.wait_for(
                lambda: (self._complete if complete else self._listed) or self._closed, timeout=timeout
            )

    def close(self) -> None:
        """Stop the scanner after the file it is at."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=CLOSE_WAIT)
        self._foreign.close()

    def compute_checksums(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """Compute missing SHA-256 sums one after another; how many were computed.

        For the daemon while it is idle: minutes of disk reading. Sums are shared by the cache, so
        that a machine computes each once.
        """

        def ended() -> bool:
            return self._closed or stopped()

        done = 0
        self._save()  # takes over the sums that another process computed
        with self._lock:
            waiting = [r for r in self._records.values() if not r.sha256 and not r.fault and r.facts.format == "gguf"]
        for record in waiting:
            if ended():
                break
            try:
                value = self._foreign.call(record.path, partial(checksum, record.path, ended))
            except OSError as error:
                self._note(f"{record.path}: {error.strerror or error}")
                continue
            if value is not None:
                with self._lock:
                    if self._records.get(record.path) == record:
                        self._records[record.path] = msgspec.structs.replace(record, sha256=value)
                done += 1
                self._save()
        if done:
            self.refresh()
        return done

    # --- the scanner ---------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._lock:
                ticket = self._requested
            try:
                self._load_cached()
                self._pass(ticket)
            except Exception as error:  # a scanner that died silently would look like an empty disk
                self._note(f"the library could not be read: {type(error).__name__}: {error}")
            with self._lock:
                self._served = max(self._served, ticket)
                self._looked_at = self._clock.awake()
                self._complete = self._listed = True
                self._changed.notify_all()
                if self._requested == ticket or self._closed:
                    self._thread = None
                    return

    def _load_cached(self) -> None:
        """Rows from the cache for the files that are unchanged, before any folder is walked (once)."""
        with self._lock:
            if self._loaded:
                return
            self._loaded = True
        content = cachefile.read(self._root.library_cache)
        with self._lock:
            self._records = dict(content.files)
            self._names, self._former = dict(content.names), dict(content.former)
        self._last = content.last
        seen = look_again(content.last, content.files, self._foreign, CACHED_PATIENCE)
        found = [*seen.found, *kept(seen.found, seen.lost, content.last, content.files)]
        if found:
            self._publish(found, seen.problems, ticket=0)

    def _pass(self, ticket: int) -> None:
        """Look at every place, those that answer first: one that does not costs its own rows."""
        places = search_folders(self._root, self._settings, self._environ, self._foreign)
        answers = self._foreign.each([place.path for place in places], lambda path: os.stat(long_path(path)))
        found: list[Found] = []
        problems: list[str] = []
        lost: dict[str, str] = {}
        folders: set[tuple[int, int]] = set()
        for place, answer in sorted(zip(places, answers, strict=True), key=lambda pair: not pair[1].soon):
            if not answer.soon:
                if found and not self._listed:
                    self._publish(found, problems, ticket=0)
                with contextlib.suppress(OSError):
                    answer.value()  # the walk tells what became of it
            seen = look_at(place, self._foreign, folders, self._first, lambda: self._closed)
            if self._closed:
                return
            found += seen.found
            problems += [line for line in seen.problems if line not in problems]
            lost |= seen.lost
            folders = seen.folders
        with self._lock:
            records = dict(self._records)
        found += kept(found, lost, self._last, records)
        self._last = [item.candidate for item in found]
        self._publish(found, problems, ticket=ticket)
        self._save()
        self._read_on(found, problems, ticket)

    def _read_on(self, found: list[Found], problems: list[str], ticket: int) -> None:
        """Read to their end the headers of which the first keys are known."""
        incomplete = [index for index, item in enumerate(found) if not item.record.finished]
        saved = self._clock.awake()
        for index in incomplete:
            if self._closed:
                break
            candidate = found[index].candidate
            found[index] = Found(candidate, self._record(candidate, first=False))
            if self._clock.awake() - saved > SAVE_EVERY:
                self._save()
                saved = self._clock.awake()
        if incomplete:
            self._publish(found, problems, ticket=ticket)
            self._save()

    def _first(self, candidate: Candidate) -> FileRecord:
        return self._record(candidate, first=True)

    def _record(self, candidate: Candidate, *, first: bool) -> FileRecord:
        with self._lock:
            before = self._records.get(candidate.path)
        if before is not None and before.signature == candidate.signature and (first or before.finished):
            return before
        try:
            record = self._foreign.call(candidate.path, lambda: read_record(candidate, first=first, before=before))
        except NoAnswer as error:
            return FileRecord(path=candidate.path, signature="", fault=f"{error.filename}: {error.strerror}")
        if record.signature:  # else it says nothing of the file
            with self._lock:
                self._records[candidate.path] = record
        return record

    def _publish(self, found: list[Found], problems: list[str], *, ticket: int) -> None:
        """Make new rows; `ticket` is the newest refresh they answer, 0 for rows of the cache."""
        with self._lock:
            known = dict(self._names)
            former = dict(self._former)
        rows = entries(found, known, frozenset(own_records(self._root.models)), former)
        named = [(row.path, row.digest, row.name) for row in rows if not row.problem]
        lines = problems + [
            f"{row.place}: {row.problem}" for row in rows if row.problem and row.problem not in problems
        ]
        with self._lock:
            self._names = names.remember(known, named)
            self._former = names.newest(former | names.renamed(known, named))
            changed = rows != self._rows
            self._rows = rows
            self._problems = lines
            self._listed = self._listed or ticket > 0
            self._served = max(self._served, ticket)
            self._complete = self._complete and all(item.record.finished for item in found)
            self._revision += 1 if changed else 0
            listeners = list(self._listeners) if changed else []
            self._changed.notify_all()
        for listener in listeners:
            try:
                listener()
            except Exception as error:  # one that fails must not stop the scan or the others
                self._note(f"a listener of the library failed: {type(error).__name__}: {error}")

    def _save(self) -> None:
        """Write the cache when something changed, with what other processes learnt in the meantime."""
        stored = cachefile.read(self._root.library_cache)
        with self._lock:
            ours = dict(self._records)
            listed = {candidate.path for candidate in self._last}
        # looks at the disk, so without the lock
        files = self._foreign.walk(
            lambda: cachefile.merged(ours, stored.files, lambda path: path not in listed and self._is_gone(path))
        )
        with self._lock:
            for path in ours.keys() | files.keys():
                if self._records.get(path) is not ours.get(path):
                    continue  # read again meanwhile
                if path in files:
                    self._records[path] = files[path]
                else:
                    del self._records[path]
            files = dict(self._records)
            content = cachefile.CacheContent(
                files=files, last=list(self._last), names=dict(self._names), former=dict(self._former)
            )
        if content == stored:
            return
        try:
            cachefile.write(self._root.library_cache, content)
        except OSError as error:
            self.cache_note = f"{self._root.library_cache}: {error.strerror or error}; kept in memory"

    def _is_gone(self, path: str) -> bool:
        """Whether a file is surely no longer there."""
        try:
            self._foreign.call(path, lambda: os.stat(long_path(path)))
        except OSError as error:
            return is_missing(error)
        return False

    def _note(self, line: str) -> None:
        with self._lock:
            self._problems = [*self._problems, line]
