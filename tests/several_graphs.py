"""Tiny models with vision for OpenVINO: an ordinary conversion taken apart into the graphs of a folder with vision.

What the language graph answers to rows is what the ordinary one answers to ids. The vision graph is seeded noise over
patches: the same rows for the same image and others for another one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from modeld.engine.openvino import convert
from modeld.engine.openvino.gguf_support import check_gguf
from modeld.engine.openvino.library import Library
from tiny_gguf import write_tiny_gguf

#: Side of a square and of a patch in pixels: 16 tokens a square.
SIDE, PATCH, WIDTH = 32, 8, 64
TOKENS = (SIDE // PATCH) ** 2
#: What openvino.genai writes into prompts of its own.
MARKS = ("<image>", "<img>", "</img>", "<IMG_CONTEXT>")
MEAN, STD = [0.48, 0.45, 0.40], [0.26, 0.26, 0.27]
MAKING_SECONDS = 120


def write_vision_model(folder: Path, *, family: str = "llava", width: int = WIDTH) -> Path:
    """Write a model with vision into `folder`, beside the ordinary one it is made of (`words`), and answer its path.

    `width`: of an image's rows, where they are not to fit. In a process of its own: nothing native stays in this one.
    """
    command = [sys.executable, __file__, str(folder), family, str(width)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=MAKING_SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"no model with vision could be made:\n{done.stderr[-2000:]}")
    return folder / family


def _make(folder: Path, family: str, width: int) -> None:
    library = Library()
    with tempfile.TemporaryDirectory() as work:
        source = write_tiny_gguf(Path(work) / "tiny.gguf", half=True, marks=MARKS, width=WIDTH)
        header = check_gguf(source, "tiny")
        made, _ = convert.converted(library, source, "words", Path(work) / "cache", "tiny", header)
        shutil.copytree(made, folder / "words")
    target = folder / family
    target.mkdir()
    for graph, model in _graphs(library.openvino, folder / "words" / "openvino_model.xml", width).items():
        library.openvino.save_model(model, target / f"openvino_{graph}_model.xml", compress_to_fp16=False)
    for file in (folder / "words").glob("openvino_*tokenizer.*"):
        shutil.copy(file, target)
    config = {
        "model_type": family,
        "vision_config": {"patch_size": PATCH},
        "text_config": {"hidden_size": WIDTH, "max_position_embeddings": 4096},
    }
    optics = {
        "size": {"shortest_edge": SIDE},
        "crop_size": {"height": SIDE, "width": SIDE},
        "image_mean": MEAN,
        "image_std": STD,
    }
    (target / "config.json").write_text(json.dumps(config))
    (target / "preprocessor_config.json").write_text(json.dumps(optics))


def _graphs(openvino: Any, path: Path, width: int) -> dict[str, Any]:
    op = openvino.opset13
    model = openvino.Core().read_model(path)
    ids = model.input("input_ids").get_node()
    found = next(
        node
        for node in model.get_ordered_ops()
        if node.get_type_name() == "Gather" and list(node.get_output_partial_shape(0))[-1] == WIDTH
    )
    rows = _named(op.parameter([-1, -1, WIDTH], np.float32, name="inputs_embeds"), "inputs_embeds")
    asks_size = [one for one in ids.output(0).get_target_inputs() if one.get_node().get_type_name() == "ShapeOf"]
    for target in (*found.output(0).get_target_inputs(), *asks_size):
        target.replace_source_output(rows.output(0))
    others = [one for one in model.get_parameters() if one.get_friendly_name() != ids.get_friendly_name()]
    words = openvino.Model([op.result(found.output(0))], [ids], "words")
    words.output(0).set_names({"inputs_embeds"})
    return {
        "language": openvino.Model(model.get_results(), model.get_sinks(), [rows, *others], "language"),
        "text_embeddings": words,
        "vision_embeddings": _vision(openvino, op, width),
    }


def _vision(openvino: Any, op: Any, width: int) -> Any:
    pixels = _named(op.parameter([-1, 3, -1, -1], np.float32, name="pixel_values"), "pixel_values")
    noise = np.random.default_rng(5).standard_normal((width, 3, PATCH, PATCH)).astype(np.float32)
    patches = op.convolution(pixels, op.constant(noise), [PATCH, PATCH], [0, 0], [0, 0], [1, 1])
    flat = op.reshape(patches, op.constant(np.array([0, width, -1])), special_zero=True)
    return openvino.Model([op.result(op.transpose(flat, op.constant(np.array([0, 2, 1]))))], [pixels], "vision")


def _named(node: Any, name: str) -> Any:
    node.output(0).set_names({name})
    return node


if __name__ == "__main__":
    _make(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
