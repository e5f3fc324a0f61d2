"""The engines that modeld can serve with, each in one row. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Backend(NamedTuple):
    """One engine: the package that Python imports, the distribution that brings it, and the format whose images it
    takes (through a projector beside a GGUF file, by an encoder of its own in a folder).
    """

    package: str
    distribution: str
    images: str


#: By name, which is also the extra that installs it. Preferred first where several are importable and no device
#: speaks for another.
BACKENDS = {
    "llama": Backend(package="llama_cpp", distribution="llama-cpp-python", images="gguf"),
    "openvino": Backend(package="openvino_genai", distribution="openvino-genai", images="openvino"),
}
#: The name of an engine from outside the product, which runs whatever any engine runs (`modeld.engine.backends`).
OUTSIDE = "scripted"
