"""What other programs leave: every model under the name its person knows, no two alike, and picks outlive it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gguf_bytes import STRING, model
from model_stores import HubCache, OllamaStore, put
from shared.catalog import cachefile, names
from shared.catalog.entry import ModelEntry
from shared.catalog.library import Library
from shared.errors import ModelNotFound
from shared.paths import DataRoot
from shared.settings import Settings

pytestmark = pytest.mark.integration
WAIT = 15.0
OLD, NEW = "0c1889" + "a" * 34, "b" * 40


@pytest.fixture
def home(short_tmp: Path) -> Path:
    return short_tmp / "person"


def weights(name: str, **facts: Any) -> bytes:
    return model(name=name, **facts)


def adapter(architecture: str = "llama") -> bytes:
    return model(architecture, extra=[("general.type", STRING, "adapter"), ("adapter.type", STRING, "lora")])


def projector() -> bytes:
    return model("clip", tensors=False)


def opened(root: DataRoot, home: Path, *folders: Path) -> Library:
    library = Library(root, Settings(model_folders=tuple(map(str, folders))), {"HOME": str(home)})
    assert library.wait(WAIT)
    return library


def rows_of(library: Library) -> dict[str, ModelEntry]:
    rows = library.rows()
    assert len({row.name for row in rows}) == len({row.title.casefold() for row in rows}) == len(rows), "two look alike"
    return {row.name: row for row in rows}


def test_every_tag_of_ollama_is_found(data_root: DataRoot, home: Path) -> None:
    store = OllamaStore(home / ".ollama" / "models")
    base = ("model", weights("Llama 3.2"))
    template = ("template", b"{{ .Prompt }}")
    for tag in ("latest", "3b"):
        store.tag(f"library/llama3.2/{tag}", [base, template])
    store.tag("library/alice/latest", [base, template, ("system", b"You are Alice")])
    store.tag("someone/custom/latest", [("model", weights("custom"))])
    store.tag("bartowski/Bar-1B-GGUF/Q4_K_M", [("model", weights("Bar"))], host="hf.co")
    store.tag("library/nulls/latest", []).write_text('{"layers": null}')
    library = opened(data_root, home)
    assert sorted(rows_of(library)) == ["bartowski-bar-1b-gguf-q4_k_m", "llama3.2", "someone-custom"]
    for typed in ("llama3.2", "llama3.2:latest", "llama3.2:3b", "llama3.2-3b", "Llama3.2:3B", "alice", "alice:latest"):
        assert library.find(typed, WAIT).name == "llama3.2", typed
    for typed in ("hf.co/bartowski/Bar-1B-GGUF:Q4_K_M", "bartowski/Bar-1B-GGUF:Q4_K_M"):
        assert library.find(typed, WAIT).name == "bartowski-bar-1b-gguf-q4_k_m", typed
    assert library.find("someone/custom", WAIT).name == "someone-custom"
    assert library.problems == []
    with pytest.raises(ModelNotFound):
        library.find("llama3.2:70b", WAIT)


def test_a_tag_with_an_adapter_means_both(data_root: DataRoot, home: Path) -> None:
    store = OllamaStore(home / ".ollama" / "models")
    base = ("model", weights("Llama 3.2"))
    store.tag("library/abc-lora/latest", [base, ("adapter", adapter())])
    store.tag("library/llama3.2/latest", [base])
    store.tag("library/odd-lora/latest", [base, ("adapter", adapter("qwen2"))])
    library = opened(data_root, home)
    rows = rows_of(library)
    assert sorted(rows) == ["abc-lora", "llama3.2", "odd-lora"]
    over = rows["abc-lora"]
    assert (over.path, over.digest) == (rows["llama3.2"].path, rows["llama3.2"].digest)
    assert [Path(path).read_bytes() for path in over.adapters] == [adapter()]
    assert (over.backends, rows["llama3.2"].backends) == (("llama",), ("llama", "openvino"))
    assert library.checked(over) == over
    assert over.adapters[0] in over.parts
    assert rows["llama3.2"].adapters == ()
    assert "its adapter cannot be used: it is for qwen2" in rows["odd-lora"].problem
    assert library.find(over.path, WAIT).name == "llama3.2"


def test_a_store_of_ollama_is_known_wherever_it_lies(data_root: DataRoot, home: Path, short_tmp: Path) -> None:
    store = OllamaStore(short_tmp / "disk" / "ollama")
    store.tag("library/gemma3/4b", [("model", weights("gemma"))])
    for added in (store.folder, store.folder.parent):
        assert list(rows_of(opened(data_root, home, added))) == ["gemma3-4b"]


def test_a_blob_that_is_missing_is_reported_by_its_tag(data_root: DataRoot, home: Path) -> None:
    store = OllamaStore(home / ".ollama" / "models")
    content = weights("gone")
    store.tag("library/gone/7b", [("model", content)])
    (store.folder / "blobs" / store.blob(content).replace(":", "-")).unlink()
    store.tag("library/cut/7b", [("model", weights("cut")[:-10])])
    library = opened(data_root, home)
    gone, cut = library.problems
    assert gone == "gone:7b: its model is not in Ollama's store; pull it again there"
    assert cut.startswith("cut-7b (Ollama): the file ends at byte")


@pytest.mark.parametrize("first", ["old", "new"])
def test_the_current_revision_has_the_plain_name(data_root: DataRoot, home: Path, first: str) -> None:
    """Whatever was there first, and whichever commit sorts first."""
    cache = HubCache(home / ".cache" / "huggingface" / "hub")
    old, new = weights("old"), weights("new")
    cache.snapshot("bartowski/Foo-GGUF", OLD, {"Foo-Q4_K_M.gguf": old})
    if first == "old":
        assert list(rows_of(opened(data_root, home))) == ["foo-q4_k_m"]
    shown = cache.snapshot("bartowski/Foo-GGUF", NEW, {"Foo-Q4_K_M.gguf": new})
    library = opened(data_root, home)
    rows = rows_of(library)
    assert rows["foo-q4_k_m"].path.startswith(str(shown))
    assert rows["foo-q4_k_m"].title == "Foo-Q4_K_M"
    assert rows["foo-q4_k_m@0c1889a"].title == "Foo-Q4_K_M (revision 0c1889a)"
    assert sorted(rows) == ["foo-q4_k_m", "foo-q4_k_m@0c1889a"]
    assert sorted(rows_of(opened(data_root, home))) == sorted(rows), "and it stays so"


def test_revisions_of_one_content_are_one(data_root: DataRoot, home: Path) -> None:
    cache = HubCache(home / ".cache" / "huggingface" / "hub")
    cache.snapshot("o/Two", OLD, {"two.gguf": weights("two")}, ref="v1", links=False)
    cache.snapshot("o/Two", NEW, {"two.gguf": weights("two")}, links=False)
    (row,) = rows_of(opened(data_root, home)).values()
    assert (row.name, NEW in row.path, len(row.copies)) == ("two", True, 1)


def test_an_old_revision_alone_is_called_by_its_file(data_root: DataRoot, home: Path) -> None:
    cache = HubCache(home / ".cache" / "huggingface" / "hub")
    cache.snapshot("o/Pinned", OLD, {"pinned.gguf": weights("pinned")}, ref=None)
    assert list(rows_of(opened(data_root, home))) == ["pinned"]


def test_names_that_say_nothing_are_those_of_their_place(data_root: DataRoot, home: Path, short_tmp: Path) -> None:
    cache = HubCache(home / ".cache" / "huggingface" / "hub")
    for repository, file in (
        ("openbmb/MiniCPM-V-2_6-gguf", "ggml-model-Q4_K_M.gguf"),
        ("other/Thing-GGUF", "ggml-model-Q4_K_M.gguf"),
        ("third/Plain-gguf", "model.gguf"),
        ("fourth/Sub-gguf", "Q4_K_M/model-q4_k_m.gguf"),
        ("me/lora_model", "unsloth.Q8_0.gguf"),
        ("split/Big-GGUF", "model-00001-of-00001.gguf"),
    ):
        cache.snapshot(repository, NEW, {file: weights(repository)})
    jan = home / "jan" / "models"
    for name in ("Qwen3-4B-Q4_K_M", "janhq/Jan-v1-4B-Q8_0", "imported-one"):
        put(jan / name / "model.gguf")
    put(jan / "vision" / "model.gguf")
    put(jan / "vision" / "mmproj.gguf", projector())
    put(home / ".lmstudio" / "models" / "publisher" / "Some-7B-GGUF" / "ggml-model-f16.gguf")
    put(short_tmp / "Alone" / "model.gguf")
    rows = rows_of(opened(data_root, home, jan, short_tmp / "Alone"))
    assert sorted(rows) == [
        "alone", "big", "imported-one", "jan-v1-4b-q8_0", "lora_model-q8_0", "minicpm-v-2_6-q4_k_m", "plain",
        "qwen3-4b-q4_k_m", "some-7b-f16", "sub-q4_k_m", "thing-q4_k_m", "vision",
    ]  # fmt: skip
    assert rows["vision"].projector.endswith("mmproj.gguf")
    assert rows["minicpm-v-2_6-q4_k_m"].title == "MiniCPM-V-2_6-Q4_K_M"


def test_namesakes_say_where_they_came_from(data_root: DataRoot, home: Path, short_tmp: Path) -> None:
    cache = HubCache(home / ".cache" / "huggingface" / "hub")
    for owner in ("bartowski", "unsloth", "lmstudio-community"):
        cache.snapshot(f"{owner}/Foo-GGUF", NEW, {"Foo-Q4_K_M.gguf": weights(owner)})
    put(home / ".lmstudio" / "models" / "publisher" / "Foo-GGUF" / "Foo-Q4_K_M.gguf")
    put(home / ".local" / "share" / "nomic.ai" / "GPT4All" / "Foo-Q4_K_M.gguf")
    rows = rows_of(opened(data_root, home, home / ".local" / "share" / "nomic.ai" / "GPT4All"))
    assert sorted(rows) == [
        "foo-q4_k_m", "foo-q4_k_m@bartowski", "foo-q4_k_m@lmstudio-community", "foo-q4_k_m@publisher",
        "foo-q4_k_m@unsloth",
    ]  # fmt: skip
    assert rows["foo-q4_k_m@unsloth"].title == "Foo-Q4_K_M (unsloth)"


def test_the_cache_of_llama_cpp_is_one_flat_folder(data_root: DataRoot, home: Path) -> None:
    cache = home / ".cache" / "llama.cpp"
    put(cache / "ggml-org_gemma-3-1b-it-GGUF_gemma-3-1b-it-Q4_K_M.gguf")
    put(cache / "ggml-org_gemma-3-1b-it-GGUF_mmproj-model-f16.gguf", projector())
    put(cache / "ggml-org_gemma-3-1b-it-GGUF_gemma-3-1b-it-Q4_K_M.gguf.json", b"{}")
    put(cache / "unsloth_Foo-GGUF_Foo-Q4_0.gguf")
    put(cache / "openbmb_MiniCPM-V-2_6-gguf_ggml-model-Q4_K_M.gguf")
    rows = rows_of(opened(data_root, home, cache))
    assert {name: bool(row.projector) for name, row in rows.items()} == {
        "foo-q4_0": False,
        "gemma-3-1b-it-q4_k_m": True,
        "minicpm-v-2_6-q4_k_m": False,
    }


def test_without_a_ref_the_newest_revision_has_the_plain_name(data_root: DataRoot, home: Path) -> None:
    cache = HubCache(home / ".cache" / "huggingface" / "hub")
    newest = cache.snapshot("o/Foo-GGUF", OLD, {"foo.gguf": weights("new")}, ref=None)
    other = cache.snapshot("o/Foo-GGUF", NEW, {"foo.gguf": weights("old")}, ref=None)
    os.utime(other, (1, 1))
    rows = rows_of(opened(data_root, home))
    assert sorted(rows) == ["foo", "foo@bbbbbbb"]
    assert rows["foo"].path.startswith(str(newest))


def test_what_was_picked_before_the_names_changed_is_still_found(data_root: DataRoot, home: Path) -> None:
    """As after an upgrade: the cache remembers names of another rule, and an editor holds one of them."""
    jan = home / "jan"
    for name in ("One", "Two"):
        put(jan / name / "model.gguf")
    first = opened(data_root, home, jan)
    digests = {row.name: row.digest for row in first.rows()}
    first.close()
    content = cachefile.read(data_root.library_cache)
    paths = {row.name: row.path for row in first.rows()}
    mark = digests["two"].rpartition("-")[2][:6]
    before = names.remember(
        {}, [(paths["one"], digests["one"], "model"), (paths["two"], digests["two"], f"model@{mark}")]
    )
    content.names = before
    cachefile.write(data_root.library_cache, content)
    for _ in range(2):  # the second time the new names are what the cache remembers
        library = opened(data_root, home, jan)
        assert sorted(rows_of(library)) == ["one", "two"]
        assert library.find("model", WAIT).digest == digests["one"]
        assert library.find(f"model@{mark}", WAIT).digest == digests["two"]
        library.close()


def test_a_projector_by_any_spelling_is_paired(data_root: DataRoot, home: Path, short_tmp: Path) -> None:
    folder = short_tmp / "vl"
    for quant in ("Q4_K_M", "Q8_0"):
        put(folder / "a" / f"Qwen2-VL-7B.{quant}.gguf")
        put(folder / "b" / f"mm-{quant}.gguf")
    put(folder / "a" / "Qwen2-VL-7B.mmproj-fp16.gguf", projector())
    put(folder / "b" / "mmproj-fp16.gguf", projector())
    assert all(row.projector for row in rows_of(opened(data_root, home, folder)).values())


def test_lm_studios_moved_folder(data_root: DataRoot, home: Path, short_tmp: Path) -> None:
    put(short_tmp / "moved" / "pub" / "Moved-GGUF" / "Moved-Q4_0.gguf")
    put(home / ".lmstudio" / "settings.json", f'{{"downloadsFolder": "{short_tmp / "moved"}"}}'.encode())
    assert list(rows_of(opened(data_root, home))) == ["moved-q4_0"]
