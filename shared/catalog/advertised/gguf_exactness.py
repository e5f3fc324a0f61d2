"""What OpenVINO's GGUF reader makes of each tensor type, and what takes the place of types it loses (pure).

Measured (`bench/exact_weights.py`, docs/weights.md): F32, F16, Q4_0 and Q8_0 come out value for value. Of Q4_1 and
Q4_K the reader rounds the least value of a group to a whole number of steps (log-probabilities off by 0.6 on average,
by 4 at most); Q6_K it unpacks to 16 bits; the others it does not know. They are requantised before it sees them.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.catalog.formats.ggml import TENSOR_TYPES

#: Read value for value.
EXACT = frozenset({"F32", "F16", "Q4_0", "Q8_0"})
#: What the reader is given instead: 16 bits where they hold every value, else 8 bits and a scale for each 32.
REQUANTISED: Mapping[str, str] = {
    "BF16": "F16",
    **dict.fromkeys(("Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"), "Q8_0"),
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"), "Q8_0"),
    **dict.fromkeys(("TQ1_0", "TQ2_0", "MXFP4"), "Q8_0"),
}
#: The reader keeps a zero point of the weights' own width beside each scale: bytes in memory, bytes in the file.
_IN_MEMORY = {"Q4_0": (20, 18), "Q8_0": (36, 34)}
_SHAPE = {name: (elements, size) for name, elements, size in TENSOR_TYPES.values()}


def inexact(types: Mapping[str, int]) -> list[str]:
    """Those of a file's tensor types that are requantised, in order of their names."""
    return sorted(set(types) & set(REQUANTISED))


def requantised_bytes(types: Mapping[str, int]) -> int:
    """Bytes that tensors of these types (type -> bytes) take in the file that the reader is given."""
    return sum(_after(name, size) for name, size in types.items())


def memory_bytes(types: Mapping[str, int]) -> int:
    """Bytes that they take in memory. Leaves out the copy that exists while the model is converted."""
    total = 0
    for name, size in types.items():
        numerator, denominator = _IN_MEMORY.get(REQUANTISED.get(name, name), (1, 1))
        total += _after(name, size) * numerator // denominator
    return total


def _after(name: str, size: int) -> int:
    if name not in REQUANTISED:
        return size
    elements, before = _SHAPE[name]
    block, after = _SHAPE[REQUANTISED[name]]
    return size // before * elements // block * after
