"""An image as the numbers that a vision graph takes. Worker only: here files from elsewhere are decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec

from modeld.engine.images import PromptImage
from modeld.engine.openvino.vision.image_tiles import View
from shared.errors import ImageUnusable
from shared.text.nesting import decode_json

#: What `modeld.engine.images` reads the headers of; nothing else is ever tried.
_FORMATS = ("PNG", "JPEG", "GIF", "BMP")


class Optics(msgspec.Struct, frozen=True, kw_only=True):
    """`side` of the square in pixels; `mean` and `std` of each colour, of values between 0 and 1."""

    side: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


class _Processor(msgspec.Struct):
    image_mean: tuple[float, float, float]
    image_std: tuple[float, float, float]
    size: int | dict[str, int] = 0
    crop_size: int | dict[str, int] = 0


def read_optics(folder: Path) -> Optics:
    """Out of `preprocessor_config.json`. Raises OSError, ValueError, MsgspecError."""
    config = decode_json((folder / "preprocessor_config.json").read_bytes(), _Processor)
    sizes = [
        size for one in (config.crop_size, config.size) for size in (one.values() if isinstance(one, dict) else [one])
    ]
    side = next((size for size in sizes if size > 0), 0)
    if side == 0 or min(config.image_std) <= 0:
        raise ValueError("preprocessor_config.json names no size")
    return Optics(side=side, mean=config.image_mean, std=config.image_std)


def squares(image: PromptImage, views: Sequence[View], optics: Optics) -> Iterator[Any]:
    """Each view as 32-bit floats of the shape (1, 3, side, side). Raises ImageUnusable."""
    import numpy as np
    from PIL import Image

    whole, side = _decoded(image), optics.side
    mean, std = (np.array(each, dtype=np.float32) for each in (optics.mean, optics.std))
    for view in views:
        across, down = whole.width / view.width, whole.height / view.height
        right, bottom = min((view.left + side) * across, whole.width), min((view.top + side) * down, whole.height)
        box = (view.left * across, view.top * down, right, bottom)  # what lies outside is never made
        pixels = np.asarray(whole.resize((side, side), Image.Resampling.BICUBIC, box), dtype=np.float32) / 255
        yield np.ascontiguousarray(((pixels - mean) / std).transpose(2, 0, 1)[None])


def _decoded(image: PromptImage) -> Any:
    from PIL import Image

    try:
        with Image.open(BytesIO(image.data), formats=_FORMATS) as opened:
            if opened.size == (image.width, image.height):
                return opened.convert("RGB")
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise ImageUnusable(reason="it cannot be decoded", index=image.index) from error
    raise ImageUnusable(reason="it is not as large as it says", index=image.index)
