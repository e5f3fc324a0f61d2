"""The editor's pipe: standard output belongs to the protocol alone.

Imports next to nothing, since it has to run before anything that might print.
"""

from __future__ import annotations

import os
import sys

from shared.system.descriptors import fill_descriptors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import ByteStream


def claim_stdout() -> int:
    """Take standard output away from the rest of the process; gives the private descriptor for it.

    From then on descriptor 1 is standard error: `print`, C libraries and children that inherit it
    can no longer write between two messages. Without a standard error it leads nowhere.
    Raises OSError when there is no standard output.
    """
    os.fstat(1)
    fill_descriptors()
    private = os.dup(1)
    os.dup2(2, 1)
    return _binary(private)


def claim_stdin() -> int:
    """Take standard input: gives the private descriptor, and descriptor 0 is empty from then on.

    A child that inherits descriptor 0 can no longer swallow messages.
    """
    fill_descriptors()
    private = os.dup(0)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    return _binary(private)


def stdio_stream(output: int, source: int = 0, at_end: Callable[[], None] | None = None) -> ByteStream:
    """The editor as a byte stream: reads descriptor `source`, writes `output` (of `claim_stdout`).

    `at_end` is called in the reading thread when the editor has closed its side.

    Neither a silent nor a stalled editor blocks the event loop or the end of the process.
    """
    from shared.endpoint.threaded import ThreadedStream

    _binary(source)
    return ThreadedStream(source, output, at_end)


def _binary(descriptor: int) -> int:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(descriptor, os.O_BINARY)
    return descriptor
