"""Files that are no model, or only half of one: each is a typed refusal, and the good model still answers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest

from clients.home import Home
from clients.wire import Wire, user
from converted import share
from shared.errors import ContextOverflow, LookupFailed, ModeldError, ModelLoadFailed

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(300)]

CAPITAL = user("What is the capital of France? Answer in one word.")
NAME = "broken-model"


@pytest.fixture
def folder(smollm2: Path, tmp_path: Path) -> Path:
    """A user's own folder of models, with one good one."""
    models = tmp_path / "models"
    models.mkdir()
    os.link(smollm2, models / smollm2.name) if same_device(smollm2, models) else shutil.copy(smollm2, models)
    return models


def same_device(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev


@pytest.fixture
def spoilt(folder: Path, smollm2_ir: Path, request: pytest.FixtureRequest) -> Iterator[Home]:
    with Home(MODELD_MODEL_FOLDERS=str(folder), MODELD_THREADS="1") as home:
        share(smollm2_ir, home.root)
        home.start(getattr(request, "param", "llama"))
        yield home


def refused(wire: Wire, model: str) -> ModeldError:
    """The typed error a load of this model gives."""
    wire.request("library/refresh")
    with pytest.raises(ModeldError) as caught:
        wire.request("model/load", {"model": model, "allow_switch": True})
    assert wire.status()["state"] in ("Empty", "Failed", "Ready")
    return caught.value


def still_answers(wire: Wire) -> None:
    rows = wire.request("library/list")["rows"]
    (good,) = [row["name"] for row in rows if "smollm2" in row["name"].lower()]
    text, _ = wire.turn(good, CAPITAL, allow_switch=True)
    assert "Paris" in text


def header_borders(path: Path) -> list[int]:
    """Lengths that end a file at each border of its GGUF header: counts, keys, tensor infos, the start of the data."""
    header = gguf.GGUFReader(path)
    keys = [int(field.offset) for field in header.fields.values() if field.offset]
    infos = [int(tensor.field.offset) for tensor in header.tensors]
    data = int(header.data_offset)
    fixed = [0, 4, 8, 16, 24]
    borders = [*fixed, *keys, *infos[:: len(infos) // 4], infos[-1], data]
    return sorted({max(length + shift, 0) for length in borders for shift in (-1, 0, 1)}, reverse=True)


@pytest.mark.parametrize("spoilt", [pytest.param("llama", marks=pytest.mark.llama), "openvino"], indirect=True)
def test_not_a_model_at_all(spoilt: Home, folder: Path) -> None:
    path = folder / f"{NAME}.gguf"
    with Wire(spoilt.root) as wire:
        still_answers(wire)
        assert isinstance(refused(wire, NAME), LookupFailed), "missing"
        path.write_bytes(b"<!DOCTYPE html><html><body>Not found</body></html>\n" * 100)
        assert isinstance(refused(wire, NAME), (LookupFailed, ModelLoadFailed)), "a page saved as a model"
        path.write_bytes(b"")
        assert isinstance(refused(wire, NAME), (LookupFailed, ModelLoadFailed)), "an empty file"
        path.unlink()
        path.mkdir()
        assert isinstance(refused(wire, NAME), (LookupFailed, ModelLoadFailed)), "a folder"
        path.rmdir()
        path.symlink_to(folder / "gone.gguf")
        assert isinstance(refused(wire, NAME), (LookupFailed, ModelLoadFailed)), "a dangling link"
        still_answers(wire)


@pytest.mark.llama
def test_unreadable(spoilt: Home, folder: Path, smollm2: Path) -> None:
    path = folder / f"{NAME}.gguf"
    shutil.copy(smollm2, path)
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything: take the file's folder away from it instead
        path.unlink()
        path.symlink_to("/proc/1/mem")
    with Wire(spoilt.root) as wire:
        assert isinstance(refused(wire, NAME), (LookupFailed, ModelLoadFailed))
        still_answers(wire)


@pytest.mark.parametrize("spoilt", [pytest.param("llama", marks=pytest.mark.llama), "openvino"], indirect=True)
def test_truncated_anywhere(spoilt: Home, folder: Path, smollm2: Path) -> None:
    path = folder / f"{NAME}.gguf"
    shutil.copy(smollm2, path)
    size = path.stat().st_size
    sampled = [size - 1, size - 4096, *(size * part // 8 for part in range(7, 0, -1)), 1 << 21, 1 << 20, 1 << 16]
    with Wire(spoilt.root) as wire:
        still_answers(wire)
        generation = wire.status()["generation"]
        for length in [*sampled, *header_borders(smollm2)]:
            os.truncate(path, length)
            error = refused(wire, NAME)
            assert isinstance(error, (LookupFailed, ModelLoadFailed)), (length, error)
        assert wire.status()["generation"] == generation, "the good model stayed loaded through all of it"
        still_answers(wire)


def test_prompts_that_cannot_be_answered(engine: Home) -> None:
    model = engine.model("smollm2")
    with Wire(engine.root) as wire:
        wire.request("model/load", {"model": model, "config": {"num_ctx": 512}})
        with pytest.raises(ContextOverflow) as caught:
            wire.turn(model, user("word " * 2000))
        assert caught.value.context == 512
        assert caught.value.additional > 512
        with pytest.raises(LookupFailed) as missing:
            wire.turn("no-such-model", CAPITAL)
        assert missing.value.requested == "no-such-model"
        text, _ = wire.turn(model, CAPITAL)
        assert "Paris" in text
