"""How much memory a model needs, from its header alone (pure).

Used by the daemon's memory plan and, marked as an estimate, by the library with the daemon stopped.
What was measured after an earlier load of the same identity is always better than these numbers.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.catalog.advertised.gguf_exactness import memory_bytes
from shared.catalog.entry import Facts
from shared.text.words import size_text

#: Bytes an element of KV memory takes: (numerator, denominator); quantised types with their scales.
KV_TYPES: dict[str, tuple[int, int]] = {
    "f32": (4, 1),
    "f16": (2, 1),
    "bf16": (2, 1),
    "q8_0": (34, 32),
    "q5_1": (24, 32),
    "q5_0": (22, 32),
    "q4_1": (20, 32),
    "q4_0": (18, 32),
    "iq4_nl": (18, 32),
    "u8": (9, 8),  # OpenVINO: a scale and a zero point for each token and head
    "u4": (5, 8),
}
#: llama.cpp rounds the cells of a window cache up to this many.
CELL_PAD = 256
#: Tokens processed at once (n_ubatch); a window cache holds them beside the window.
BATCH = 512
#: Steps in which a smaller context is looked for, in tokens.
STEP = 256

Verdict = Literal["fits", "fits_smaller", "too_big", "unknown"]
Source = Literal["measured", "engine", "header"]
#: What a number of bytes is: two that differ for one model each say it wherever they are shown.
SOURCES: dict[Source, str] = {
    "measured": "measured at an earlier load",
    "engine": "the engine's own estimate",
    "header": "estimate from its header",
}


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with its arithmetic: bytes, contexts in tokens. `num_ctx` is what would fit (0: none)."""

    verdict: Verdict
    num_ctx: int
    weights_bytes: int
    kv_bytes: int
    compute_bytes: int
    required_bytes: int
    free_bytes: int
    reserve_bytes: int
    source: Source = "header"

    @property
    def source_text(self) -> str:
        """What the numbers are, for people."""
        return SOURCES[self.source]

    @property
    def text(self) -> str:
        """One line for a row."""
        need, free = size_text(self.required_bytes), size_text(max(0, self.free_bytes - self.reserve_bytes))
        if self.verdict == "unknown":
            return "size not known yet"
        if self.verdict == "fits":
            return f"fits with context {self.num_ctx:,} ({self.source_text}: {need} of {free})"
        if self.verdict == "fits_smaller":
            return f"fits with context {self.num_ctx:,} only ({self.source_text}: {need} of {free})"
        return f"does not fit ({self.source_text}: {need} needed, {free} free after the reserve)"


def weights_bytes(facts: Facts) -> int:
    """Bytes the weights take in memory: the tensor data of all parts (of OpenVINO, the `.bin`).

    Overestimates where an engine keeps pages of a mapped file out of memory; underestimates where it
    repacks weights beside the mapping (llama.cpp on some CPUs) or unpacks a GGUF (OpenVINO: see
    `unpacked_bytes`). 0 while only the first keys are known.
    """
    return facts.weights_bytes


def unpacked_bytes(facts: Facts) -> int:
    """Bytes of the weights as OpenVINO holds those of a GGUF: some types are requantised, see `gguf_exactness`."""
    return memory_bytes(facts.tensor_types)


def kv_bytes(facts: Facts, num_ctx: int, kv_type: str = "f16", *, full_window: bool = False) -> int:
    """Bytes of attention memory for `num_ctx` tokens, and of the recurrent state of one sequence.

    Layers with a sliding window hold `window` tokens and one batch (as llama.cpp without
    `swa_full`); with `full_window` they hold everything. Overestimates: models whose window pattern is
    not in the table (counted in full), layers that share another layer's memory (gemma3n), V of models
    with compressed attention (deepseek2), models with recurrent layers beside attention (all layers are
    counted for state), and OpenVINO's paging, which takes only what is used. 0 when the header does not say.
    Raises ValueError for an unknown `kv_type`.
    """
    if kv_type not in KV_TYPES:
        raise ValueError(f"unknown KV type {kv_type}")
    numerator, denominator = KV_TYPES[kv_type]
    elements = 0
    for span in facts.kv:
        cells = num_ctx
        if span.window and not full_window:
            cells = min(num_ctx, _padded(span.window + BATCH))
        elements += span.layers * cells * (span.k + span.v)
    return elements * numerator // denominator + facts.state_bytes


def compute_bytes(facts: Facts, num_ctx: int = 0, batch: int = BATCH) -> int:
    """Bytes of the scratch buffers of one batch: the logits of every token (32-bit) and activations.

    A model that takes rows holds those of a whole prompt of `num_ctx` tokens twice, ours and the engine's, and as many
    of images if it has vision.
    Overestimates engines that compute the last token's logits only; leaves out the attention scores,
    which flash attention never builds.
    """
    rows = (3 if facts.vision else 2) * num_ctx * facts.n_embd * 4 if facts.takes_rows else 0
    return batch * (facts.vocab_size + 8 * facts.n_embd) * 4 + rows


def required_bytes(facts: Facts, num_ctx: int, kv_type: str = "f16") -> int:
    """Weights, KV memory and scratch together."""
    return weights_bytes(facts) + kv_bytes(facts, num_ctx, kv_type) + compute_bytes(facts, num_ctx)


def estimate(
    facts: Facts, *, free: int, reserve: int, least: int, wanted: int | None = None, kv_type: str = "f16"
) -> Fit:
    """Whether the model fits into `free - reserve` bytes with `wanted` tokens (default: what it was trained on).

    A smaller context is looked for, down to `least` tokens (or the model's own, if that is less).
    """
    train = facts.context_train or least
    wanted = min(wanted or train, train)
    available = free - reserve
    fits = largest_context(facts, available, wanted, kv_type)
    smallest = min(least, train)
    verdict: Verdict = "fits" if fits >= wanted else "fits_smaller" if fits >= smallest else "too_big"
    if not facts.weights_bytes or not facts.kv:
        verdict = "unknown"
    shown = fits if verdict in ("fits", "fits_smaller") else smallest
    return Fit(
        verdict=verdict,
        num_ctx=fits if verdict in ("fits", "fits_smaller") else 0,
        weights_bytes=weights_bytes(facts),
        kv_bytes=kv_bytes(facts, shown, kv_type),
        compute_bytes=compute_bytes(facts, shown),
        required_bytes=required_bytes(facts, shown, kv_type),
        free_bytes=free,
        reserve_bytes=reserve,
    )


def largest_context(facts: Facts, available: int, most: int, kv_type: str = "f16") -> int:
    """The largest context up to `most` tokens, in steps of 256, that `available` bytes hold (0: none)."""
    if required_bytes(facts, most, kv_type) <= available:
        return most
    low, high = 0, most // STEP
    while low < high:
        middle = (low + high + 1) // 2
        if required_bytes(facts, middle * STEP, kv_type) <= available:
            low = middle
        else:
            high = middle - 1
    return low * STEP


def _padded(cells: int) -> int:
    return -(-cells // CELL_PAD) * CELL_PAD
