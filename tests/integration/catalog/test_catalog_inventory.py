"""What the daemon adds to the library: fit texts, and checksums while nothing else runs."""

from __future__ import annotations

import anyio
import pytest

from gguf_bytes import model
from modeld.library import inventory
from modeld.memory.policy import DeviceMemory
from shared.catalog.library import Library
from shared.paths import DataRoot
from shared.settings import Settings

pytestmark = [pytest.mark.integration, pytest.mark.anyio]


@pytest.fixture
def library(data_root: DataRoot) -> Library:
    data_root.models.mkdir()
    (data_root.models / "m.gguf").write_bytes(model())
    (data_root.models / "broken.gguf").write_bytes(b"GGUF")
    made = Library(data_root, Settings(), {"HOME": "/nowhere"})
    assert made.wait(15)
    return made


def test_fit_is_given_for_what_can_run(library: Library) -> None:
    texts = inventory.fit_texts(library.rows(), Settings())
    assert list(texts) == ["m"]
    assert texts["m"].startswith("fits with context 2,048 (estimate from its header: ")


def test_what_a_switch_frees_counts_as_free(library: Library) -> None:
    little = DeviceMemory(device="CPU", total=1 << 30, free=200 << 20)  # the reserve is larger
    alone = inventory.fit_texts(library.rows(), Settings(), memory=little)
    switched = inventory.fit_texts(library.rows(), Settings(), 400 << 20, memory=little)
    assert alone["m"].startswith("does not fit")
    assert switched["m"].startswith("fits with context 2,048 (estimate from its header: ")
    everything = inventory.fit_texts(library.rows(), Settings(), 1 << 60, memory=little)
    assert " of 805 MB" in everything["m"], "never more than the device has"


async def test_checksums_wait_until_nothing_else_runs(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "CHECKSUM_PAUSE", 0.01)
    asked = 0

    def busy() -> bool:
        nonlocal asked
        asked += 1
        assert asked > 3 or not library.find("m").sha256
        return asked <= 3

    with anyio.fail_after(15):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(inventory.keep_checksums, library, busy)
            while not library.find("m").sha256:
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    assert asked > 3
