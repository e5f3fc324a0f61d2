"""A process that takes real memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def eater() -> Iterator[Callable[[int], None]]:
    """Call it with bytes: returns when another process holds them."""
    running: list[subprocess.Popen[bytes]] = []

    def eat(size: int) -> None:
        program = (
            f"held = bytearray({size})\nheld[::4096] = b'x' * len(held[::4096])\nprint('ready', flush=True)\ninput()"
        )
        process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"ready"

    yield eat
    for process in running:
        process.communicate(b"\n", timeout=10)
