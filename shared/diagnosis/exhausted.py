"""Tells that the system gave no more descriptors, threads or processes from every other failure."""

from __future__ import annotations

import errno
import sys

from shared.errors import ResourcesExhausted

# Nothing is imported later: without a descriptor no module can be read.
if sys.platform == "win32":

    def _limit(name: str) -> int | None:
        del name
        return None

else:
    import resource

    def _limit(name: str) -> int | None:
        if not name:
            return None
        soft, _ = resource.getrlimit(getattr(resource, name))
        return None if soft == resource.RLIM_INFINITY else soft


#: What CPython says where a thread cannot be had; it has no type of its own.
_NO_THREAD = "can't start new thread"
_OF_ERRNO = {
    errno.EMFILE: "file descriptors",
    errno.ENFILE: "file descriptors of the whole system",
    errno.EAGAIN: "processes",
    errno.ENOMEM: "memory",
}


def exhausted(error: BaseException) -> ResourcesExhausted | None:
    """The typed error for a failure to get more of something; None for any other failure."""
    single = error
    while isinstance(single, BaseExceptionGroup) and len(single.exceptions) == 1:
        single = single.exceptions[0]
    if isinstance(single, RuntimeError) and _NO_THREAD in str(single):
        return ResourcesExhausted(resource="threads", limit=_limit("RLIMIT_NPROC"))
    if not isinstance(single, OSError):
        return None
    what = _OF_ERRNO.get(single.errno or 0)
    if what is None:
        return None
    names = {errno.EMFILE: "RLIMIT_NOFILE", errno.EAGAIN: "RLIMIT_NPROC"}
    return ResourcesExhausted(resource=what, limit=_limit(names.get(single.errno or 0, "")))
