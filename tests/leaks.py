"""Finds processes that a test left behind, and ends them so that the next test starts clean."""

from __future__ import annotations

from pathlib import Path

import psutil

GRACE_SECONDS = 3.0
#: helpers of the interpreter itself, which live until it ends
_KEPT = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid}: {' '.join(process.cmdline())[:160]}"
    except psutil.Error:
        return f"{process.pid}: (gone)"


def _end(processes: list[psutil.Process]) -> list[str]:
    """Those still alive after a short wait, described; they are killed."""
    _, alive = psutil.wait_procs(processes, timeout=GRACE_SECONDS)
    described = [_describe(process) for process in alive]
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, timeout=GRACE_SECONDS)
    return described


class Children:
    """The child processes of the test run at one moment."""

    def __init__(self, processes: list[psutil.Process]) -> None:
        self._processes = processes

    @classmethod
    def now(cls) -> Children:
        """All descendants; zombies count, since a parent that never waits is a fault too."""
        found = []
        for process in psutil.Process().children(recursive=True):
            try:
                if not any(word in " ".join(process.cmdline()) for word in _KEPT):
                    found.append(process)
            except psutil.Error:
                continue  # ended while we looked
        return cls(found)

    def wait_gone(self, before: Children) -> list[str]:
        """Descriptions of the new ones that do not end by themselves; they are killed."""
        known = set(before._processes)
        return _end([process for process in self._processes if process not in known])

    def wait_gone_but(self, before: Children, shared: tuple[str, ...]) -> list[str]:
        """As `wait_gone`; processes whose command line names a word of `shared` belong to somebody else."""
        known = set(before._processes)
        mine = [process for process in self._processes if process not in known]
        return _end([process for process in mine if not any(word in _describe(process) for word in shared)])


def processes_of(root: Path) -> list[psutil.Process]:
    """Processes of this user, this one apart, whose environment names `root` as their data root."""
    found = []
    own = psutil.Process().pid
    for process in psutil.process_iter():
        try:
            if process.pid != own and process.environ().get("MODELD_DATA_ROOT") == str(root):
                found.append(process)
        except psutil.Error:
            continue  # another user's, or gone
    return found


def end_processes_of(root: Path) -> list[str]:
    """Descriptions of the processes on `root` that did not end by themselves; they are killed."""
    return _end(processes_of(root))
