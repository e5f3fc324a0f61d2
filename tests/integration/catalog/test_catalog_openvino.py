"""OpenVINO folders: optimum's exports, what GenAI saves from a GGUF, and broken ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.catalog.entry import KvSpan, ModelEntry
from shared.catalog.formats.openvino import read_folder
from shared.catalog.formats.window import HeaderRejected
from shared.catalog.library import Library
from shared.paths import DataRoot
from shared.settings import Settings

pytestmark = pytest.mark.integration

CONFIG = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "num_hidden_layers": 3,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "vocab_size": 151936,
    "sliding_window": 4096,
    "layer_types": ["sliding_attention", "full_attention", "full_attention"],
    "bos_token_id": 5,
    "eos_token_id": 6,
}
VARIABLE = (
    '<layer id="{n}" type="ReadValue"><data variable_id="past_key_values.{n}.{kind}present.{n}.key" '
    'variable_type="f32" variable_shape="?,2,?,{width}" /></layer>\n'
)


def xml(layers: int = 0, extent: int = 64, end: str = "</net>\n", mode: str = "") -> str:
    body = [f'<data element_type="f32" shape="1" offset="0" size="{extent}" />\n']
    for layer in range(layers):
        body.append(VARIABLE.format(n=layer, kind="key", width=32))
        body.append(VARIABLE.format(n=layer, kind="value", width=48))
    info = (
        f'<rt_info><nncf><weight_compression><mode value="{mode}" /></weight_compression></nncf></rt_info>'
        if mode
        else ""
    )
    return f'<?xml version="1.0"?>\n<net name="Model0" version="11">\n{"".join(body)}{info}{end}'


def folder(path: Path, *, size: int = 64, model: str | None = None, config: Any = CONFIG, **files: str) -> Path:
    path.mkdir(parents=True)
    (path / "openvino_model.xml").write_text(xml() if model is None else model)
    (path / "openvino_model.bin").write_bytes(bytes(size))
    (path / "openvino_tokenizer.xml").write_text("<net></net>")
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    for name, content in files.items():
        (path / name.replace("__", ".")).write_text(content)
    return path


def test_an_export_of_optimum(tmp_path: Path) -> None:
    template = {
        "chat_template": "{{ tools }}<think>",
        "bos_token": {"content": "<b>"},
        "eos_token": "<e>",
        "add_bos_token": False,
    }
    generation = {"eos_token_id": [7, 6], "pad_token_id": 9, "do_sample": True, "temperature": 0.6, "top_k": 20}
    path = folder(
        tmp_path / "Qwen3-0.6B-int4-ov",
        model=xml(mode="int4_asym"),
        tokenizer_config__json=json.dumps(template),
        generation_config__json=json.dumps(generation),
    )
    facts = read_folder(str(path))
    assert (facts.architecture, facts.quantization, facts.context_train) == ("qwen3", "INT4", 40960)
    assert (facts.n_layers, facts.n_heads, facts.n_kv_heads, facts.head_dim_k) == (3, 16, 8, 128)
    assert facts.kv == (KvSpan(1, 1024, 1024, 4096), KvSpan(2, 1024, 1024))
    assert (facts.tools, facts.thinking, facts.complete, facts.unusable) == (True, True, True, "")
    assert facts.sampling == {"temperature": 0.6, "top_k": 20.0}
    tokens = facts.tokens
    assert (tokens.bos, tokens.eos, tokens.extra_eos, tokens.pad, tokens.add_bos) == (5, 7, (6,), 9, False)
    assert tokens.texts == {5: "<b>", 7: "<e>"}


def test_first_rows_do_not_read_the_graph(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", model="never parsed")
    assert not read_folder(str(path), first=True).complete
    with pytest.raises(HeaderRejected):
        read_folder(str(path))


def test_what_genai_saves_from_a_gguf(tmp_path: Path) -> None:
    reported = {"bos_token_id": "1", "chat_template": "{{ &quot;a&lt;b&quot; }}&#10;", "eos_token_id": "2"}
    info = "".join(f'<{key} value="{value}" />' for key, value in reported.items())
    path = folder(tmp_path / "m", model=xml(layers=2), config=None)
    (path / "openvino_tokenizer.xml").write_text(f"<net><rt_info>{info}</rt_info></net>")
    facts = read_folder(str(path))
    assert facts.template == '{{ "a<b" }}\n'
    assert facts.kv == (KvSpan(2, 64, 96),)
    assert (facts.n_layers, facts.tokens.bos, facts.tokens.eos) == (2, 1, 2)


@pytest.mark.parametrize("name", ["chat_template.jinja", "chat_template.json"])
def test_templates_of_their_own_file_come_first(tmp_path: Path, name: str) -> None:
    own = "own" if name.endswith("jinja") else json.dumps({"chat_template": "own"})
    path = folder(tmp_path / "m", tokenizer_config__json=json.dumps({"chat_template": "other"}))
    (path / name).write_text(own)
    assert read_folder(str(path)).template == "own"


def test_the_default_of_several_templates(tmp_path: Path) -> None:
    several = [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]
    path = folder(tmp_path / "m", tokenizer_config__json=json.dumps({"chat_template": several}))
    assert read_folder(str(path)).template == "d"


def test_embedders_are_distinguished(tmp_path: Path) -> None:
    assert read_folder(str(folder(tmp_path / "e", config={"model_type": "bert"}))).embedding_only
    assert read_folder(str(folder(tmp_path / "s", modules__json="[]"))).embedding_only


SEVERAL = ("language", "text_embeddings", "vision_embeddings")
INPUT = (
    '<layer id="{n}" name="{name}" type="Parameter" version="opset1">\n<data shape="{shape}" element_type="i64" />\n'
    '<output>\n<port id="0" precision="I64" names="{name}">\n'
)
INPUTS = {"inputs_embeds": "?,?,1024", "attention_mask": "?,?", "position_ids": "?,?", "beam_idx": "?"}
VISION_CONFIG = {
    "model_type": "internvl_chat",
    "eos_token_id": None,
    "llm_config": {**{key: value for key, value in CONFIG.items() if key != "model_type"}, "model_type": "qwen2"},
}


def listed(data_root: DataRoot) -> list[ModelEntry]:
    """The library as it is now."""
    library = Library(data_root, Settings(), {"HOME": "/nowhere"})
    assert library.wait(15)
    return list(library.rows())


def several(path: Path, *, inputs: dict[str, str] = INPUTS, graphs: tuple[str, ...] = SEVERAL) -> Path:
    """A folder of several graphs, the language's with `inputs`."""
    folder(path, config=VISION_CONFIG)
    asked = "".join(INPUT.format(n=n, name=name, shape=shape) for n, (name, shape) in enumerate(inputs.items()))
    for graph in graphs:
        text = xml(layers=3).replace("<data ", f"{asked}<data ", 1) if graph == "language" else xml()
        (path / f"openvino_{graph}_model.xml").write_text(text)
        (path / f"openvino_{graph}_model.bin").write_bytes(bytes(64))
    (path / "openvino_model.xml").unlink()
    (path / "openvino_model.bin").unlink()
    return path


