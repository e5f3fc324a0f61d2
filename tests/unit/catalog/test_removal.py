"""A removed model takes along what was made of it, and nothing of another's."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import msgspec
import pytest

from modeld.engine import kv_disk_cache
from modeld.engine.openvino import convert
from modeld.library.removal import remove_whole
from shared.catalog import pulled_record
from shared.catalog.entry import ModelEntry
from shared.catalog.identity import ResolvedIdentity
from shared.errors import ModelInUse
from shared.paths import DataRoot

pytestmark = pytest.mark.unit

IDENTITY = ResolvedIdentity(
    backend="llama", name="a", digest="d", path="/m", runtime_digest="r", device="CPU", num_ctx=1, num_batch=1,
    gpu_layers=0, tensor_split=(), flash_attention=False, kv_type="f16", template_digest="t", bos_policy="none",
    reasoning_format="none", adapters=(),
)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> DataRoot:
    (tmp_path / "models").mkdir()
    return DataRoot(tmp_path)


def model(root: DataRoot, name: str) -> ModelEntry:
    """A model of ours with a parked conversation in two identities, and a conversion."""
    path = root.models / f"{name}.gguf"
    path.write_bytes(b"GGUF" * 100)
    pulled_record.write_record(path, "test", "", path.stat().st_size)
    for device in ("CPU", "GPU"):
        identity = msgspec.structs.replace(IDENTITY, name=name, device=device)
        part = mmap.mmap(-1, 10)
        assert kv_disk_cache.KvDiskCache(root.parked, identity, 1 << 20).write([1, 2], 0, [part], [])
    folder = root.cache / "openvino" / f"fp1-{name}"
    folder.mkdir(parents=True)
    (folder / "openvino_model.bin").write_bytes(b"x" * 1000)
    made = convert.Conversion(version=1, runtime="r", source=str(path), source_size=400, digest="d")
    (folder / convert.DESCRIPTION).write_bytes(msgspec.json.encode(made))
    return ModelEntry(
        name=name, title=name, format="gguf", path=str(path), source="store", size_bytes=400, digest=f"fp1-{name}"
    )


def test_everything_that_was_made_of_it_goes(root: DataRoot) -> None:
    first, second = model(root, "a"), model(root, "b")
    result = remove_whole(first, [first, second], lambda paths: None, root)
    assert (result.parked, result.removed) == (2, [first.path, str(root.cache / "openvino" / "fp1-a")])
    assert result.freed_bytes > 1400
    assert os.listdir(root.cache / "openvino") == ["fp1-b"]
    left = [kv_disk_cache.header_of(path) for path, _, _ in kv_disk_cache.files_under(root.parked)]
    assert [header.model for header in left if header] == ["b", "b"]


def test_one_that_is_in_use_keeps_everything(root: DataRoot) -> None:
    entry = model(root, "a")
    with pytest.raises(ModelInUse):
        remove_whole(entry, [entry], lambda paths: ("busy", "Zed"), root)
    assert len(list(kv_disk_cache.files_under(root.parked))) == 2
    assert os.listdir(root.cache / "openvino") == ["fp1-a"]


def test_folders_that_we_did_not_describe_stay(root: DataRoot) -> None:
    entry = model(root, "a")
    strange = root.cache / "openvino" / "mine"
    strange.mkdir()
    (strange / convert.DESCRIPTION).write_bytes(b"not ours")
    assert remove_whole(entry, [entry], lambda paths: None, root).parked == 2
    assert os.listdir(root.cache / "openvino") == ["mine"]
