"""A process that takes real memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

#: Takes that many bytes in another process, and answers how to give them back.
Eater = Callable[[int], Callable[[], None]]


@pytest.fixture
def eater() -> Iterator[Eater]:
    """Call it with bytes: returns when another process holds them; what it returns ends that process."""
    running: list[subprocess.Popen[bytes]] = []

    def eat(size: int) -> Callable[[], None]:
        program = (
            f"held = bytearray({size})\nheld[::4096] = b'x' * len(held[::4096])\nprint('ready', flush=True)\ninput()"
        )
        process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"ready"

        def give_back() -> None:
            if process.poll() is None:
                process.communicate(b"\n", timeout=10)

        return give_back

    yield eat
    for process in running:
        if process.poll() is None:
            process.communicate(b"\n", timeout=10)
