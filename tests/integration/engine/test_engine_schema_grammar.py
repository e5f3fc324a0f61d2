"""Grammars of schemas with bounded white space: whatever a model of noise writes under one is of its schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from modeld.engine.contract import AbortFlag, DecodeOptions, LoadRequest
from modeld.engine.llama.engine import LlamaEngine
from modeld.engine.llama.sampling.sampler import SamplerChain
from modeld.output.grammar.schema_grammar import schema_grammar
from shared.catalog.identity import RequestedIdentity

pytestmark = [pytest.mark.integration, pytest.mark.llama, pytest.mark.timeout(120)]
SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
    {
        "type": "object",
        "properties": {"a": {"enum": [1, "two", None]}, "b": {"const": {"x": [1]}}, "c": {"type": "null"}},
    },
    {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"type": ["null", "boolean"]}, "c": {"enum": ['é"\\\n']}},
        "required": ["b"],
    },
    {"type": "array", "items": {"enum": [0, 1]}, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 0},
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {}, "additionalProperties": False}]},
    {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/Node"}},
        "required": ["next"],
        "$defs": {
            "Node": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/Node"}, "maxItems": 1}]}
        },
    },
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaEngine]:
    """A model of noise in this process."""
    from tiny_gguf import write_tiny_gguf

    path: Path = write_tiny_gguf(tmp_path_factory.mktemp("noise") / "tiny.gguf")
    made = LlamaEngine(AbortFlag())
    made.prepare()
    identity = RequestedIdentity(backend="llama", name="tiny", digest="d", path=str(path))
    made.load(LoadRequest(identity=identity, model={}, num_ctx=1024, threads=1), lambda done, of: None)
    yield made
    made.close()


def written(engine: LlamaEngine, grammar: str, seed: int) -> str | None:
    """What noise writes under a grammar until it may end; None when 400 tokens did not do."""
    options = DecodeOptions(max_tokens=400, temperature=2.0, seed=seed)
    native, vocabulary = engine._native, engine._vocabulary
    assert native is not None
    assert vocabulary is not None
    prompt = engine.tokenize(f"noise {seed}", special=False)
    engine.ensure_prefix(prompt)
    engine.prefill_suffix(options, lambda done, of: None)
    tokens: Any = engine.decode(options)
    text = b""
    first = next(tokens)  # sampled before anything holds: thrown away with this decode
    del first
    chain = SamplerChain(native.api, vocabulary, options, ())
    try:
        assert chain.hold(vocabulary, grammar), grammar
        assert chain.held is not None
        batch, at = engine._batch, len(prompt)
        for _ in range(400):
            token = chain.held.sample(native.context, -1)
            if token in engine.special.end:
                return text.decode()
            text += engine.piece(token, special=True)
            assert engine._lane is not None
            native.api.llama_decode(native.context, batch.fill([token], at, engine._lane.sequence, logits=True))
            at += 1
        return None
    finally:
        chain.close()
        tokens.close()
        if engine._lane is not None and engine._warm is not None:
            engine._warm.memory.clear(engine._lane)
        engine.end_turn()


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_what_ends_is_of_the_schema(engine: LlamaEngine, number: int) -> None:
    grammar = schema_grammar(json.dumps(SCHEMAS[number]))
    ended = [text for seed in range(4) if (text := written(engine, grammar, seed)) is not None]
    for text in ended:
        jsonschema.validate(json.loads(text), SCHEMAS[number])
        assert "    " not in text.replace('"', ""), "white space has a bound"
    assert ended


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "a+"},
        {"type": "nonsense"},
        {"$ref": "#/elsewhere"},
        {"type": "object", "properties": {"a": {}}, "required": ["b"]},
        {"allOf": []},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"enum": []},
        {"$ref": "#"},
        {"type": "array", "items": {"$ref": "http://elsewhere"}},
    ],
)
def test_what_cannot_be_said_is_left_to_the_engine(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        schema_grammar(json.dumps(schema))
