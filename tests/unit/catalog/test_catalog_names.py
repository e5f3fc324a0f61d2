"""Names: readable, unique, and they stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.catalog import names

pytestmark = pytest.mark.unit


def assigned(wanted: Iterable[tuple[str, str, str]], known: Mapping[str, str]) -> dict[str, str]:
    models = (names.Wanted(path=path, base=base, digest=digest) for path, base, digest in wanted)
    return names.assign(models, known)


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("SmolLM2-135M-Instruct.Q4_1", "smollm2-135m-instruct-q4_1"),
        ("Llama-3.2-1B-Instruct-Q4_K_M", "llama-3.2-1b-instruct-q4_k_m"),
        ("Qwen3 0.6B (chat) IQ4_XS", "qwen3-0.6b-chat-iq4_xs"),
        ("modèle été.F16", "modèle-été-f16"),
        ("🦙 llama", "🦙-llama"),
        ("...", "model"),
        ("a/b\\c:d", "a-b-c-d"),
        ("x" * 300, "x" * 120),
        ("tab\there\x00", "tab-here"),
    ],
)
def test_base_names(stem: str, name: str) -> None:
    assert names.base_name(stem) == name


@given(st.text(max_size=300))
def test_base_names_are_words_without_spaces(stem: str) -> None:
    name = names.base_name(stem)
    assert name
    assert len(name) <= names.MAX_NAME
    assert name.split() == [name]
    assert "@" not in name


def test_two_of_one_name_get_a_mark_that_needs_no_memory() -> None:
    wanted = [("/a/m.gguf", "m", "fp1-aaaaaaaa11"), ("/b/m.gguf", "m", "fp1-bbbbbbbb22")]
    assert assigned(wanted, {}) == {"/a/m.gguf": "m", "/b/m.gguf": "m@bbbbbb"}


def test_a_name_once_given_stays_when_a_namesake_comes_before_it() -> None:
    known = names.remember({}, [("/b/m.gguf", "fp1-bbbbbbbb22", "m")])
    wanted = [("/a/m.gguf", "m", "fp1-aaaaaaaa11"), ("/b/m.gguf", "m", "fp1-bbbbbbbb22")]
    assert assigned(wanted, known) == {"/a/m.gguf": "m@aaaaaa", "/b/m.gguf": "m"}


def test_a_moved_file_keeps_its_name_by_content() -> None:
    known = names.remember({}, [("/b/m.gguf", "fp1-bbbbbbbb22", "m@bbbbbb")])
    assert assigned([("/c/m.gguf", "m", "fp1-bbbbbbbb22")], known) == {"/c/m.gguf": "m@bbbbbb"}


def test_a_renamed_file_gets_the_new_name() -> None:
    known = names.remember({}, [("/b/m.gguf", "fp1-bbbbbbbb22", "m")])
    assert assigned([("/b/n.gguf", "n", "fp1-bbbbbbbb22")], known) == {"/b/n.gguf": "n"}


def test_many_of_one_name_and_digest_are_all_named() -> None:
    wanted = [(f"/{i}", "m", "fp1-cccccccc") for i in range(9)]
    given_names = assigned(wanted, {})
    assert len(set(given_names.values())) == 9


@given(
    st.lists(
        st.tuples(st.text(min_size=1), st.sampled_from("abc"), st.sampled_from(["fp1-1", "fp1-2", ""])), max_size=20
    )
)
def test_names_are_unique_whatever_was_known(wanted: list[tuple[str, str, str]]) -> None:
    unique = list({path: (path, base, digest) for path, base, digest in wanted}.values())
    first = assigned(unique, {})
    known = names.remember({}, [(path, digest, first[path]) for path, _, digest in unique])
    again = assigned(list(reversed(unique)), known)
    assert len(set(first.values())) == len(set(again.values())) == len(unique)


def test_the_memory_of_names_is_bounded() -> None:
    known: dict[str, str] = {}
    for block in range(0, names.MAX_KNOWN * 2, 1000):
        known = names.remember(known, [(f"/{i}", f"fp1-{i}", f"m{i}") for i in range(block, block + 1000)])
    assert len(known) == names.MAX_KNOWN
    assert names.path_key(f"/{names.MAX_KNOWN * 2 - 1}") in known


def test_nearest_names() -> None:
    listed = ["smollm2-135m-instruct-q4_1", "gemma-3-270m-q4_k_m", "qwen3-0.6b"]
    assert names.nearest("smolm", listed)[0] == listed[0]
    assert names.nearest("Gemma", listed)[0] == listed[1]
    assert names.nearest("zzz", listed) == []


def test_split_stems() -> None:
    assert names.split_stem("big-00002-of-00009") == ("big", 2, 9)
    assert names.split_stem("big-2-of-9") is None


def test_how_a_name_begins_is_enough_where_only_one_does() -> None:
    listed = ["smollm2-135m-instruct-q4_1", "smollm2-360m", "gemma-3-270m", "Ümlaut"]
    assert names.begun("gemma", listed) == "gemma-3-270m"
    assert names.begun("SmolLM2-135", listed) == listed[0]
    assert names.begun("ümlaut", listed) == "Ümlaut"
    assert [names.begun(typed, listed) for typed in ("smollm2", "gemma-4", "3-270m", "")] == [None] * 4
