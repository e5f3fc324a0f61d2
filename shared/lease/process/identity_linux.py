"""Process identity on Linux, from /proc.

/proc may belong to another pid namespace (`unshare --pid` without a new mount), may hide other
users' processes (hidepid), or be missing. So the kernel's answer to signal 0 decides whether a pid
exists, and /proc only adds the start time, and only where /proc/self is us.
"""

from __future__ import annotations

import os
import sys
import time

from shared.lease.policy import Liveness


def probe(pid: int) -> tuple[Liveness, str | None]:
    """`gone`, or `alive` with the start time in clock ticks since boot (None where it cannot be read)."""
    if not _exists(pid):
        return "gone", None
    if not _proc_is_ours():
        return "alive", own_start() if pid == os.getpid() else None
    facts = _stat(f"/proc/{pid}/stat")
    if facts is None:
        return ("alive", None) if _exists(pid) else ("gone", None)
    state, start = facts
    if state in "ZX" and _threads(pid) <= 1:  # a zombie's memory and threads are gone
        return "gone", None
    return "alive", start


def is_stopped(pid: int) -> bool:
    """Whether a signal stopped it (SIGSTOP, Ctrl-Z): it does nothing until another one lets it go on."""
    facts = _stat(f"/proc/{pid}/stat") if _proc_is_ours() else None
    return facts is not None and facts[0] == "T"


def own_start() -> str | None:
    """Our own start time, also where /proc is another namespace's."""
    facts = _stat("/proc/self/stat")
    return facts[1] if facts is not None else None


def boot_id() -> str:
    """Recreated by the kernel at each start; the same in all containers of this machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def boot_time() -> float | None:
    """The wall second at which the kernel started, by a clock that containers share with it."""
    if sys.platform == "win32" or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def pid_namespace() -> str:
    """The pid namespace, and the time namespace, since start times are reported relative to it."""
    names = []
    for kind in ("pid", "time"):
        try:
            names.append(os.readlink(f"/proc/self/ns/{kind}"))
        except FileNotFoundError:
            if kind == "pid":
                return ""
            names.append("time:none")  # kernels before 5.6 have none
        except OSError:
            return ""
    return ",".join(names)


def host_name() -> str:
    """The node name; containers have their own."""
    if sys.platform == "win32":
        raise NotImplementedError
    return os.uname().nodename


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # another user's
    except OverflowError:
        return False
    return True


def _proc_is_ours() -> bool:
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def _stat(path: str) -> tuple[str, str] | None:
    """State letter and start time. The command's name may hold spaces and brackets: read from its end."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return None
    fields = content[content.rfind(b")") + 1 :].split()
    if len(fields) < 20:
        return None
    return fields[0].decode("ascii", "replace"), fields[19].decode("ascii", "replace")


def _threads(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0
