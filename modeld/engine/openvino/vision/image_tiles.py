"""Which squares of an image a family of models looks at (pure).

Families as openvino.genai has them, so that an image becomes the rows that the model's makers meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

_MOST_TILES = 12


class View(NamedTuple):
    """A square whose corner lies at (`left`, `top`) of the image brought to `width` x `height` pixels."""

    width: int
    height: int
    left: int
    top: int


class Family(NamedTuple):
    """The words around an image, and `views(width, height, side)`: its squares in the order of their rows."""

    before: str
    after: str
    views: Callable[[int, int, int], list[View]]


def middle(width: int, height: int, side: int) -> list[View]:
    """Cut the largest square out of the middle of an image."""
    scale = side / min(width, height)
    wide, high = max(int(width * scale), side), max(int(height * scale), side)
    return [View(wide, high, (wide - side) // 2, (high - side) // 2)]


def tiles(width: int, height: int, side: int) -> list[View]:
    """Up to twelve squares, row by row, in the grid whose proportions are nearest; of several also the whole, small."""
    across, down = _grid(width, height, side)
    wide, high = across * side, down * side
    views = [View(wide, high, column * side, row * side) for row in range(down) for column in range(across)]
    return views if len(views) == 1 else [*views, View(side, side, 0, 0)]


def _grid(width: int, height: int, side: int) -> tuple[int, int]:
    """(columns, rows). Of grids of the same proportions the largest that the image fills by half."""
    span = range(1, _MOST_TILES + 1)
    grids = sorted(
        ((across, down) for across in span for down in span if across * down <= _MOST_TILES),
        key=lambda grid: grid[0] * grid[1],
    )
    best, nearest = (1, 1), float("inf")
    for across, down in grids:
        away = abs(width / height - across / down)
        if away < nearest or (away == nearest and width * height > side * side * across * down / 2):
            best, nearest = (across, down), away
    return best


FAMILIES = {"llava": Family("", "\n", middle), "internvl_chat": Family("<img>", "</img>\n", tiles)}
