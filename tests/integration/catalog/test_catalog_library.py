"""The library over real folders: every place, every oddity, and the cache."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from bench.headers import HeaderMaker
from gguf_bytes import model
from manual_clock import ManualClock
from shared.catalog.entry import ModelEntry
from shared.catalog.library import Library
from shared.errors import ModelLoadFailed, ModelNotFound
from shared.paths import DataRoot
from shared.settings import Settings
from tiny_gguf import write_tiny_gguf

pytestmark = pytest.mark.integration
WAIT = 15.0


def put(path: Path, content: bytes | None = None, name: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model(name=name or str(path)) if content is None else content)
    return path


@pytest.fixture
def folder(short_tmp: Path) -> Path:
    made = short_tmp / "my models"
    made.mkdir()
    return made


def open_library(root: DataRoot, *folders: Path, environ: dict[str, str] | None = None) -> Library:
    settings = Settings(model_folders=tuple(map(str, folders)))
    library = Library(root, settings, {"HOME": str(root.path / "home")} | (environ or {}))
    assert library.wait(WAIT)
    return library


def names_of(library: Library) -> list[str]:
    return [entry.name for entry in library.rows()]


def by_name(library: Library) -> dict[str, ModelEntry]:
    return {entry.name: entry for entry in library.rows()}


def test_a_real_model_written_by_the_gguf_package(data_root: DataRoot, folder: Path) -> None:
    write_tiny_gguf(folder / "Tiny-Chat.F32.gguf", layers=3, width=64, context=1024, name="tiny")
    entry = open_library(data_root, folder).find("tiny-chat-f32")
    assert (entry.n_layers, entry.n_embd, entry.context_train, entry.architecture) == (3, 64, 1024, "llama")
    assert entry.has_template
    assert entry.complete
    assert entry.backends[0] == "llama"
    assert sum(entry.tensor_types.values()) == entry.weights_bytes


def test_the_store_is_searched(data_root: DataRoot) -> None:
    put(data_root.models / "m.gguf")
    assert open_library(data_root).find("m").source == "store"


def test_the_hugging_face_cache_with_its_links(data_root: DataRoot, short_tmp: Path) -> None:
    hub = short_tmp / "hf" / "hub"
    repo = hub / "models--org--Some-GGUF"
    snapshot = repo / "snapshots" / "abc123"
    snapshot.mkdir(parents=True)
    for number in (1, 2):
        blob = put(repo / "blobs" / f"blob{number}", name=f"part {number}")
        (snapshot / f"big-0000{number}-of-00002.gguf").symlink_to(Path("../../blobs") / blob.name)
    projector = put(repo / "blobs" / "eeee", model("clip", tensors=False))
    (snapshot / "mmproj-big-f16.gguf").symlink_to(Path("../../blobs") / projector.name)
    (snapshot / "gone.gguf").symlink_to(Path("../../blobs/ffff"))
    library = open_library(data_root, environ={"HF_HUB_CACHE": str(hub)})
    rows = by_name(library)
    assert list(rows) == ["big"]
    assert rows["big"].source == "huggingface"
    assert rows["big"].shards[0] == str(snapshot / "big-00001-of-00002.gguf")  # never the blob
    assert rows["big"].projector == str(snapshot / "mmproj-big-f16.gguf")
    assert any("a link to nothing" in line for line in library.problems)


@pytest.mark.parametrize("variable", ["HF_HOME", "XDG_CACHE_HOME", ""])
def test_where_the_hugging_face_cache_may_be(data_root: DataRoot, short_tmp: Path, variable: str) -> None:
    base = {"HF_HOME": "hub", "XDG_CACHE_HOME": "huggingface/hub", "": ".cache/huggingface/hub"}[variable]
    put(short_tmp / "x" / base / "models--o--r" / "snapshots" / "1" / "m.gguf")
    environ = {variable or "HOME": str(short_tmp / "x")}
    assert names_of(open_library(data_root, environ=environ)) == ["m"]


def test_lm_studio(data_root: DataRoot, short_tmp: Path) -> None:
    home = short_tmp / "person"
    put(home / ".lmstudio" / "models" / "publisher" / "repo" / "one.gguf")
    put(home / ".cache" / "lm-studio" / "models" / "publisher" / "repo" / "two.gguf")
    put(short_tmp / "moved" / "models" / "p" / "r" / "three.gguf")
    (home / ".lmstudio-home-pointer").write_text(str(short_tmp / "moved"))
    rows = by_name(open_library(data_root, environ={"HOME": str(home)}))
    assert sorted(rows) == ["one", "three", "two"]
    assert {entry.source for entry in rows.values()} == {"lmstudio"}


def ollama_manifest(store: Path, name: str, layers: dict[str, str]) -> None:
    path = store / "manifests" / "registry.ollama.ai" / Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds = [{"mediaType": f"application/vnd.ollama.image.{kind}", "digest": digest} for kind, digest in layers.items()]
    path.write_text(json.dumps({"schemaVersion": 2, "layers": kinds}))


def test_ollama(data_root: DataRoot, short_tmp: Path) -> None:
    store = short_tmp / "ollama"
    put(store / "blobs" / "sha256-aa")
    put(store / "blobs" / "sha256-bb", model("clip", tensors=False))
    ollama_manifest(
        store, "library/gemma3/4b", {"model": "sha256:aa", "projector": "sha256:bb", "template": "sha256:cc"}
    )
    put(store / "blobs" / "sha256-dd")
    ollama_manifest(store, "someone/qwen/latest", {"model": "sha256:dd"})
    ollama_manifest(store, "library/escape/1", {"model": "sha256:../../../etc/passwd"})
    ollama_manifest(store, "library/absent/1", {"model": "sha256:ee"})
    (store / "manifests" / "registry.ollama.ai" / "library" / "broken").mkdir()
    (store / "manifests" / "registry.ollama.ai" / "library" / "broken" / "1").write_text("{")
    library = open_library(data_root, environ={"OLLAMA_MODELS": str(store)})
    rows = by_name(library)
    assert sorted(rows) == ["gemma3-4b", "someone-qwen"]
    assert rows["gemma3-4b"].projector == str(store / "blobs" / "sha256-bb")
    assert len(library.problems) == 2


def test_odd_names(data_root: DataRoot, folder: Path) -> None:
    for file in ("with space.gguf", "naïve-été.gguf", "模型.gguf", "🦙.GGUF"):
        put(folder / file)
    long = folder
    while len(str(long)) < 600:
        long = long / ("d" * 50)
        if len(long.relative_to(folder).parts) >= 11:
            break
    put(long / "deep.gguf")
    rows = names_of(open_library(data_root, folder))
    assert sorted(rows) == ["deep", "naïve-été", "with-space", "模型", "🦙"]


@pytest.mark.skipif(sys.platform != "linux", reason="only here may names be any bytes")
def test_a_name_that_is_no_utf8_is_reported(data_root: DataRoot, folder: Path) -> None:
    (Path(os.fsdecode(os.fsencode(folder) + b"/bad-\xff.gguf"))).write_bytes(model())
    put(folder / "good.gguf")
    library = open_library(data_root, folder)
    assert names_of(library) == ["good"]
    assert "not valid UTF-8" in library.problems[0]
    library.problems[0].encode("utf-8")


def test_links_in_a_circle_end(data_root: DataRoot, folder: Path) -> None:
    put(folder / "a" / "m.gguf")
    (folder / "a" / "up").symlink_to(folder)
    (folder / "self").symlink_to(folder / "self")
    (folder / "self.gguf").symlink_to(folder / "self.gguf")
    (folder / "again").symlink_to(folder / "a")
    library = open_library(data_root, folder)
    assert names_of(library) == ["m"]


def test_a_folder_that_is_not_there_is_reported(data_root: DataRoot, folder: Path) -> None:
    put(folder / "m.gguf")
    library = open_library(data_root, folder, folder / "unplugged")
    assert names_of(library) == ["m"]
    assert any("unplugged: the folder is not there" in line for line in library.problems)


def test_a_folder_that_may_not_be_read_is_reported(
    data_root: DataRoot, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder / "m.gguf")
    put(folder / "secret" / "n.gguf")
    real = os.scandir

    def refusing(path: str) -> object:
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refusing)  # the tests may run as root, for whom nothing is forbidden
    library = open_library(data_root, folder)
    assert names_of(library) == ["m"]
    assert any("secret: Permission denied" in line for line in library.problems)


def test_bad_files_stay_visible_with_their_reason(data_root: DataRoot, folder: Path) -> None:
    put(folder / "page.gguf", b"<!doctype html><p>log in")
    put(folder / "cut.gguf", model()[:-100])
    put(folder / "empty.gguf", b"")
    put(folder / "fine.gguf", model() + b"trailing")
    rows = by_name(open_library(data_root, folder))
    assert "web page" in rows["page"].problem
    assert "ends at byte" in rows["cut"].problem
    assert "empty" in rows["empty"].problem
    assert not rows["fine"].problem
    assert [entry.name for entry in rows.values() if entry.backends] == ["fine"]


def test_other_files_are_no_models(data_root: DataRoot, folder: Path) -> None:
    for file in ("x.gguf.part", ".y.gguf.part", "._fork.gguf", "z.bin", "model.safetensors", "README.md"):
        put(folder / file)
    library = open_library(data_root, folder)
    assert names_of(library) == []
    assert ["safetensors" in line for line in library.problems] == [True]


def test_files_that_come_and_go(data_root: DataRoot, folder: Path) -> None:
    first = put(folder / "one.gguf")
    library = open_library(data_root, folder)
    changed = threading.Event()
    library.on_change(changed.set)
    put(folder / "two.gguf")
    assert library.refresh(WAIT)
    assert names_of(library) == ["one", "two"]
    assert changed.is_set()
    assert library.wait(WAIT)
    revision = library.revision
    first.unlink()
    assert library.refresh(WAIT)
    assert names_of(library) == ["two"]
    assert library.revision > revision
    assert library.refresh(WAIT)
    assert library.revision == revision + 1


def test_a_listener_that_fails_disturbs_nobody(data_root: DataRoot, folder: Path) -> None:
    put(folder / "one.gguf")
    library = Library(data_root, Settings(model_folders=(str(folder),)), {"HOME": "/nowhere"})
    heard = threading.Event()

    def failing() -> None:
        raise ValueError("no")

    library.on_change(failing)
    library.on_change(heard.set)
    assert library.wait(WAIT)
    assert heard.is_set()
    assert names_of(library) == ["one"]
    assert library.refresh(WAIT)


def test_asking_for_rows_is_enough_to_see_a_new_file(data_root: DataRoot, folder: Path) -> None:
    clock = ManualClock()
    library = Library(data_root, Settings(model_folders=(str(folder),)), {"HOME": "/nowhere"}, clock)
    assert library.rows(WAIT) == []
    library.wait(WAIT)
    seen = threading.Event()
    library.on_change(seen.set)
    put(folder / "new.gguf")
    clock.advance(5)
    library.rows()
    assert not seen.wait(0.2)
    clock.advance(5.1)
    library.rows()
    assert seen.wait(WAIT)
    assert names_of(library) == ["new"]


def test_a_changed_file_is_read_again(data_root: DataRoot, folder: Path) -> None:
    path = put(folder / "m.gguf", model(layers=2))
    library = open_library(data_root, folder)
    before = library.find("m")
    put(path, model(layers=5))
    assert library.refresh(WAIT)
    after = library.find("m")
    assert (before.n_layers, after.n_layers) == (2, 5)
    assert before.digest != after.digest


def test_a_file_that_was_mended_or_came_is_found_at_once(data_root: DataRoot, folder: Path) -> None:
    path = put(folder / "m.gguf", model()[:-7])
    library = open_library(data_root, folder)
    assert library.find("m").problem
    put(path, model())
    assert not library.find("m", WAIT).problem
    put(folder / "new.gguf")
    assert library.find("new", WAIT).name == "new"


def test_touching_or_moving_a_file_keeps_digest_and_name(data_root: DataRoot, folder: Path) -> None:
    path = put(folder / "m.gguf", model(name="A"))
    put(folder / "sub" / "m.gguf", model(name="B"))
    library = open_library(data_root, folder)
    before = {entry.digest: entry.name for entry in library.rows()}
    os.utime(path, (1, 1))
    shutil.move(path, folder / "elsewhere.d")
    (folder / "elsewhere.d").rename(folder / "x")
    (folder / "other").mkdir()
    (folder / "x").rename(folder / "other" / "m.gguf")
    assert library.refresh(WAIT)
    assert {entry.digest: entry.name for entry in library.rows()} == before


def test_the_cache_spares_reading(data_root: DataRoot, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder / "m.gguf")
    first = open_library(data_root, folder)
    rows = first.rows()
    first.close()
    assert data_root.library_cache.stat().st_mode & 0o077 == 0
    read: list[str] = []
    monkeypatch.setattr("shared.catalog.library.read_record", lambda candidate, **_: read.append(candidate.path))
    second = open_library(data_root, folder)
    assert second.rows() == rows
    assert read == []


def test_a_damaged_cache_is_rebuilt(data_root: DataRoot, folder: Path) -> None:
    put(folder / "m.gguf")
    open_library(data_root, folder).close()
    good = data_root.library_cache.read_bytes()
    for bad in (b"", good[:-1], good[:100], b"x" + good, good.replace(b"llama", b"lxama"), bytes(4096)):
        data_root.library_cache.write_bytes(bad)
        library = open_library(data_root, folder)
        assert names_of(library) == ["m"]
        library.close()
        assert data_root.library_cache.read_bytes() == good


def test_without_a_place_for_the_cache_it_is_kept_in_memory(data_root: DataRoot, folder: Path) -> None:
    put(folder / "m.gguf")
    library = open_library(DataRoot(data_root.path / "not there"), folder)
    assert names_of(library) == ["m"]
    assert "kept in memory" in library.cache_note
    assert not (data_root.path / "not there").exists()


def test_two_processes_share_what_they_learn(data_root: DataRoot, folder: Path) -> None:
    put(folder / "m.gguf")
    one = open_library(data_root, folder)
    other = open_library(data_root, folder)
    assert other.compute_checksums() == 1
    assert one.compute_checksums() == 0
    assert one.wait(WAIT)
    assert one.refresh(WAIT)
    assert other.refresh(WAIT)
    assert len(one.find("m").sha256) == 64
    assert one.find("m").sha256 == other.find("m").sha256


def test_checksums_stop_when_asked(data_root: DataRoot, folder: Path) -> None:
    put(folder / "m.gguf")
    assert open_library(data_root, folder).compute_checksums(lambda: True) == 0


def test_checked_compares_with_the_files_as_they_are(data_root: DataRoot, folder: Path) -> None:
    path = put(folder / "m.gguf")
    library = open_library(data_root, folder)
    entry = library.find("m")
    assert library.checked(entry) == entry
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ModelLoadFailed) as caught:
        library.checked(entry)
    assert (caught.value.stage, "ends at byte" in caught.value.reason) == ("header", True)
    path.unlink()
    with pytest.raises(ModelLoadFailed):
        library.checked(entry)


def test_find_says_what_was_near(data_root: DataRoot, folder: Path) -> None:
    put(folder / "SmolLM2-135M.Q4_1.gguf")
    with pytest.raises(ModelNotFound) as caught:
        open_library(data_root, folder).find("smol-lm2")
    assert caught.value.near == ["smollm2-135m-q4_1"]


def test_first_rows_come_before_the_vocabularies(data_root: DataRoot, folder: Path) -> None:
    maker = HeaderMaker(tokens=20_000, layers=2)
    for index in range(3):
        maker.write(folder / f"model-{index}.gguf", f"Model {index}")
    library = Library(data_root, Settings(model_folders=(str(folder),)), {"HOME": "/nowhere"})
    states: list[bool] = []
    library.on_change(lambda: states.append(all(row.complete for row in library.rows(0))))
    rows = library.rows(WAIT)
    assert [row.name for row in rows] == ["model-0", "model-1", "model-2"]
    assert library.wait(WAIT)
    assert states == [False, True]
    full = library.find("model-1")
    assert full.parameters > 1_000_000
    assert full.digest == rows[1].digest
    assert full.tokens.texts.keys() == {1, 2}


def test_a_closed_library_answers_with_what_it_has(data_root: DataRoot, folder: Path) -> None:
    put(folder / "m.gguf")
    library = open_library(data_root, folder)
    library.close()
    assert names_of(library) == ["m"]
    assert library.refresh(0) is False
