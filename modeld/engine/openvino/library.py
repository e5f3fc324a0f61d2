"""The native libraries, imported late, and what we tell them to do."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from modeld.engine.backends import unavailable

#: Tokens evaluated in one step at most; on slow models fewer (see chunk_pace.py).
CHUNK = 256

#: Results must not depend on how a prompt was split, or reuse would change answers: with the engine's
#: own choice (bf16 where the CPU has it, activations quantised on the fly) 15 % of greedy answers
#: differed after reuse; with these none did, at no loss in decode.
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}


class Library:
    """`openvino` and `openvino_genai`. Raises BackendUnavailable where they cannot be imported."""

    def __init__(self) -> None:
        _without_telemetry()
        try:
            import openvino
            import openvino_genai
        except (ImportError, OSError) as error:
            raise unavailable("openvino", str(error)) from error
        self.openvino: Any = openvino
        self.genai: Any = openvino_genai

    def digest(self) -> str:
        """Names the build: results and converted models of another build are not ours."""
        return f"openvino-genai {self.genai.__version__}"

    def devices(self) -> tuple[str, ...]:
        """What the runtime finds here, for example `CPU`, `GPU.0`, `NPU`."""
        return tuple(self.openvino.Core().available_devices)

    def tensor(self, tokens: Any) -> Any:
        """Make one prompt into the tensor of the pipeline: int64, shape (1, tokens)."""
        import numpy as np

        return self.openvino.Tensor(np.array([tokens], dtype=np.int64))

    def graph(self, path: Path, device: str, threads: int) -> Any:
        """An infer request of a graph that keeps nothing between calls. Raises RuntimeError."""
        properties = {**EXACT, "INFERENCE_NUM_THREADS": str(threads)}
        return self.openvino.Core().compile_model(str(path), device, properties).create_infer_request()


def _without_telemetry() -> None:
    """`import openvino` reports each import to its makers over the network, and counts them in a folder of the
    user's home, unless this package is missing: then it uses its own empty stand-in.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # None: "do not import"


#: Where in its own sources the library was: `[12:00:00] /build/folder/file.cc:898: `.
_PLACE = re.compile(r"^\s*\[[\d:]+\]\s+\S+:\d+:\s*")


def properties(threads: int, kv_type: str) -> dict[str, str]:
    """Of the compiled model."""
    return {**EXACT, "INFERENCE_NUM_THREADS": str(threads), "KV_CACHE_PRECISION": kv_type}


def reason_of(error: BaseException) -> str:
    """The last line that says something: native messages begin with check texts and paths of their build."""
    lines = [_PLACE.sub("", line).strip() for line in str(error).splitlines() if line.strip()]
    useful = [line for line in lines if "/src/" not in line and not line.startswith("Check '")]
    return (useful or lines or [type(error).__name__])[-1][:300]
