"""OpenVINO folders of several graphs (pure): text embeddings, image embeddings and the language model.

The engine takes such a prompt as rows. What else a language graph wants (positions of several parts, more about its
images) the engine fills in only for prompts that it has read itself, and that reading does not hold what a turn
promises (see docs/design/engines.md): such models are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from shared.catalog.entry import Facts, ModelEntry
from shared.catalog.scan import IR_LANGUAGE

LANGUAGE = IR_LANGUAGE.removesuffix(".xml")
WORDS = "openvino_text_embeddings_model"
IMAGES = "openvino_vision_embeddings_model"
#: Families whose images are squares that the one graph makes rows of (the engine's image_tiles.py has them too).
SEEN = frozenset({"internvl_chat", "llava"})

_ROWS, _POSITIONS = "inputs_embeds", "position_ids"
#: `token_type_ids` (Gemma 3) says which rows are an image's: of words alone it may stay empty.
_FILLED = frozenset({_ROWS, _POSITIONS, "attention_mask", "beam_idx", "token_type_ids"})


def of_several(facts: Facts, graphs: Collection[str], inputs: Mapping[str, str] | None) -> Facts:
    """The facts of a folder with these graphs; `inputs`: names and shapes of the language graph's, None if unread."""
    unusable = facts.unusable or _unusable(graphs, inputs)
    return msgspec.structs.replace(facts, takes_rows=True, vision=facts.architecture in SEEN, unusable=unusable)


def projector_path(entry: ModelEntry) -> str:
    """The file which the model needs for images: its projector, or its folder's vision graph; "" of one for words.

    What lies in the folder is named from there, so that a copy of the folder has the same.
    """
    if entry.vision and entry.takes_rows:
        return f"{IMAGES}.xml"
    return entry.projector


def _unusable(graphs: Collection[str], inputs: Mapping[str, str] | None) -> str:
    missing = [one for one in (WORDS, IMAGES) if one not in graphs]
    if missing:
        return f"{missing[0]}.xml is missing; convert it again"
    if inputs is None:
        return ""
    odd = sorted(set(inputs) - _FILLED)
    if odd:
        return f"its language graph wants {', '.join(odd)} besides, which OpenVINO gives it in prompts of its own alone"
    if inputs.get(_POSITIONS, "").count(",") > 1:
        return "its positions have several parts, which OpenVINO knows in prompts of its own alone"
    if _ROWS not in inputs:
        return f"{LANGUAGE}.xml does not take {_ROWS}"
    return ""
