"""A model's recommended sampling settings, read from real files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import gguf
import pytest

from shared.catalog.formats.facts import facts_of
from shared.catalog.formats.sampling_defaults import from_generation_config, from_gguf
from shared.catalog.reader import read_gguf
from tiny_gguf import written

pytestmark = pytest.mark.unit

GENERATION = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.1}


def test_a_gguf_header_says_it(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_float32("general.sampling.temp", 0.6)
    writer.add_int32("general.sampling.top_k", 20)
    writer.add_float32("general.sampling.penalty_repeat", 1.05)
    written(writer, tmp_path / "m.gguf")
    found = facts_of(read_gguf(str(tmp_path / "m.gguf"))).sampling
    assert {name: round(value, 3) for name, value in found.items()} == {
        "temperature": 0.6, "top_k": 20.0, "repeat_penalty": 1.05,
    }  # fmt: skip


def test_a_generation_config_says_it_where_it_is_used() -> None:
    assert from_generation_config(GENERATION) == {
        "temperature": 0.6, "top_k": 20.0, "top_p": 0.95, "repeat_penalty": 1.1,
    }  # fmt: skip
    assert from_generation_config({**GENERATION, "do_sample": False}) == {}
    assert from_generation_config({"temperature": 0.6}) == {}, "a left-over of the defaults"


@pytest.mark.parametrize("value", ["0.6", True, None, math.nan, math.inf, -1, 7.5, [0.6], {}])
def test_advice_that_makes_no_sense_is_none(value: Any) -> None:
    assert from_gguf({"general.sampling.temp": value}) == {}
    assert from_generation_config({"do_sample": True, "temperature": value}) == {}


def test_it_survives_a_reader_of_json() -> None:
    assert from_generation_config(json.loads(json.dumps(GENERATION)))["temperature"] == 0.6
