"""Whether the pipeline could be made of a folder's graphs, without their weights in memory. Worker only.

Reading a graph maps its weights and checks their places in the file; the rewriting to paged attention is what the
pipeline does next, and refuses what is no decoder. Compiling, which takes the memory, is left out.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modeld.engine.contract import SpecialTokens
from modeld.engine.openvino.library import Library, reason_of
from modeld.engine.openvino.vision.input_embeddings import takes_rows
from shared.catalog.multi_graph import LANGUAGE, WORDS
from shared.errors import ModelLoadFailed

_ONE = "openvino_model"


def special_of(facts: Mapping[str, Any]) -> SpecialTokens:
    """What a template needs of a vocabulary, by the catalog's facts of a model."""
    known = facts.get("tokens") or {}
    texts = {str(token): text for token, text in (known.get("texts") or {}).items()}
    bos, eos = known.get("bos"), known.get("eos")
    return SpecialTokens(
        bos=bos,
        bos_text=texts.get(str(bos), ""),
        eos=eos,
        eos_text=texts.get(str(eos), ""),
        add_bos=bool(known.get("add_bos")),
    )


def graphs_of(folder: Path) -> list[Path]:
    """The graphs that the pipeline opens in a folder; none of a GGUF file."""
    if not folder.is_dir():
        return []
    names = (LANGUAGE, WORDS) if takes_rows(folder) else (_ONE,)
    return [folder / f"{name}.xml" for name in names]


def check_graph(library: Library, graph: Path, name: str) -> None:
    """Raises ModelLoadFailed at stage `weights` with the library's own reason."""
    try:
        model = library.openvino.Core().read_model(str(graph))
        if graph.stem != WORDS:
            rewriting = importlib.import_module("openvino._offline_transformations")
            rewriting.paged_attention_transformation(model)
    except (RuntimeError, ImportError, AttributeError) as error:
        raise ModelLoadFailed(model=name, stage="weights", reason=reason_of(error)) from error
