"""Who a process is, so that another process can tell whether it is the same one and still there.

A pid alone is reused; pid and start token are not. What the platform cannot say stays empty, and
nothing is proven from an empty string.
"""

from __future__ import annotations

import os
import sys

from shared.lease.policy import Liveness
from shared.lease.record import Identity

if sys.platform == "win32":
    from shared.lease.process.identity_windows import boot_id, boot_time, host_name, pid_namespace, probe
elif sys.platform == "darwin":
    from shared.lease.process.identity_mac import boot_id, boot_time, host_name, pid_namespace, probe
else:
    from shared.lease.process.identity_linux import boot_id, boot_time, host_name, pid_namespace, probe


def current() -> Identity:
    """This process. Ask once: a fork has another identity."""
    pid = os.getpid()
    return Identity(
        pid=pid,
        start_token=start_token(pid) or "",
        boot_id=boot_id(),
        pid_namespace=pid_namespace(),
        host=host_name(),
    )


def booted() -> float | None:
    """The wall second at which this kernel started; None where a boot id says enough. See policy.death_proven."""
    return boot_time()


def start_token(pid: int) -> str | None:
    """When the process started, in the platform's own unit; None if it is gone or cannot be seen."""
    state, token = probe(pid)
    return token if state == "alive" else None


def liveness(pid: int, token: str) -> Liveness:
    """Whether the very process is still there. `unknown` where this machine cannot say."""
    if pid <= 0:
        return "unknown"
    state, found = probe(pid)
    if state != "alive":
        return state
    if not token or not found:
        return "unknown"
    return "alive" if found == token else "gone"


def is_stopped(pid: int) -> bool:
    """Whether a signal stopped the process, where the platform tells (Linux)."""
    if sys.platform != "linux":
        return False
    from shared.lease.process import identity_linux

    return identity_linux.is_stopped(pid)


def same_process(pid: int, token: str) -> bool:
    """Whether the process is surely alive and surely the one with this start token."""
    return liveness(pid, token) == "alive"
