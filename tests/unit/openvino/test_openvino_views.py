"""Which squares of an image a model looks at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeld.engine.images import MOST_PIXELS
from modeld.engine.openvino.vision.image_tiles import FAMILIES, View, middle, tiles
from shared.catalog.multi_graph import SEEN

pytestmark = pytest.mark.unit
SIDE = 448
SIDES = st.integers(1, 20_000)


def test_the_catalog_knows_the_same_families() -> None:
    assert set(FAMILIES) == SEEN


@pytest.mark.parametrize(
    ("width", "height", "view"),
    [(448, 448, (448, 448, 0, 0)), (896, 448, (896, 448, 224, 0)), (100, 300, (448, 1344, 0, 448))],
)
def test_the_middle_is_as_large_as_the_image_allows(width: int, height: int, view: View) -> None:
    assert middle(width, height, SIDE) == [view]


def test_the_grid_has_the_images_proportions_and_the_whole_comes_last() -> None:
    assert tiles(448, 448, SIDE) == [(448, 448, 0, 0)]
    assert tiles(1000, 500, SIDE) == [(896, 448, 0, 0), (896, 448, 448, 0), (448, 448, 0, 0)]
    assert tiles(100, 200, SIDE) == [(448, 896, 0, 0), (448, 896, 0, 448), (448, 448, 0, 0)]


def test_a_larger_image_of_the_same_proportions_gets_a_larger_grid() -> None:
    assert len(tiles(500, 500, SIDE)) == 1
    assert len(tiles(2000, 2000, SIDE)) == 3 * 3 + 1


@given(width=SIDES, height=SIDES, family=st.sampled_from(sorted(FAMILIES)))
def test_every_view_lies_within_the_image(width: int, height: int, family: str) -> None:
    """Also of one that is a line: how far it is stretched costs nothing, only squares are ever made."""
    if width * height > MOST_PIXELS:
        return
    views = FAMILIES[family].views(width, height, SIDE)
    assert 1 <= len(views) <= 13
    for view in views:
        assert 0 <= view.left <= view.width - SIDE
        assert 0 <= view.top <= view.height - SIDE
