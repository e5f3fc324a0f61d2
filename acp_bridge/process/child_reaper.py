"""Leads one command on POSIX, and ends all that it started when asked: `python -I -S child_reaper.py LINE COMMAND...`

LINE is a descriptor of a socket whose other end only the bridge holds. The exit code of the command goes into it, as
text; its end, also by the bridge's death, is the word to end everything, and the reaper with it.

On Linux the reaper is the parent of whatever the command leaves behind, in sessions of its own too, so nothing gets
away. It ends its own children only, whose pids cannot have become anybody else's. Elsewhere it ends the process group:
what left that is out of reach.
"""

from __future__ import annotations

import os
import select
import signal
import sys

if sys.platform == "win32":
    raise ImportError("there are job objects on Windows")

PARENT_DEATH_SIGNAL, CHILD_SUBREAPER = 1, 36  # of prctl
#: What a command may send to its own group, or a system that goes down to everybody: the end of the line follows.
ENDURED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
#: What Python ignores, and no program expects to find ignored.
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)


def main(line: int, command: list[str]) -> None:
    """Until the line ends."""
    os.set_inheritable(line, False)
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for each in ENDURED:
        signal.signal(each, signal.SIG_IGN)
    if sys.platform == "linux":
        _prctl(CHILD_SUBREAPER, 1)
    leader = os.fork()
    if leader == 0:
        _become(command)
    _let_go_of_streams()
    while line not in select.select([line, woken], [], [])[0]:
        os.read(woken, 512)
        _reap(leader, line)
    if sys.platform == "linux":
        _end_children()
    else:
        os.killpg(0, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _become(command: list[str]) -> None:
    if sys.platform == "linux":
        os.setsid()  # its group is not the reaper's
        _prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    for each in (*ENDURED, *IGNORED):
        signal.signal(each, signal.SIG_DFL)
    # by a shell, which also runs what has no `#!` line, and says in its words what cannot be run
    os.execv("/bin/sh", ["/bin/sh", "-c", 'exec "$@"', "sh", *command])  # noqa: S606


def _let_go_of_streams() -> None:
    """Whoever reads from the command sees their end when it has ended."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)


def _reap(leader: int, line: int) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return  # nobody is left
        if pid == 0:
            return
        if pid == leader:
            try:
                os.write(line, str(os.waitstatus_to_exitcode(status)).encode())
            except BrokenPipeError:
                return  # nobody listens any more: the end of the line is seen next


def _end_children() -> None:
    """Theirs become ours as they end, so this goes on until there are none."""
    while ended := [pid for pid in _children() if _ended(pid)]:
        for pid in ended:
            os.waitpid(pid, 0)


def _ended(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        return False  # it has become another user's, by sudo
    return True


def _children() -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        if parent == os.getpid():
            found.append(int(name))
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
