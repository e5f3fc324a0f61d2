"""Facts out of headers: geometry, tokens, flags, and what makes a file unusable."""

from __future__ import annotations

from typing import Any

import pytest

from gguf_bytes import ARRAY, STRING, Pair, build, model, read
from shared.catalog.entry import KvSpan
from shared.catalog.formats.facts import facts_of
from shared.catalog.formats.gguf import FIM_TEXTS
from shared.catalog.template_detection import detect

pytestmark = pytest.mark.unit


def facts(**options: Any) -> Any:
    return facts_of(read(model(**options)))


def test_the_usual_facts() -> None:
    known = facts()
    assert (known.kind, known.architecture, known.quantization, known.title) == ("model", "llama", "F16", "model")
    assert (known.n_layers, known.n_embd, known.n_heads, known.n_kv_heads) == (2, 64, 4, 2)
    assert (known.head_dim_k, known.head_dim_v, known.vocab_size, known.context_train) == (16, 16, 4, 2048)
    assert known.kv == (KvSpan(2, 32, 32),)
    assert (known.tokens.bos, known.tokens.eos, known.tokens.add_bos) == (0, 1, True)
    assert known.tokens.texts == {0: "<s>", 1: "</s>"}
    assert known.complete
    assert not known.unusable


def test_first_rows_know_name_architecture_and_context() -> None:
    known = facts_of(read(model(tokens=[f"t{i}" for i in range(9000)]), first=True))
    assert (known.architecture, known.context_train, known.vocab_size, known.complete) == ("llama", 2048, 9000, False)
    assert known.kv == (KvSpan(2, 32, 32),)


def test_window_layers_follow_the_compiled_pattern() -> None:
    extra: list[Pair] = [("gemma3.attention.sliding_window", 4, 512)]
    known = facts(architecture="gemma3", layers=8, extra=extra, tensors=False)
    assert known.kv == (KvSpan(5, 32, 32, 512), KvSpan(1, 32, 32), KvSpan(2, 32, 32, 512))


def test_a_window_pattern_in_the_file_wins() -> None:
    extra: list[Pair] = [
        ("gemma4.attention.sliding_window", 4, 128),
        ("gemma4.attention.sliding_window_pattern", ARRAY, (7, [True, False, True])),
    ]
    known = facts(architecture="gemma4", layers=3, extra=extra, tensors=False)
    assert [span.window for span in known.kv] == [128, 0, 128]


def test_a_window_of_an_unlisted_architecture_is_not_believed() -> None:
    known = facts(extra=[("llama.attention.sliding_window", 4, 128)], tensors=False)
    assert known.kv == (KvSpan(2, 32, 32),)
    assert known.sliding_window == 128


def test_heads_by_layer() -> None:
    extra: list[Pair] = [("llama.attention.head_count_kv", ARRAY, (4, [1, 0, 4]))]
    known = facts(layers=3, extra=extra, tensors=False)
    assert known.kv == (KvSpan(1, 16, 16), KvSpan(1, 0, 0), KvSpan(1, 64, 64))
    assert known.n_kv_heads == 4


def test_shapes_tell_which_layers_of_a_hybrid_have_attention() -> None:
    pairs: list[Pair] = [
        ("general.architecture", STRING, "jamba"),
        ("jamba.block_count", 4, 3),
        ("jamba.embedding_length", 4, 64),
        ("jamba.attention.head_count", 4, 4),
        ("jamba.attention.head_count_kv", 4, 4),
        ("jamba.ssm.inner_size", 4, 128),
        ("jamba.ssm.state_size", 4, 16),
        ("jamba.ssm.conv_kernel", 4, 4),
    ]
    tensors = [("blk.1.attn_k.weight", (64, 32), 0, 0), ("blk.1.attn_v.weight", (64, 48), 0, 8192)]
    known = facts_of(read(build(pairs, tensors, data=8192 + 64 * 48 * 4)))
    assert known.kv == (KvSpan(1, 0, 0), KvSpan(1, 32, 48), KvSpan(1, 0, 0))
    assert known.state_bytes == 3 * (3 * 128 + 128 * 16) * 4


