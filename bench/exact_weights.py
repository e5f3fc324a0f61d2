"""How exactly OpenVINO reads each quantisation type: `python -m bench.exact_weights [TYPE...] [--report]`.

Of the starter's weights a file of each type is made. For the first 50 tokens of 20 prompts the log-probability of
each next token is compared with that of llama.cpp reading the same file as F16 (every value, and no rounding of
activations): once as OpenVINO's reader alone gives it, where it knows the types, and once as the product does. The
measure is what Q8_0 loses in llama.cpp itself. `--report` writes the rows into docs/weights.md; others stay.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from modeld.engine.openvino import convert
from modeld.engine.openvino.gguf_support import check_gguf, inexact_types
from modeld.engine.openvino.library import EXACT, Library
from weights import SMOLLM2, fetch

PAGE = Path(__file__).resolve().parent.parent / "docs" / "weights.md"
TYPES = (
    *("F16", "BF16", "Q8_0", "Q6_K", "Q5_1", "Q5_0", "Q5_K_M", "Q4_1", "Q4_0", "Q4_K_M", "Q4_K_S", "IQ4_NL"),
    *("Q3_K_M", "Q2_K"),
)
#: Tensor types that the reader takes as they are, exactly or not.
KNOWN = frozenset({"F32", "F16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"})
TOKENS = 50
HEADING = (
    "| type | in the file | OpenVINO's reader alone | as modeld loads it | Q8_0 in llama.cpp | within |",
    "| --- | --- | --- | --- | --- | --- |",
)
#: Prose, code, data and dialogues in three languages, a line of `----` between two.
TEXTS = Path(__file__).with_name("prompts.txt").read_text(encoding="utf-8").split("\n----\n")


class Apart(NamedTuple):
    """How far two readings lie apart: of each next token's log-probability the mean and the largest distance (nats)."""

    mean: float
    most: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.most:.2f})"


def apart(one: Sequence[Any], other: Sequence[Any]) -> Apart:
    """Two readings of all prompts."""
    found = np.abs(np.concatenate(one) - np.concatenate(other))
    return Apart(float(found.mean()), float(found.max()))


def quantised(source: Path, target: Path, kind: str) -> Path:
    """A file of another type, by llama.cpp. Raises RuntimeError."""
    from llama_cpp import llama_cpp as native

    parameters = native.llama_model_quantize_default_params()
    parameters.ftype = getattr(native, f"LLAMA_FTYPE_MOSTLY_{kind}")
    parameters.allow_requantize = True
    _silence(native)
    if native.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(parameters)):
        raise RuntimeError(f"{kind} cannot be made of {source.name}")
    return target


@cache
def _silence(native: Any) -> Any:
    """Kept for good: the library calls it until the end."""
    callback = native.llama_log_callback(lambda level, text, data: None)
    native.llama_log_set(callback, ctypes.c_void_p(0))
    return callback


def by_llama(path: Path) -> tuple[list[list[int]], list[Any]]:
    """The prompts' tokens, and the log-probability of each but the first."""
    import llama_cpp

    model = llama_cpp.Llama(str(path), n_ctx=128, logits_all=True, verbose=False, n_threads=2)
    ids, found = [], []
    for text in TEXTS:
        tokens = model.tokenize(text.encode(), add_bos=False, special=True)[: TOKENS + 1]
        model.reset()
        model.eval(tokens)
        ids.append(tokens)
        found.append(_of_next(np.array(model.scores[: len(tokens)]), tokens))
    model.close()
    return ids, found


def by_openvino(folder: Path, ids: Sequence[list[int]]) -> list[Any]:
    """The same by the graph that was made of a file."""
    import openvino

    properties = {**EXACT, "INFERENCE_NUM_THREADS": "2"}
    compiled = openvino.Core().compile_model(str(folder / "openvino_model.xml"), "CPU", properties)
    found = []
    for tokens in ids:
        size = len(tokens)
        given = {
            "input_ids": np.array([tokens], np.int64),
            "attention_mask": np.ones((1, size), np.int64),
            "position_ids": np.arange(size, dtype=np.int64)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        logits = compiled.create_infer_request().infer(given)["logits"]
        found.append(_of_next(np.array(logits)[0], tokens))
    return found


def _of_next(logits: Any, tokens: list[int]) -> Any:
    wide = logits[:-1].astype(np.float64)
    most = wide.max(axis=1, keepdims=True)
    total = most[:, 0] + np.log(np.exp(wide - most).sum(axis=1))
    return wide[np.arange(len(tokens) - 1), tokens[1:]] - total


def row(kind: str, work: Path) -> str:
    """One type measured, as a row of the table."""
    source = fetch(SMOLLM2)
    whole = quantised(source, work / "whole.gguf", "F16")
    file = whole if kind == "F16" else quantised(whole, work / f"{kind}.gguf", kind)
    reading = whole if kind == "F16" else quantised(file, work / "reading.gguf", "F16")
    ids, expected = by_llama(reading)
    _, eight = by_llama(quantised(reading, work / "eight.gguf", "Q8_0"))
    spread = apart(expected, eight)
    header = check_gguf(file, kind)
    types = header.tensors.bytes_by_type if header.tensors is not None else {}
    alone = "not read"
    if set(types) <= KNOWN:
        alone = str(apart(expected, by_openvino(_converted(file, work / "alone", exact=False), ids)))
    ours = apart(expected, by_openvino(_converted(file, work / "ours", exact=True), ids))
    within = "yes" if ours.mean <= spread.mean else "NO"
    told = ", ".join(sorted(set(types) - {"F32"}))
    return f"| {kind} | {told} | {alone} | {ours} | {spread} | {within} |"


def _converted(file: Path, cache: Path, *, exact: bool) -> Path:
    """What OpenVINO makes of a file, with or without us."""
    vars(convert)["inexact_types"] = inexact_types if exact else lambda header: []
    return convert.converted(Library(), file, file.stem, cache, file.stem, check_gguf(file, file.stem))[0]


def report(rows: Sequence[str]) -> None:
    """Put rows into the page's table: those of other types stay."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition("\n".join(HEADING) + "\n")
    old = [line for line in rest.splitlines() if line.startswith("| ")]
    behind = rest[sum(len(line) + 1 for line in old) :]
    known = {line.split(" ")[1]: line for line in [*old, *rows]}
    table = [known[kind] for kind in TYPES if kind in known]
    PAGE.write_text(before + "\n".join([*HEADING, *table]) + "\n" + behind, encoding="utf-8")


def main() -> int:
    """Exit 3 where a type is not read within the spread of Q8_0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", default=TYPES)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for kind in arguments.types:
        with tempfile.TemporaryDirectory(prefix="exact-weights-") as folder:
            rows.append(row(kind, Path(folder)))
        print(rows[-1], flush=True)
        if arguments.report:
            report(rows)
    return 3 if any(one.endswith("NO |") for one in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
