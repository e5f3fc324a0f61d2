"""Conversations kept on disk: through a restart, never under another identity, never trusted when changed."""

from __future__ import annotations

import errno
import json
import mmap
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_bench import Answer, Engine, Engines, Messages, assistant, identity, user
from msgspec.structs import replace

from modeld.cli.app import run
from modeld.engine.kv_disk_cache import SUFFIX, KvDiskCache, files_under, identity_key, trim
from modeld.pipe.messages import Load
from shared.catalog.identity import ResolvedIdentity
from shared.protocol.api import Sampling
from tiny_gguf import write_tiny_gguf

pytestmark = [pytest.mark.anyio, pytest.mark.integration]
FEW = Sampling(temperature=0.0, max_tokens=6)
ENOUGH = 64 << 20
LONG = "time year people way day man " * 12
#: See test_reuse_equality: what is compared here is the disk, not the rounding.
EXACT = {"kv_type": "f32", "flash_attention": False}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data root of the workers."""
    monkeypatch.setenv("MODELD_DATA_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


async def opened(engines: Engines, path: Path, disk_cache_bytes: int = ENOUGH, num_ctx: int = 2048) -> Engine:
    """A worker that keeps conversations."""
    host = await engines.start("llama")
    await host.imported()
    message = Load(
        turn=host.next_turn(),
        identity=identity(path, "llama", **EXACT),
        model={},
        num_ctx=num_ctx,
        threads=1,
        parked_bytes=ENOUGH,
        disk_cache_bytes=disk_cache_bytes,
    )
    return Engine(host, await host.load(message, lambda _: None))


@pytest.fixture(scope="module")
async def plain(shared_engines: Engines, tiny: Path) -> Engine:
    """Keeps nothing."""
    return await opened(shared_engines, tiny, disk_cache_bytes=0)


async def restarted(engines: Engines, engine: Engine, path: Path) -> Engine:
    """Another process with the same model."""
    await engine.host.close(10)
    return await opened(engines, path)


def kept(root: Path) -> list[Path]:
    """The files, all of them."""
    return sorted(path for path, _, _ in files_under(root / "parked"))


async def reported(engine: Engine, about: str = "river") -> tuple[Messages, Answer]:
    """A first turn and the conversation that goes on from it."""
    first = [user(f"{about} {LONG}")]
    answer = await engine.ask(first, FEW)
    return [*first, assistant(answer.text), user("and then?")], answer


async def test_nothing_is_written_unless_it_is_wanted(engines: Engines, tiny: Path, root: Path) -> None:
    engine = await opened(engines, tiny, disk_cache_bytes=0)
    await reported(engine)
    await engine.host.close(10)
    assert not (root / "parked").exists()


@pytest.mark.parametrize("shape", ["tiny", "tiny_window"])
async def test_a_conversation_outlives_its_process(
    engines: Engines, shape: str, root: Path, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(shape)
    engine = await opened(engines, path)
    following, first = await reported(engine)
    other, _ = await reported(engine, "hill")
    engine = await restarted(engines, engine, path)
    assert len(kept(root)) == 2
    back = await engine.ask(following, FEW)
    assert back.done.usage.reused >= first.done.usage.prefilled
    plain = await opened(engines, path, disk_cache_bytes=0)
    assert back.text == (await plain.ask(following, FEW)).text
    assert (await engine.ask(other, FEW)).text == (await plain.ask(other, FEW)).text
    engine = await restarted(engines, engine, path)
    assert len(kept(root)) == 2, "a conversation that went on takes the place of its file"
    again = await engine.ask([*following[:-1], user("or else?")], FEW)
    assert again.done.usage.reused >= first.done.usage.prefilled - 1  # a window keeps a checkpoint before the last


@pytest.mark.skipif(sys.platform == "win32", reason="modes are of this kind of system")
async def test_files_are_private(engines: Engines, tiny: Path, root: Path) -> None:
    engine = await opened(engines, tiny)
    await reported(engine)
    await engine.host.close(10)
    (path,) = kept(root)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((root / "parked").stat().st_mode) == 0o700


async def test_another_identity_finds_nothing_and_takes_nothing_away(
    engines: Engines, tiny: Path, root: Path, tmp_path: Path
) -> None:
    engine = await opened(engines, tiny)
    following, first = await reported(engine)
    await engine.host.close(10)
    other = await opened(engines, tiny, num_ctx=1024)
    assert (await other.ask(following, FEW)).done.usage.reused == 0
    twin = await opened(engines, write_tiny_gguf(tmp_path / "twin" / "tiny.gguf", seed=2))
    assert (await twin.ask(following, FEW)).done.usage.reused == 0
    again = await opened(engines, tiny)
    assert (await again.ask(following, FEW)).done.usage.reused >= first.done.usage.prefilled


def flipped(at: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    return change


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthened(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def opened_to_all(path: Path) -> None:
    path.chmod(0o644)


def linked(path: Path) -> None:
    moved = path.rename(path.with_suffix(".moved"))
    path.symlink_to(moved)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


CHANGES = [flipped(0), flipped(20), flipped(60), flipped(-1), flipped(-5000), cut, lengthened, emptied]
POSIX = [opened_to_all, linked] if sys.platform != "win32" else []


@pytest.mark.parametrize("change", [*CHANGES, *POSIX])
async def test_a_changed_file_is_deleted_and_the_answer_is_that_of_a_fresh_engine(
    engines: Engines, plain: Engine, tiny: Path, root: Path, change: Callable[[Path], None]
) -> None:
    engine = await opened(engines, tiny)
    following, _ = await reported(engine)
    await engine.host.close(10)
    (path,) = kept(root)
    change(path)
    engine = await opened(engines, tiny)
    answer = await engine.ask(following, FEW)
    assert answer.done.usage.reused == 0
    assert not path.exists()
    assert answer.text == (await plain.ask(following, FEW)).text


async def test_a_file_put_into_the_folder_of_another_identity_is_not_taken(
    engines: Engines, tiny: Path, root: Path
) -> None:
    engine = await opened(engines, tiny)
    following, _ = await reported(engine)
    await engine.host.close(10)
    (path,) = kept(root)
    other = await opened(engines, tiny, num_ctx=1024)
    (folder,) = [one for one in (root / "parked").iterdir() if one != path.parent]
    await other.host.close(10)
    stolen = folder / path.name
    stolen.write_bytes(path.read_bytes())
    stolen.chmod(0o600)
    other = await opened(engines, tiny, num_ctx=1024)
    assert (await other.ask(following, FEW)).done.usage.reused == 0
    assert not stolen.exists()
    assert path.exists()


async def test_a_file_deleted_under_a_running_engine_is_prefilled_instead(
    engines: Engines, tiny: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = await opened(engines, tiny)
    following, _ = await reported(engine)
    engine = await restarted(engines, engine, tiny)
    assert run(["parked", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 1
    assert run(["parked", "--clear", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["files"], report["deleted"]) == (0, 1)
    assert report["freed_bytes"] > 0
    assert kept(root) == []
    assert (await engine.ask(following, FEW)).done.usage.reused == 0


IDENTITY = ResolvedIdentity(
    backend="llama", name="m", digest="d", path="/m", runtime_digest="r", device="CPU", num_ctx=1, num_batch=1,
    gpu_layers=0, tensor_split=(), flash_attention=False, kv_type="f16", template_digest="t", bos_policy="none",
    reasoning_format="none", adapters=(),
)  # fmt: skip


@pytest.mark.parametrize("field", ResolvedIdentity.__struct_fields__)
def test_each_field_of_the_identity_is_in_the_key(field: str, tmp_path: Path) -> None:
    values = {str: "another", int: 7, bool: True, tuple: (0.5,)}
    value = values[type(getattr(IDENTITY, field))]
    if field == "adapters":
        (tmp_path / "a.gguf").write_bytes(b"one")
        value = (str(tmp_path / "a.gguf"),)
    if field == "projector":
        (tmp_path / "mmproj.gguf").write_bytes(b"one")
        value = str(tmp_path / "mmproj.gguf")
    assert identity_key(replace(IDENTITY, **{field: value})) != identity_key(IDENTITY)


@pytest.mark.parametrize("field", ["adapters", "projector"])
def test_an_adapter_that_changes_under_its_name_is_another_identity(tmp_path: Path, field: str) -> None:
    adapter = tmp_path / "a.gguf"
    with_adapter = replace(IDENTITY, **{field: (str(adapter),) if field == "adapters" else str(adapter)})
    adapter.write_bytes(b"one")
    before = identity_key(with_adapter)
    adapter.write_bytes(b"two")
    assert identity_key(with_adapter) != before


def part(size: int) -> mmap.mmap:
    data = mmap.mmap(-1, size)
    data.write(os.urandom(size))
    return data


def test_the_budget_is_never_exceeded_and_the_oldest_goes_first(tmp_path: Path) -> None:
    disk_cache = KvDiskCache(tmp_path / "parked", IDENTITY, 35_000)
    other = KvDiskCache(tmp_path / "parked", replace(IDENTITY, num_ctx=2), 35_000)
    paths: list[Path | None] = []
    for number in range(6):
        paths.append((disk_cache if number % 2 else other).write([number], 0, [part(10_000)], []))
        os.utime(paths[-1] or tmp_path, ns=(number, number))
        assert sum(size for _, size, _ in files_under(tmp_path / "parked")) <= 35_000
    assert {path for path, _, _ in files_under(tmp_path / "parked")} == set(paths[3:])
    assert disk_cache.write([9], 0, [part(40_000)], []) is None
    assert trim(tmp_path / "parked", -1)[0] == 3


def test_a_full_disk_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk_cache = KvDiskCache(tmp_path / "parked", IDENTITY, ENOUGH)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        disk_cache.write([1], 0, [part(100)], [])
    assert [one for one in (tmp_path / "parked").rglob("*") if one.is_file()] == []


def test_what_a_killed_process_left_half_written_is_swept(tmp_path: Path) -> None:
    disk_cache = KvDiskCache(tmp_path / "parked", IDENTITY, ENOUGH)
    path = disk_cache.write([1], 0, [part(100)], [])
    assert path is not None
    half = path.with_name("left.writing")
    half.write_bytes(b"half")
    assert [one.path for one in KvDiskCache(tmp_path / "parked", IDENTITY, ENOUGH).look()] == [path]
    assert not half.exists()
    assert path.suffix == SUFFIX


@pytest.mark.skipif(sys.platform == "win32", reason="modes are of this kind of system")
def test_a_folder_that_others_may_enter_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "parked").mkdir(mode=0o755)
    (tmp_path / "parked").chmod(0o755)
    with pytest.raises(PermissionError):
        KvDiskCache(tmp_path / "parked", IDENTITY, ENOUGH)
