"""The arithmetic of memory from a header."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.catalog.advertised.fit import KV_TYPES, estimate, kv_bytes, largest_context, required_bytes, unpacked_bytes
from shared.catalog.entry import Facts, KvSpan

pytestmark = pytest.mark.unit

SMOLLM2 = Facts(
    architecture="llama",
    kv=(KvSpan(30, 192, 192),),
    weights_bytes=96_576_768,
    vocab_size=49152,
    n_embd=576,
    context_train=8192,
    tensor_types={"Q8_0": 30_081_024, "F32": 140_544, "Q4_1": 66_355_200},
)
GEMMA3 = Facts(
    kv=(KvSpan(5, 256, 256, 512), KvSpan(1, 256, 256)) * 3, weights_bytes=246_587_904, vocab_size=262_144, n_embd=640
)
MIB = 1 << 20


def test_full_attention_by_hand() -> None:
    # llama.cpp prints 180.00 MiB for 8192 cells of 30 layers with 192 + 192 16-bit elements
    assert kv_bytes(SMOLLM2, 8192) == 180 * MIB
    assert kv_bytes(SMOLLM2, 8192, "q8_0") == 180 * MIB * 34 // 64
    assert kv_bytes(SMOLLM2, 8192, "f32") == 360 * MIB


def test_window_layers_are_capped() -> None:
    full = 3 * 32768 * 512 * 2
    assert kv_bytes(GEMMA3, 32768) == full + 15 * 1024 * 512 * 2
    assert kv_bytes(GEMMA3, 32768, full_window=True) == 6 * full
    assert kv_bytes(GEMMA3, 256) == 18 * 256 * 512 * 2


def test_recurrent_state_does_not_grow_with_the_context() -> None:
    assert kv_bytes(Facts(state_bytes=1000), 4096) == kv_bytes(Facts(state_bytes=1000), 256) == 1000


@pytest.mark.parametrize(("vision", "times"), [(False, 2), (True, 3)])
def test_rows_of_a_prompt_are_held_twice_and_those_of_images_once_more(vision: bool, times: int) -> None:
    rows = msgspec.structs.replace(SMOLLM2, takes_rows=True, vision=vision)
    assert required_bytes(rows, 8192) - required_bytes(SMOLLM2, 8192) == times * 8192 * 576 * 4
    assert largest_context(rows, required_bytes(SMOLLM2, 8192), 8192) < 8192


def test_an_unknown_kv_type_is_an_error() -> None:
    with pytest.raises(ValueError, match="q3"):
        kv_bytes(SMOLLM2, 100, "q3")


def test_verdicts() -> None:
    fits = estimate(SMOLLM2, free=2 << 30, reserve=512 * MIB, least=4096)
    assert (fits.verdict, fits.num_ctx) == ("fits", 8192)
    assert fits.required_bytes == fits.weights_bytes + fits.kv_bytes + fits.compute_bytes
    smaller = estimate(SMOLLM2, free=800 * MIB, reserve=480 * MIB, least=4096)
    assert smaller.verdict == "fits_smaller"
    assert 4096 <= smaller.num_ctx < 8192
    assert smaller.required_bytes <= smaller.free_bytes - smaller.reserve_bytes
    assert "only" in smaller.text
    big = estimate(SMOLLM2, free=600 * MIB, reserve=512 * MIB, least=4096)
    assert (big.verdict, big.num_ctx) == ("too_big", 0)
    assert "does not fit" in big.text
    assert estimate(Facts(), free=1 << 40, reserve=0, least=4096).verdict == "unknown"


def test_a_small_model_may_fit_with_its_own_small_context() -> None:
    small = Facts(kv=SMOLLM2.kv, weights_bytes=10 * MIB, context_train=512, vocab_size=100, n_embd=64)
    assert estimate(small, free=100 * MIB, reserve=0, least=4096).verdict == "fits"


def test_openvino_unpacks_a_gguf_to_more() -> None:
    assert unpacked_bytes(SMOLLM2) == 30_081_024 * 36 // 34 + 140_544 + 66_355_200 // 20 * 36, "Q4_1 becomes Q8_0"


@given(st.integers(0, 4 << 30), st.integers(256, 131072), st.sampled_from(sorted(KV_TYPES)))
def test_the_largest_context_fits_and_the_next_does_not(available: int, most: int, kv_type: str) -> None:
    found = largest_context(GEMMA3, available, most, kv_type)
    assert 0 <= found <= most
    if found:
        assert required_bytes(GEMMA3, found, kv_type) <= available
    if found < most:
        assert required_bytes(GEMMA3, min(most, found + 256), kv_type) > available
