"""How many clients are taken, by the number of descriptors."""

from __future__ import annotations

import pytest

from modeld.rpc.admission import FOR_COMMANDS, KEPT_BACK, LEAST, admission

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("descriptors", [16, 64, 128, 256, 1024, 4096, None])
def test_what_is_kept_back_grows_no_smaller(descriptors: int | None) -> None:
    found = admission(descriptors, 512)
    together = found.greeted + FOR_COMMANDS + found.silent
    assert (found.greeted >= 2, found.silent >= 2) == (True, True)
    assert together <= max(512 if descriptors is None else descriptors - KEPT_BACK, LEAST)


def test_a_command_is_let_in_where_an_editor_is_not() -> None:
    found = admission(1024, 512)
    assert found.takes(found.greeted - 1, command=False)
    assert not found.takes(found.greeted, command=False)
    assert found.takes(found.greeted, command=True)
    assert not found.takes(found.greeted + FOR_COMMANDS, command=True)
