"""Real loads: what the first costs the next, what agrees with llama.cpp, and files that are no models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from openvino_bench import Bench, request_for

from modeld.engine.contract import Aborted, AbortFlag, DecodeOptions, LoadedModel
from modeld.engine.openvino import convert
from modeld.engine.openvino.engine import OpenVinoEngine
from shared.errors import ModelLoadFailed, UnsupportedFeature

pytestmark = [pytest.mark.integration, pytest.mark.model, pytest.mark.timeout(300)]
TEXTS = [
    "What is the capital of France?",
    "é 日本語 🎉 \u200b naïve",
    "a < b | c > d <| x |> <im_start>",
    "  indented\n\n\tand\ttabbed  \n",
    "1234567890 3.14 1,000,000",
    "def f(x):\n    return {'a': x}  # don't",
    "",
]


def loaded(path: Path, *, vocabulary_only: bool = False, **asked: object) -> tuple[OpenVinoEngine, LoadedModel]:
    engine = OpenVinoEngine(AbortFlag())
    engine.prepare()
    request = msgspec.structs.replace(request_for(path, **asked), vocabulary_only=vocabulary_only)
    return engine, engine.load(request, lambda done, of: None)


def test_a_model_is_converted_once_and_never_beside_its_file(bench: Bench, smollm2: Path, root: Path) -> None:
    del bench
    (folder,) = (root / "cache" / "openvino").iterdir()
    made = (folder / convert.DESCRIPTION).stat().st_mtime_ns
    engine, model = loaded(smollm2, vocabulary_only=True)
    engine.close()
    assert not [one for one in model.warnings if "converted" in one]
    assert (folder / convert.DESCRIPTION).stat().st_mtime_ns == made
    assert [path.name for path in smollm2.parent.iterdir() if path.suffix in (".xml", ".bin")] == []
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_an_ir_folder_is_loaded_as_it_is(bench: Bench, root: Path) -> None:
    (folder,) = (root / "cache" / "openvino").iterdir()
    engine, model = loaded(folder, name="ir")
    try:
        assert model.template == bench.loaded.template
        prompt = bench.render({"role": "user", "content": TEXTS[0]})
        engine.ensure_prefix(prompt)
        engine.prefill_suffix(DecodeOptions(max_tokens=8), lambda done, of: None)
        assert list(engine.decode(DecodeOptions(max_tokens=8))) == bench.ask(prompt, DecodeOptions(max_tokens=8))
        engine.end_turn()
    finally:
        engine.close()


def test_tokens_and_bytes_agree_with_llama_cpp(bench: Bench, smollm2: Path) -> None:
    from modeld.engine.llama.engine import LlamaEngine

    other = LlamaEngine(AbortFlag())
    other.prepare()
    request = request_for(smollm2, backend="llama")
    other.load(msgspec.structs.replace(request, vocabulary_only=True), lambda done, of: None)
    try:
        for text in [*TEXTS, bench.template.render([{"role": "user", "content": one} for one in TEXTS if one])]:
            for special in (True, False):
                ours = bench.engine.tokenize(text, special=special)
                theirs = other.tokenize(text, special=special)
                assert len(ours) == len(theirs), (text, special)
                assert b"".join(bench.engine.piece(one, special=True) for one in ours) == text.encode()
            assert bench.engine.tokenize(text, special=True) == other.tokenize(text, special=True), text
        assert bench.engine.special.add_bos == other.special.add_bos
        assert bench.engine.special.end == other.special.end
        assert bench.engine.special.bos == other.special.bos
    finally:
        other.close()


def test_a_long_text_is_counted_whole(bench: Bench) -> None:
    assert len(bench.engine.tokenize("word " * 20_000, special=False)) >= 20_000


def test_a_schema_holds_by_construction(bench: Bench) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    options = DecodeOptions(max_tokens=60, json_schema=json.dumps(schema))
    answer = bench.ask(bench.render({"role": "user", "content": "Give me a number."}), options)
    assert answer is not None
    assert isinstance(json.loads(bench.text(answer))["n"], int)


def test_a_broken_schema_is_refused_and_the_next_turn_works(bench: Bench) -> None:
    prompt = bench.render({"role": "user", "content": "Hello."})
    with pytest.raises(UnsupportedFeature, match="json_schema"):
        bench.ask(prompt, DecodeOptions(max_tokens=4, json_schema='{"type":'))
    assert bench.engine.valid()
    assert bench.ask(prompt)


@pytest.mark.parametrize("part", [0.0001, 0.004, 0.02, 0.3, 0.999])
def test_a_truncated_file_is_refused_before_native_code_sees_it(
    smollm2: Path, tmp_path: Path, root: Path, part: float
) -> None:
    del root
    cut = tmp_path / "cut.gguf"
    data = smollm2.read_bytes()
    cut.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(ModelLoadFailed) as failed:
        loaded(cut)
    assert failed.value.stage == "header"


@pytest.mark.parametrize("kind", ["missing", "page", "empty", "folder"])
def test_what_is_no_model_is_refused_with_its_stage(tmp_path: Path, root: Path, kind: str) -> None:
    path = tmp_path / "m.gguf"
    if kind == "page":
        path.write_text("<!DOCTYPE html><html></html>")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(ModelLoadFailed) as failed:
        loaded(path)
    assert failed.value.stage in ("header", "weights")
    assert failed.value.reason
    assert not list((root / "cache" / "openvino").glob("*.tmp"))


def test_a_file_of_another_family_is_refused(gemma3: Path, root: Path) -> None:
    with pytest.raises(ModelLoadFailed) as failed:
        loaded(gemma3)
    assert failed.value.stage in ("header", "weights")
    assert [one.name for one in (root / "cache" / "openvino").glob("*gemma*")] == []


def test_a_broken_ir_folder_is_refused(bench: Bench, root: Path, tmp_path: Path) -> None:
    del bench
    (folder,) = [one for one in (root / "cache" / "openvino").iterdir() if "SmolLM2" in one.name]
    copy = shutil.copytree(folder, tmp_path / "ir")
    (copy / "openvino_model.xml").write_text("<net>")
    with pytest.raises(ModelLoadFailed) as failed:
        loaded(copy, name="ir")
    assert failed.value.stage in ("context", "weights")


def test_a_load_is_given_up_between_its_stages(smollm2: Path, root: Path) -> None:
    del root
    abort = AbortFlag()
    engine = OpenVinoEngine(abort)
    engine.prepare()
    with pytest.raises(Aborted):
        engine.load(request_for(smollm2), lambda done, of: abort.set())


def test_what_is_not_offered_says_so(bench: Bench) -> None:
    with pytest.raises(UnsupportedFeature):
        bench.engine.embed([[1]])
    assert bench.engine.trim_parked(0) == 0
    assert bench.engine.measure().rss_bytes > 0
    assert bench.loaded.measured_bytes > 0
