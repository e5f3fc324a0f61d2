"""Makes the engine of a worker by the name of its backend."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from modeld.engine.backends import SCRIPT_VARIABLE

if TYPE_CHECKING:
    from modeld.engine.contract import AbortFlag, Engine


def make_engine(backend: str, abort: AbortFlag) -> Engine:
    """The engine object, nothing imported yet. The scripted one only where a test's script is named."""
    if backend == "llama":
        from modeld.engine.llama.engine import LlamaEngine

        return LlamaEngine(abort)
    if backend == "openvino":
        from modeld.engine.openvino.engine import OpenVinoEngine

        return OpenVinoEngine(abort)
    if backend == "scripted" and os.environ.get(SCRIPT_VARIABLE):
        from modeld.engine.scripted import ScriptedEngine

        return ScriptedEngine(abort)
    from modeld.engine.none import NoEngine

    return NoEngine(abort)
