"""Files become models: parts, projectors, adapters, copies."""

from __future__ import annotations

from typing import Any

import pytest

from shared.catalog import names
from shared.catalog.entry import Facts, ModelEntry, entry_from_facts
from shared.catalog.find import match
from shared.catalog.group import FileRecord, Found, entries
from shared.catalog.scan import Candidate

pytestmark = pytest.mark.unit


def found(path: str, *, source: Any = "folder", hint: str = "", role: str = "", **facts: Any) -> Found:
    folder, _, file = path.rpartition("/")
    digest = facts.pop("digest", f"fp1-{abs(hash(file)):032x}"[:36])
    fault, sha256 = facts.pop("fault", ""), facts.pop("sha256", "")
    known: dict[str, Any] = {"architecture": "llama", "complete": True, "n_embd": 64} | facts
    candidate = Candidate(
        path=path, source=source, format="gguf", signature="s", size=10, group=folder, hint=hint, role=role
    )
    record = FileRecord(path=path, signature="s", facts=Facts(**known), digest=digest, fault=fault, sha256=sha256)
    return Found(candidate, record)


def listed(*items: Found, **options: Any) -> dict[str, ModelEntry]:
    return {entry.name: entry for entry in entries(items, options.pop("known", {}), **options)}


def test_split_parts_are_one_model() -> None:
    parts = [
        found(f"/m/big-0000{n}-of-00003.gguf", weights_bytes=n, parameters=n, tensor_types={"F16": n})
        for n in (3, 1, 2)
    ]
    entry = listed(*parts)["big"]
    assert entry.path == "/m/big-00001-of-00003.gguf"
    assert entry.shards == tuple(f"/m/big-0000{n}-of-00003.gguf" for n in (1, 2, 3))
    assert (entry.weights_bytes, entry.parameters, entry.size_bytes) == (6, 6, 30)
    assert entry.tensor_types == {"F16": 6}
    assert entry.backends == ("llama",)
    assert entry.title == "big"
    assert entry.digest.startswith("fp1-")


def test_a_missing_part_is_named() -> None:
    entry = listed(found("/m/big-00001-of-00003.gguf"), found("/m/big-00003-of-00003.gguf"))["big"]
    assert entry.problem == "part 2 of 3 is missing"
    assert entry.backends == ()


def test_a_broken_part_breaks_the_model() -> None:
    entry = listed(found("/m/big-00001-of-00002.gguf"), found("/m/big-00002-of-00002.gguf", fault="cut"))["big"]
    assert entry.problem == "cut"


def test_a_renamed_part_is_no_model() -> None:
    assert "part 2 of 3" in listed(found("/m/big.gguf", split=(1, 3)))["big"].problem


def test_parts_of_two_folders_stay_apart() -> None:
    rows = listed(found("/m/x-00001-of-00002.gguf"), found("/n/x-00002-of-00002.gguf"))
    assert all("missing" in entry.problem for entry in rows.values())
    assert len(rows) == 2


def test_a_projector_beside_one_model_makes_it_see() -> None:
    rows = listed(
        found("/m/a/gemma.Q4_0.gguf"), found("/m/a/mmproj-model-f16.gguf", kind="projector", quantization="F16")
    )
    assert list(rows) == ["gemma-q4_0"]
    entry = rows["gemma-q4_0"]
    assert (entry.vision, entry.projector) == (True, "/m/a/mmproj-model-f16.gguf")
    assert entry.parts == ("/m/a/gemma.Q4_0.gguf", "/m/a/mmproj-model-f16.gguf")


def test_the_half_precision_projector_is_taken() -> None:
    projectors = [found(f"/m/a/mmproj-{q}.gguf", kind="projector", quantization=q) for q in ("F32", "Q8_0", "F16")]
    assert listed(found("/m/a/gemma.gguf"), *projectors)["gemma"].projector == "/m/a/mmproj-F16.gguf"


def test_a_projector_of_another_width_is_not_taken() -> None:
    rows = listed(found("/m/a/gemma.gguf"), found("/m/a/mmproj-f16.gguf", kind="projector", n_embd=128))
    assert rows["gemma"].projector == ""


def test_in_the_flat_store_a_projector_must_carry_the_models_name() -> None:
    files = [found(f"/s/{name}.gguf", source="store") for name in ("gemma-3-4b-q4_0", "qwen2.5-vl-q4_0")]
    generic = found("/s/mmproj-f16.gguf", source="store", kind="projector")
    named = found("/s/mmproj-qwen2.5-vl-f16.gguf", source="store", kind="projector")
    rows = listed(*files, generic, named)
    assert rows["qwen2.5-vl-q4_0"].projector == "/s/mmproj-qwen2.5-vl-f16.gguf"
    assert rows["gemma-3-4b-q4_0"].projector == ""


