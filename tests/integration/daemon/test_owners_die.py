"""Bridges in turns while owners are killed. The soak runs twenty for two minutes: see tests/soak/soak_owners.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from churn import Churn

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


def test_bridges_go_on_while_their_owners_die(short_tmp: Path) -> None:
    churn = Churn(short_tmp, bridges=4, deaths=5, every=3.0)
    churn.run()
    print(churn.outcomes, f"killed {churn.killed}, frozen {churn.frozen}, longest {max(churn.turn_seconds):.1f} s")
    assert not churn.problems, "\n".join(churn.problems)
    assert (churn.killed, churn.frozen) == (4, 1)
    assert churn.outcomes["end_turn"] >= 5
