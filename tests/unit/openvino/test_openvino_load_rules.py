"""What a load may ask for, what a sampling becomes, and what a cache folder must be."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from modeld.engine.contract import DecodeOptions, LoadRequest
from modeld.engine.openvino import convert
from modeld.engine.openvino.convert import Conversion, is_whole, sweep
from modeld.engine.openvino.library import reason_of
from modeld.engine.openvino.options import generation_config
from modeld.engine.openvino.planning import make_plan, refuse_unsupported
from modeld.engine.openvino.tokenizer_limit import find_limits, lift_limit
from shared.catalog.identity import RequestedIdentity
from shared.errors import ModelLoadFailed, UnsupportedFeature

pytestmark = pytest.mark.unit
GENAI = SimpleNamespace(GenerationConfig=SimpleNamespace, StructuredOutputConfig=SimpleNamespace)
END = frozenset({2})


def request(facts: dict[str, Any] | None = None, parked: int = 0, **asked: Any) -> LoadRequest:
    identity = RequestedIdentity(backend="openvino", name="m", digest="d", path="/m.gguf", **asked)
    return LoadRequest(identity=identity, model=facts or {}, num_ctx=1000, parked_bytes=parked)


@pytest.mark.parametrize(
    "asked",
    [
        {"device": "GPU.7"},
        {"kv_type": "q4_0"},
        {"num_batch": 100},
        {"num_batch": 0},
        {"adapters": ("a.gguf",)},
        {"gpu_layers": 10},
        {"tensor_split": (0.5, 0.5)},
        {"flash_attention": False},
    ],
)
def test_an_explicit_value_that_cannot_be_had_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedFeature):
        refuse_unsupported(request(**asked), ("CPU",))


def test_explicit_values_that_can_be_had_are_used() -> None:
    wanted = request(device="CPU", kv_type="u8", num_batch=128, gpu_layers=0, flash_attention=True)
    refuse_unsupported(wanted, ("CPU",))
    plan = make_plan(wanted, threads=3)
    assert (plan.kv_type, plan.batch, plan.threads, plan.lanes) == ("u8", 128, 3, 1)
    assert plan.blocks * 32 >= 1000


FACTS = {
    "name": "m",
    "path": "/m.gguf",
    "source": "folder",
    "format": "gguf",
    "architecture": "llama",
    "n_layers": 2,
    "kv": [[2, 64, 64, 0]],
    "tensor_types": {"Q4_0": 10},
    "complete": True,
}


def test_lanes_follow_the_parking_budget() -> None:
    one = 2 * (64 + 64) * 2 * 1000
    assert make_plan(request(FACTS), 1).lanes == 1
    assert make_plan(request(FACTS, parked=int(one * 2.2)), 1).lanes == 3
    assert make_plan(request(FACTS, parked=one * 100), 1).lanes == 4


@pytest.mark.parametrize("change", [{"architecture": "gemma3"}, {"tensor_types": {"Q8_1": 1}}, {"kind": "projector"}])
def test_a_model_it_cannot_read_is_refused_before_any_native_code(change: dict[str, Any]) -> None:
    with pytest.raises(ModelLoadFailed) as failed:
        refuse_unsupported(request({**FACTS, **change}), ("CPU",))
    assert failed.value.stage == "header"


def test_greedy_and_drawn_options() -> None:
    greedy = generation_config(GENAI, DecodeOptions(max_tokens=5), END)
    assert (greedy.do_sample, greedy.max_new_tokens, greedy.stop_token_ids) == (False, 5, {2})
    options = DecodeOptions(max_tokens=5, temperature=0.7, top_k=40, top_p=0.9, min_p=1.0, seed=3)
    drawn = generation_config(GENAI, options, END)
    assert (drawn.do_sample, drawn.temperature, drawn.top_k, drawn.top_p, drawn.rng_seed) == (True, 0.7, 40, 0.9, 3)
    assert drawn.min_p < 1
    assert not hasattr(generation_config(GENAI, DecodeOptions(max_tokens=1, temperature=1.0), END), "top_k")


def test_a_warm_up_samples_one_token_at_most() -> None:
    config = generation_config(GENAI, None, END)
    assert (config.max_new_tokens, config.do_sample) == (1, False)


def test_a_bias_is_refused_and_not_dropped() -> None:
    with pytest.raises(UnsupportedFeature, match="logit_bias"):
        generation_config(GENAI, DecodeOptions(max_tokens=1, logit_bias=((1, 2.0),)), END)


def described(folder: Path, source: Path, runtime: str = "r1") -> Path:
    folder.mkdir(parents=True)
    for name in convert._FILES:
        (folder / name).write_bytes(name.encode())
    value = Conversion(
        version=convert.VERSION,
        runtime=runtime,
        source=str(source),
        source_size=source.stat().st_size,
        digest=convert._digest(folder),
    )
    (folder / convert.DESCRIPTION).write_bytes(msgspec.json.encode(value))
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"x" * 100)
    return path


def test_a_conversion_is_trusted_only_while_nothing_changed(tmp_path: Path, source: Path) -> None:
    folder = described(tmp_path / "cache" / "d", source)
    assert is_whole(folder, "r1", source)
    assert not is_whole(folder, "r2", source)
    (folder / "openvino_model.bin").write_bytes(b"changed")
    assert not is_whole(folder, "r1", source)


@pytest.mark.parametrize("damage", ["gone", "garbage", "part"])
def test_a_damaged_conversion_is_recreated(tmp_path: Path, source: Path, damage: str) -> None:
    folder = described(tmp_path / "cache" / "d", source)
    if damage == "gone":
        (folder / convert.DESCRIPTION).unlink()
    elif damage == "garbage":
        (folder / convert.DESCRIPTION).write_bytes(b"\xff{")
    else:
        (folder / "openvino_tokenizer.bin").unlink()
    assert not is_whole(folder, "r1", source)


def test_of_two_processes_that_convert_the_second_leaves_what_the_first_made(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "lift_limit", lambda work: None)
    first = described(tmp_path / "cache" / "d", source)
    before = first.stat().st_ino
    second = described(tmp_path / "cache" / "d.1-x.tmp", source)
    assert convert._place(second, first, "r1", source, "m") == first
    assert first.stat().st_ino == before
    (first / "openvino_model.bin").write_bytes(b"half")
    assert convert._place(second, first, "r1", source, "m") == first
    assert first.stat().st_ino != before, "what is damaged is replaced"


def test_a_file_of_another_size_is_another_model(tmp_path: Path, source: Path) -> None:
    folder = described(tmp_path / "cache" / "d", source)
    source.write_bytes(b"longer" * 100)
    assert not is_whole(folder, "r1", source)


def test_sweeping_takes_what_is_ours_and_stale_and_nothing_else(tmp_path: Path, source: Path) -> None:
    cache = tmp_path / "cache"
    described(cache / "good", source)
    described(cache / "old-engine", source, runtime="r0")
    gone = tmp_path / "gone.gguf"
    gone.write_bytes(b"y")
    described(cache / "source-gone", gone)
    gone.unlink()
    (cache / "foreign").mkdir()
    (cache / "foreign" / "letters.txt").write_text("mine")
    (cache / "d.1.tmp").mkdir()
    (cache / "d.2.tmp").mkdir()
    os.utime(cache / "d.1.tmp", (0, 0))
    assert sorted(sweep(cache, "r1")) == ["d.1.tmp", "old-engine", "source-gone"]
    assert sorted(folder.name for folder in cache.iterdir()) == ["d.2.tmp", "foreign", "good"]


TOKENIZER = """<?xml version="1.0"?><net><layers>
<layer id="0" type="Const"><data element_type="i32" offset="4" size="4"/></layer>
<layer id="1" type="Const"><data element_type="i32" offset="0" size="4"/></layer>
<layer id="2" type="Minimum"/><layer id="3" type="Add"/>
</layers><edges><edge from-layer="0" to-layer="2"/><edge from-layer="1" to-layer="3"/></edges></net>"""


def test_the_limit_of_a_tokenizer_is_lifted_and_nothing_else_touched(tmp_path: Path) -> None:
    (tmp_path / "openvino_tokenizer.xml").write_text(TOKENIZER)
    (tmp_path / "openvino_tokenizer.bin").write_bytes(
        (7).to_bytes(4, "little") + (8192).to_bytes(4, "little") + b"rest"
    )
    assert find_limits(tmp_path) == [(4, 4, 8192)]
    assert lift_limit(tmp_path) == [8192]
    assert find_limits(tmp_path) == []
    data = (tmp_path / "openvino_tokenizer.bin").read_bytes()
    assert data == (7).to_bytes(4, "little") + (2**31 - 1).to_bytes(4, "little") + b"rest"


def test_native_messages_are_reported_without_the_paths_of_their_build() -> None:
    error = RuntimeError("Check 'x' failed at /ci/openvino.genai/src/cpp/src/gguf.cpp:84:\n[load_gguf] it failed\n\n")
    assert reason_of(error) == "[load_gguf] it failed"
    assert reason_of(RuntimeError()) == "RuntimeError"
