"""Each family's notation gives the same events however its bytes are split."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outputs import SAMPLES, Read, Sample, read

pytestmark = pytest.mark.unit
NAMES = [sample.name for sample in SAMPLES]


def check(sample: Sample, got: Read) -> None:
    assert got.text == sample.text
    assert got.reasoning == sample.reasoning
    assert [(call.name, json.loads(call.arguments)) for call in got.calls] == list(sample.calls)
    assert [got.partial[index] for index in sorted(got.partial)] == [call.arguments for call in got.calls]


@pytest.mark.parametrize("sample", SAMPLES, ids=NAMES)
def test_a_sample_is_read_whole_and_byte_by_byte(sample: Sample) -> None:
    data = sample.output.encode()
    check(sample, read(sample.form, [data]))
    check(sample, read(sample.form, [data[at : at + 1] for at in range(len(data))]))


@pytest.mark.parametrize("sample", SAMPLES, ids=NAMES)
def test_a_sample_is_read_alike_at_every_single_split(sample: Sample) -> None:
    data = sample.output.encode()
    for at in range(1, len(data)):
        check(sample, read(sample.form, [data[:at], data[at:]]))


@given(st.sampled_from(SAMPLES), st.lists(st.integers(1, 12), min_size=1, max_size=40))
@settings(max_examples=300, deadline=None)
def test_random_splits_change_nothing(sample: Sample, sizes: list[int]) -> None:
    data, pieces, at = sample.output.encode(), [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    check(sample, read(sample.form, [*pieces, data[at:]]))


@given(st.sampled_from(SAMPLES), st.integers(0, 400), st.integers(1, 30))
@settings(max_examples=300, deadline=None)
def test_a_cut_output_never_gives_an_invalid_call(sample: Sample, end: int, step: int) -> None:
    data = sample.output.encode()[:end]
    got = read(sample.form, [data[at : at + step] for at in range(0, len(data), step)], cut=True)
    for call in got.calls:
        assert isinstance(json.loads(call.arguments), dict)
    assert len(got.calls) <= len(sample.calls)


@given(
    st.sampled_from([sample.form for sample in SAMPLES]),
    st.lists(
        st.sampled_from(
            [
                "<think>",
                "</think>",
                "<tool_call>",
                "{",
                "}",
                '"name"',
                ":",
                "read",
                "\n",
                " ",
                "x",
                "`",
                "<|channel|>",
                "<|message|>",
                "[TOOL_CALLS]",
                "é",
                ">",
                "<",
            ]
        ),
        max_size=30,
    ),
    st.integers(1, 7),
)
@settings(max_examples=400, deadline=None)
def test_garbage_is_read_alike_however_it_is_split(form: object, parts: list[str], step: int) -> None:
    data = "".join(parts).encode()
    one = read(form, [data])
    other = read(form, [data[at : at + step] for at in range(0, len(data), step)])
    assert (one.text, one.reasoning, one.partial) == (other.text, other.reasoning, other.partial)
    assert one.calls == other.calls
