"""Weights that OpenVINO's reader would lose are requantised: every value, in bounded memory, and never half."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from modeld.engine.openvino import convert, requantise
from modeld.engine.openvino.gguf_support import inexact_types, notes
from shared.catalog.advertised.gguf_exactness import EXACT, REQUANTISED, memory_bytes, requantised_bytes
from shared.catalog.formats.ggml import TENSOR_TYPES
from shared.catalog.formats.gguf import Header, read_header
from shared.errors import ModelLoadFailed
from tiny_gguf import written

pytestmark = pytest.mark.integration
Types = gguf.GGMLQuantizationType
WIDTH, ROWS = 512, 6
#: Types that the library packs itself; blocks of the others are made of random bytes.
PACKED = ("BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")


def blocks(kind: str, seed: int = 1) -> Any:
    """Rows of a type, packed."""
    random = np.random.default_rng(seed)
    if kind in PACKED:
        return gguf.quants.quantize(random.normal(0, 0.05, (ROWS, WIDTH)).astype(np.float32), Types[kind])
    _, block, size = next(one for one in TENSOR_TYPES.values() if one[0] == kind)
    for _ in range(200):
        data = random.integers(0, 60, (ROWS, WIDTH // block * size), dtype=np.uint8)
        with np.errstate(all="ignore"):
            if np.isfinite(gguf.quants.dequantize(data, Types[kind])).all():
                return data
    raise AssertionError(kind)


def model(path: Path, kinds: tuple[str, ...], **tensors: Any) -> Path:
    """A file of one matrix of each type, and what else is given."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("ünï")
    writer.add_token_list(["a", "b"])
    writer.add_tensor("norm.weight", np.linspace(0, 1, 7, dtype=np.float32))
    for kind in kinds:
        writer.add_tensor(f"{kind}.weight", blocks(kind), raw_dtype=Types[kind])
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    return written(writer, path)


def values(path: Path) -> dict[str, tuple[str, Any]]:
    """The type and the values of each tensor."""
    return {
        one.name: (one.tensor_type.name, gguf.quants.dequantize(one.data, one.tensor_type))
        for one in gguf.GGUFReader(path).tensors
    }


def header(path: Path) -> Header:
    with path.open("rb") as file:
        return read_header(file, path.stat().st_size)


def silent(done: int, of: int) -> None:
    assert done <= of


def test_every_type_keeps_its_values_within_what_eight_bits_hold(tmp_path: Path) -> None:
    kinds = (*REQUANTISED, "Q4_0", "Q8_0")
    old = model(tmp_path / "old.gguf", kinds, half=np.ones((2, 32), np.float16))
    requantise.requantise(old, tmp_path / "new.gguf", "m", silent)
    before, after = values(old), values(tmp_path / "new.gguf")
    assert list(after) == list(before), "the same tensors in the same order"
    for name, (kind, expected) in before.items():
        wanted, found = after[name]
        assert wanted == REQUANTISED.get(kind, kind)
        if kind in EXACT or kind == "BF16":
            assert np.array_equal(found, expected), f"{name} is not touched, or fits whole"
        else:
            most = np.abs(expected).reshape(-1, 32).max(axis=1, keepdims=True)
            step = most / 127 * 0.5 + most * 2**-10 + 127 * 2**-24  # its scale has 10 bits, or is the least there is
            assert (np.abs(found - expected).reshape(-1, 32) <= step).all(), name


def test_nothing_but_types_and_places_changes_in_the_header(tmp_path: Path) -> None:
    old = model(tmp_path / "old.gguf", ("Q4_1", "Q8_0"))
    new = tmp_path / "new.gguf"
    requantise.requantise(old, new, "m", silent)
    first, second = header(old), header(new)
    assert first.metadata == second.metadata
    assert first.lengths == second.lengths
    assert first.tensors is not None
    assert second.tensors is not None
    assert old.read_bytes()[: first.tensors.infos_offset] == new.read_bytes()[: second.tensors.infos_offset]
    assert second.tensors.data_bytes == requantised_bytes(first.tensors.bytes_by_type)
    assert inexact_types(first) == ["Q4_1"]
    assert inexact_types(second) == []
    (note,) = notes(first)
    assert "Q4_1" in note
    assert "Q8_0" in note
    assert notes(second) == ()


def test_memory_is_planned_for_what_it_becomes() -> None:
    assert memory_bytes({"Q4_1": 20 * 100}) == 36 * 100
    assert memory_bytes({"Q6_K": 210 * 10}) == 36 * 8 * 10
    assert memory_bytes({"Q4_0": 18 * 10, "F32": 40, "BF16": 64}) == 20 * 10 + 40 + 64


def test_it_is_told_in_small_steps_and_given_up_at_any_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requantise, "AT_ONCE", WIDTH)
    old = model(tmp_path / "old.gguf", ("Q4_1", "Q5_0"))
    told: list[tuple[int, int]] = []
    requantise.requantise(old, tmp_path / "new.gguf", "m", lambda done, of: told.append((done, of)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == told[-1][1]
    assert len(told) > 2 * ROWS

    class Stop(Exception):
        """As a cancel ends a load."""

    def stop(done: int, of: int) -> None:
        if done > of // 2:
            raise Stop

    with pytest.raises(Stop):
        requantise.requantise(old, tmp_path / "half.gguf", "m", stop)


@pytest.mark.parametrize(("value", "reason"), [(np.nan, "not numbers"), (3e38, "too large")])
def test_weights_that_cannot_be_kept_are_refused(tmp_path: Path, value: float, reason: str) -> None:
    writer = gguf.GGUFWriter(tmp_path / "old.gguf", "llama")
    wide = gguf.quants.quantize(np.full((1, 64), value, np.float32), Types.BF16)
    writer.add_tensor("wide.weight", wide, raw_dtype=Types.BF16)
    with pytest.raises(ModelLoadFailed, match=reason):
        requantise.requantise(written(writer, tmp_path / "old.gguf"), tmp_path / "new.gguf", "m", silent)


class Killed:
    """A process that began to convert and was killed: what it leaves behind."""

    def __init__(self, cache: Path) -> None:
        code = (
            "import sys; from pathlib import Path; from modeld.engine.openvino import convert;"
            "work = Path(sys.argv[1]) / convert._work_name('d'); work.mkdir(mode=0o700);"
            "(work / 'model.gguf').write_bytes(b'x' * 1000); print(work.name, flush=True); sys.stdin.read()"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(cache)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.name = self.process.stdout.readline().strip()

    def kill(self) -> None:
        """With its pipes, so that nothing of it is left."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Killed]:
    found = Killed(tmp_path)
    yield found
    found.kill()


def test_what_a_killed_process_left_goes_at_the_next_load_and_a_living_ones_work_stays(
    tmp_path: Path, other: Killed
) -> None:
    assert convert.sweep(tmp_path, "r1") == [], "it is at work"
    reused = tmp_path / f"d.{os.getpid()}-another_start.tmp"
    reused.mkdir()
    assert convert.sweep(tmp_path, "r1") == [reused.name], "its number belongs to another process now"
    other.kill()
    assert convert.sweep(tmp_path, "r1") == [other.name]
    assert list(tmp_path.iterdir()) == []
