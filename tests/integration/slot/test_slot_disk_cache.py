"""Conversations kept on disk, through the daemon: a switch and back, and a restart; off by default."""

from __future__ import annotations

import pytest

from modeld.engine.kv_disk_cache import files_under
from modeld_process import Modeld
from shared.paths import DataRoot
from shared.protocol import api

pytestmark = [pytest.mark.integration, pytest.mark.llama, pytest.mark.anyio, pytest.mark.timeout(120)]
SHORT = api.Sampling(max_tokens=8, temperature=0.0)
LONG = "the river runs through the valley " * 10
KEPT = {"MODELD_PARKED_DISK_BYTES": str(64 << 20)}


async def test_a_conversation_is_warm_behind_a_switch_and_behind_a_restart(models: DataRoot) -> None:
    async with Modeld(models, "llama", **KEPT) as modeld, modeld.client() as client:
        cold = await client.turn("a", LONG, params=SHORT).end()
        assert cold.usage.reused == 0
        await client.turn("b", LONG, params=SHORT, allow_switch=True).end()
        back = await client.turn("a", LONG, params=SHORT, allow_switch=True).end()
        assert back.usage.reused == cold.usage.prefilled - 1
    async with Modeld(models, "llama", **KEPT) as modeld, modeld.client() as client:
        again = await client.turn("a", LONG, params=SHORT).end()
        assert again.usage.reused == cold.usage.prefilled - 1
    assert len(list(files_under(models.parked))) == 2, "one of each model"


async def test_by_default_nothing_is_kept(models: DataRoot) -> None:
    async with Modeld(models, "llama") as modeld, modeld.client() as client:
        await client.turn("a", LONG, params=SHORT).end()
        await client.turn("b", LONG, params=SHORT, allow_switch=True).end()
        back = await client.turn("a", LONG, params=SHORT, allow_switch=True).end()
        assert back.usage.reused == 0
    assert not models.parked.exists()