def test_a_projector_alone_is_listed_as_what_it_is() -> None:
    entry = listed(found("/m/mmproj-f16.gguf", kind="projector", architecture="clip"))["mmproj-f16"]
    assert entry.backends == ()
    assert "projector" in entry.problem


def test_adapters_are_offered_to_models_of_their_architecture() -> None:
    rows = listed(
        found("/m/base.gguf"),
        found("/m/other.gguf", architecture="qwen2"),
        found("/m/style-lora.gguf", kind="adapter"),
    )
    assert rows["base"].available_adapters == ("/m/style-lora.gguf",)
    assert rows["other"].available_adapters == ()
    assert rows["style-lora"].backends == ()


def test_copies_are_one_row_under_the_first_place() -> None:
    places = [("/h/m.gguf", "huggingface"), ("/s/m.gguf", "store"), ("/l/m.gguf", "lmstudio")]
    rows = listed(*(found(path, source=source, digest="fp1-same") for path, source in places))
    assert list(rows) == ["m"]
    assert rows["m"].path == "/s/m.gguf"
    assert rows["m"].copies == ("/l/m.gguf", "/h/m.gguf")


def test_a_model_keeps_its_name_when_a_copy_of_another_name_comes_before_it() -> None:
    """As when it is pulled: the store comes first, and a picker's value must not change."""
    cached = found("/h/Picked.gguf", source="huggingface", digest="fp1-same")
    pulled = found("/s/other-name.gguf", source="store", digest="fp1-same")
    known: dict[str, str] = {}
    for items in ((cached,), (cached, pulled), (pulled,)):  # at last the cache is cleared
        (entry,) = entries(items, known)
        assert entry.name == "picked"
        known = names.remember(known, [(entry.path, entry.digest, entry.name)])
    assert entry.path == "/s/other-name.gguf"
    (changed,) = entries([found("/s/other-name.gguf", source="store", digest="fp1-new")], known)
    assert changed.name == "other-name", "another content is another model"


def test_a_tag_that_was_given_another_name_is_called_by_it() -> None:
    known = names.remember({}, [("/o/sha256-1", "fp1-same", "first")])
    (entry,) = entries([found("/o/sha256-1", source="ollama", hint="second", digest="fp1-same")], known)
    assert entry.name == "second"


def test_one_fingerprint_with_two_checksums_is_two_models() -> None:
    rows = listed(found("/a/m.gguf", digest="fp1-same", sha256="1"), found("/b/m.gguf", digest="fp1-same", sha256="2"))
    assert len(rows) == 2


def test_two_files_of_one_name_have_two_names() -> None:
    rows = listed(found("/a/m.gguf", digest="fp1-111111aa"), found("/b/m.gguf", digest="fp1-222222bb"))
    assert set(rows) == {"m", "m@222222"}
    assert rows["m@222222"].title == "m (222222)"


def test_a_missing_copy_leaves_the_name_with_the_other() -> None:
    both = [found("/a/m.gguf", digest="fp1-same"), found("/b/m.gguf", digest="fp1-same")]
    known = {"p:/a/m.gguf": "m", "d:fp1-same": "m"}
    assert list(listed(both[1], known=known)) == ["m"]


def test_rejected_files_are_rows_with_a_reason() -> None:
    entry = listed(found("/m/page.gguf", fault="this is a web page", architecture=""))["page"]
    assert (entry.problem, entry.backends) == ("this is a web page", ())


def test_own_files_are_marked() -> None:
    rows = listed(found("/s/m.gguf"), found("/s/n.gguf"), own=frozenset({"/s/m.gguf"}))
    assert (rows["m"].own, rows["n"].own) == (True, False)


def test_titles_are_written_as_the_file_is() -> None:
    entry = listed(found("/m/SmolLM2-135M-Instruct.Q4_1.gguf", title="Smollm2 135M 8k Lc100K Mix1 Ep2"))
    assert entry["smollm2-135m-instruct-q4_1"].title == "SmolLM2-135M-Instruct Q4_1"


def test_facts_go_to_the_worker_and_back() -> None:
    entry = listed(found("/m/m.gguf", template="{{ x }}", fim=(1, 2, 3)))["m"]
    assert entry_from_facts(entry.facts()) == entry
    assert entry.facts()["path"] == "/m/m.gguf"


@pytest.mark.parametrize("wanted", ["m", "M", "/a/m.gguf", "fp1-abcdef99", "m@abcdef", "m@abcdef99"])
def test_what_finds_a_model(wanted: str) -> None:
    rows = list(listed(found("/a/m.gguf", digest="fp1-abcdef99")).values())
    assert match(wanted, rows) == rows[0]


@pytest.mark.parametrize("wanted", ["", "m@", "m@abc", "m@000000", "mm", "a/m.gguf"])
def test_what_finds_none(wanted: str) -> None:
    rows = list(listed(found("/a/m.gguf", digest="fp1-abcdef99")).values())
    assert match(wanted, rows) is None
