"""The tree tells where things are: no folder so full that one has to search it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit
ROOT = Path(__file__).resolve().parents[3]
MOST = 15
#: One file a method, and nothing else: found by its name.
ONE_A_METHOD = {"acp_bridge/faces/acp/methods", "acp_bridge/faces/lsp/features"}


def test_no_room_of_the_bridge_is_crowded() -> None:
    files = [path.relative_to(ROOT) for path in (ROOT / "acp_bridge").rglob("*.py")]
    rooms = Counter(path.parent.as_posix() for path in files if path.name != "__init__.py")
    assert len(rooms) > 10, "the tree was found"
    crowded = {room: count for room, count in rooms.items() if count > MOST and room not in ONE_A_METHOD}
    assert crowded == {}
