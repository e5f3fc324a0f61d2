"""Makes the engine of a worker by the name of its backend."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from modeld.engine.backends import ENGINE_VARIABLE, is_outside

if TYPE_CHECKING:
    from modeld.engine.contract import AbortFlag, Engine

#: What the file of an outside engine is called here: a stack that ends in it ended in an engine (`engine.place`).
OUTSIDE = "modeld.engine.outside"


def make_engine(backend: str, abort: AbortFlag) -> Engine:
    """The engine object, nothing imported yet."""
    if backend == "llama":
        from modeld.engine.llama.engine import LlamaEngine

        return LlamaEngine(abort)
    if backend == "openvino":
        from modeld.engine.openvino.engine import OpenVinoEngine

        return OpenVinoEngine(abort)
    if is_outside(backend):
        return _outside(abort)
    from modeld.engine.none import NoEngine

    return NoEngine(abort)


def _outside(abort: AbortFlag) -> Engine:
    """What `engine(abort, argument)` of the named file gives. Raises OSError when there is no such file."""
    path, _, argument = os.environ[ENGINE_VARIABLE].partition(os.pathsep)
    spec = importlib.util.spec_from_file_location(OUTSIDE, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = sys.modules[OUTSIDE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: Engine = module.engine(abort, argument)
    return made
