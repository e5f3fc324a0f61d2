"""Builds prompt embeddings for models of several graphs: text by one graph, images by another.

The pipeline takes such rows in the place of ids and knows a block of its memory by them, so that all that is said of
ids (chunks, reuse, counts) holds for rows that are the same for the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from modeld.engine.images import VisionUnusable, begins, image_end
from modeld.engine.openvino.library import Library, reason_of
from modeld.engine.openvino.pipeline import Plan
from modeld.engine.openvino.vision.image_encoder import ImageEncoder
from modeld.engine.openvino.vision.image_tiles import FAMILIES
from modeld.engine.required import required
from shared.catalog.multi_graph import WORDS
from shared.errors import EngineFailed
from shared.text.nesting import decode_json


def takes_rows(folder: Path) -> bool:
    """Whether the model in `folder` is several graphs; the pipeline goes by the same file, and ids would end it."""
    return (folder / f"{WORDS}.xml").is_file()


class _Config(msgspec.Struct):
    model_type: str = ""
    scale_emb: float = 1.0


class Rows:
    """Of one model; `image_encoder` is None where it is for words alone, and `note` says why."""

    def __init__(
        self, library: Library, folder: Path, plan: Plan, tokenize: Callable[[str], list[int]], *, vision: bool
    ) -> None:
        """Loads the graphs, the vision graph only where it is for `vision`.

        Raises RuntimeError (native), OSError and MsgspecError (the configuration).
        """
        config = decode_json((folder / "config.json").read_bytes(), _Config)
        self._library = library
        self._scale = config.scale_emb
        self._words = library.graph(folder / f"{WORDS}.xml", plan.device, plan.threads)
        self.image_encoder: ImageEncoder | None = None
        self.note = ""
        family = FAMILIES.get(config.model_type)
        try:
            if family is None:
                whose = config.model_type or "it"
                raise VisionUnusable(f"only OpenVINO's own reading of prompts knows how {whose} takes them")
            if vision:
                width = self._of_words([0]).shape[-1]
                self.image_encoder = ImageEncoder(library, folder, family, plan, width, tokenize)
        except VisionUnusable as error:
            self.note = f"images are refused: {error}"

    def tensor(self, tokens: Sequence[int]) -> Any:
        """The rows of a prompt; until the next call. Its images must have been encoded. Raises EngineFailed."""
        try:
            rows = self._of_words([max(token, 0) for token in tokens])
        except RuntimeError as error:
            raise EngineFailed(reason=reason_of(error)) from error
        for place in (place for place, token in enumerate(tokens) if begins(token)):
            end = image_end(tokens, place)
            rows[place:end] = required(self.image_encoder).rows(tokens[place])[: end - place]
        return self._words.get_output_tensor()

    def _of_words(self, ids: Sequence[int]) -> Any:
        """The graph's own memory, of the shape (ids, width)."""
        rows = self._words.infer([self._library.tensor(ids)], share_outputs=True)[0][0]
        if self._scale != 1.0:
            rows *= self._scale
        return rows