def test_a_folder_of_several_graphs_is_one_model_that_sees(tmp_path: Path, data_root: DataRoot) -> None:
    facts = read_folder(str(several(tmp_path / "m")))
    assert (facts.unusable, facts.vision, facts.takes_rows) == ("", True, True)
    assert (facts.architecture, facts.context_train, facts.n_embd) == ("internvl_chat", 40960, 1024)
    assert (facts.kv, facts.weights_bytes) == ((KvSpan(1, 64, 96, 4096), KvSpan(2, 64, 96)), 3 * 64)
    assert (facts.tokens.bos, facts.tokens.eos) == (5, 6)
    path = several(data_root.models / "Seer")
    (row,) = listed(data_root)
    assert (row.problem, row.backends, row.vision, row.path) == ("", ("openvino",), True, str(path))
    before = row.digest
    (path / "openvino_vision_embeddings_model.bin").write_bytes(bytes(63) + b"x")
    (row,) = listed(data_root)
    assert row.digest not in ("", before), "other eyes are another model"
    (path / "openvino_vision_embeddings_model.bin").write_bytes(bytes(63))
    (row,) = listed(data_root)
    assert "openvino_vision_embeddings_model.bin has 63 bytes" in row.problem


@pytest.mark.parametrize(
    ("inputs", "graphs", "why"),
    [
        ({**INPUTS, "token_type_ids": "?,?"}, SEVERAL, ""),
        ({**INPUTS, "per_layer_inputs": "?,?,2,8"}, SEVERAL, "per_layer_inputs"),
        ({**INPUTS, "position_ids": "3,?,?"}, SEVERAL, "positions have several parts"),
        ({"input_ids": "?,?"}, SEVERAL, "input_ids"),
        ({}, SEVERAL, "inputs_embeds"),
        (INPUTS, ("language", "vision_embeddings"), "openvino_text_embeddings_model.xml is missing"),
        (INPUTS, ("language", "text_embeddings"), "openvino_vision_embeddings_model.xml is missing"),
    ],
)
def test_several_graphs_that_do_not_fit_what_the_engine_takes_say_why(
    tmp_path: Path, inputs: dict[str, str], graphs: tuple[str, ...], why: str
) -> None:
    unusable = read_folder(str(several(tmp_path / "m", inputs=inputs, graphs=graphs))).unusable
    assert why in unusable
    assert bool(why) == bool(unusable)
    assert read_folder(str(tmp_path / "m"), first=True).complete is False


