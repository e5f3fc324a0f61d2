"""Two models, and a process that takes real memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from modeld_process import write_models
from shared.paths import DataRoot

#: Takes that many bytes in another process, and answers how to give them back.
Eater = Callable[[int], Callable[[], None]]

#: Written in full, in large pages where the system has them: touching gigabytes in small ones takes half a minute.
_EATER = """
import mmap, sys
size = int(sys.argv[1]) >> 20 << 20
held = mmap.mmap(-1, size)
if hasattr(held, "madvise") and hasattr(mmap, "MADV_HUGEPAGE"):
    held.madvise(mmap.MADV_HUGEPAGE)
block = bytes(range(1, 17)) * (1 << 16)
for start in range(0, size, 1 << 20):
    held[start : start + (1 << 20)] = block
print("ready", flush=True)
input()
"""


@pytest.fixture
def eater() -> Iterator[Eater]:
    """Call it with bytes: returns when another process holds them; what it returns ends that process."""
    running: list[subprocess.Popen[bytes]] = []

    def eat(size: int) -> Callable[[], None]:
        process = subprocess.Popen(
            [sys.executable, "-c", _EATER, str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
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


@pytest.fixture
def models(data_root: DataRoot) -> DataRoot:
    """Two in the store."""
    write_models(data_root, "a", "b")
    return data_root