@pytest.mark.parametrize("texts", FIM_TEXTS)
def test_fim_by_vocabulary(texts: tuple[str, str, str]) -> None:
    assert facts(tokens=["<s>", "</s>", *texts]).fim == (2, 3, 4)


def test_fim_by_keys_and_never_by_half() -> None:
    keys: list[Pair] = [
        (f"tokenizer.ggml.fim_{part}_token_id", 4, i) for i, part in enumerate(("pre", "suf", "mid"), 7)
    ]
    assert facts(extra=keys).fim == (7, 8, 9)
    assert facts(extra=keys[:2]).fim is None


@pytest.mark.parametrize(
    ("template", "tools", "thinking"),
    [
        ("{{ messages }}", False, False),
        ("{% if tools %}{{ tools }}{% endif %}", True, False),
        ("{% if enable_thinking %}<think>{% endif %}", False, True),
    ],
)
def test_flags_of_the_template(template: str, tools: bool, thinking: bool) -> None:
    known = facts(extra=[("tokenizer.chat_template", STRING, template)])
    assert (known.tools, known.thinking, known.template) == (tools, thinking, template)
    assert len(known.template_digest) == 32


def test_embedding_models_are_marked() -> None:
    assert facts(architecture="nomic-bert").embedding_only
    assert facts(architecture="qwen3", extra=[("qwen3.pooling_type", 4, 3)]).embedding_only
    assert not facts(architecture="qwen3", extra=[("qwen3.pooling_type", 4, 0)]).embedding_only


def test_kinds() -> None:
    assert facts_of(read(build([("general.architecture", STRING, "clip")]))).kind == "projector"
    adapter: list[Pair] = [("general.architecture", STRING, "llama"), ("general.type", STRING, "adapter")]
    assert facts_of(read(build(adapter))).kind == "adapter"
    assert facts(extra=[("general.type", STRING, "imatrix")]).kind == "other"


def test_unusable_files_say_why() -> None:
    assert "architecture" in facts_of(read(build([]))).unusable
    assert "no weights" in facts(tensors=False).unusable
    odd = build([("general.architecture", STRING, "llama")], [("a.weight", (32,), 199, 0)], data=64)
    assert "199" in facts_of(read(odd)).unusable


def test_absurd_numbers_are_left_out() -> None:
    extra: list[Pair] = [
        ("llama.block_count", 10, 1 << 63),
        ("llama.context_length", 11, -5),
        ("llama.embedding_length", 6, float("nan")),
        ("llama.attention.head_count", STRING, "many"),
        ("tokenizer.ggml.bos_token_id", 4, 0xFFFFFFFF),
        ("tokenizer.ggml.add_bos_token", 4, 1),
    ]
    known = facts(extra=extra)
    assert (known.n_layers, known.context_train, known.n_embd, known.n_heads) == (0, 0, 0, 0)
    assert known.kv == ()
    assert known.tokens.bos is None
    assert known.tokens.add_bos is None


def test_split_parts_are_reported() -> None:
    extra: list[Pair] = [("split.no", 2, 1), ("split.count", 2, 3)]
    known = facts(extra=extra)
    assert known.split == (1, 3)
    assert known.kv == (KvSpan(2, 32, 32),)


def test_the_flags_are_those_the_worker_reads_the_model_by() -> None:
    template = "{# tools #}{{ messages }}<|START_THINKING|>{% if functions %}<|tool_call_start|>{% endif %}"
    known, read = facts(extra=[("tokenizer.chat_template", STRING, template)]), detect(template)
    assert (known.tools, known.thinking) == (read.tools, read.thinking) == (True, True)
    assert not facts(extra=[("tokenizer.chat_template", STRING, "{# tools <think> #}{{ messages }}")]).tools