def test_a_folder_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    path = folder(tmp_path / "m")
    (path / "openvino_tokenizer.xml").unlink()
    assert "openvino_tokenizer.xml" in read_folder(str(path)).unusable


@pytest.mark.parametrize(
    ("size", "model", "config", "fault"),
    [
        (63, xml(), "{}", "truncated"),
        (64, xml(end=""), "{}", "truncated"),
        (64, xml(), "{", "malformed"),
        (64, xml(), "[" * 100_000, "malformed"),
        (64, xml() + " " * (33 << 20), "{}", "limit"),
    ],
)
def test_broken_folders_are_rejected(tmp_path: Path, size: int, model: str, config: str, fault: str) -> None:
    path = folder(tmp_path / "m", size=size, model=model)
    (path / "config.json").write_text(config)
    with pytest.raises(HeaderRejected) as caught:
        read_folder(str(path))
    assert caught.value.fault == fault


@pytest.mark.parametrize("name", ["openvino_model.xml", "openvino_model.bin"])
def test_half_a_folder_is_rejected(tmp_path: Path, name: str) -> None:
    path = folder(tmp_path / "m")
    (path / name).unlink()
    with pytest.raises(HeaderRejected, match=name):
        read_folder(str(path))


def test_odd_configs_are_read_without_trust(tmp_path: Path) -> None:
    odd = {"num_hidden_layers": -1, "hidden_size": "big", "head_dim": 1e9, "eos_token_id": "x", "text_config": [1]}
    assert read_folder(str(folder(tmp_path / "m", config=odd))).kv == ()
    assert read_folder(str(folder(tmp_path / "n", config=[]))).architecture == ""


def test_folders_are_models_of_the_library(data_root: DataRoot, short_tmp: Path) -> None:
    hub = short_tmp / "hub"
    folder(hub / "models--OpenVINO--Qwen3-0.6B-int4-ov" / "snapshots" / "abc")
    folder(short_tmp / "mine" / "Other Model", size=128)
    folder(short_tmp / "mine" / "cut", size=10)
    settings = Settings(model_folders=(str(short_tmp / "mine"),))
    library = Library(data_root, settings, {"HF_HUB_CACHE": str(hub), "HOME": "/nowhere"})
    assert library.wait(15)
    rows = {row.name: row for row in library.rows()}
    assert sorted(rows) == ["cut", "other-model", "qwen3-0.6b-int4-ov"]
    assert rows["other-model"].backends == ("openvino",)
    assert "should have 64" in rows["cut"].problem
    assert rows["other-model"].digest != rows["qwen3-0.6b-int4-ov"].digest
    assert library.checked(rows["other-model"]) == rows["other-model"]
