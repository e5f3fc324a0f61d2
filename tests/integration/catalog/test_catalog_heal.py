"""A bridge that began while modeld was down heals at its first prompt, by one look, with a real modeld."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest

from acp_bridge.app import make_core
from acp_bridge.core.core import Core
from bridge_fakes import Bench, bridge
from modeld_process import Modeld
from shared.errors import ModeldError
from shared.paths import DataRoot
from shared.settings import Settings
from tiny_gguf import write_tiny_gguf

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.llama, pytest.mark.timeout(120)]


class RealBench(Bench):
    """The core as the process has it: the real records, library and store; each reconcile is counted.

    The records are looked at so seldom that only the heal can find what changed.
    """

    def __init__(self, root: DataRoot, models: Path) -> None:
        super().__init__(root.path)
        self.root = root
        self.settings = msgspec.structs.replace(Settings(), away_check=1000.0, model_folders=(str(models),))
        self.reconciles = 0

    def build(self, pid: int = 1) -> Core:
        del pid
        core = make_core(self.root, self.settings)
        refresh = core.models._inventory.refresh

        def counted(wait: float = 0.0) -> object:
            self.reconciles += 1
            return refresh(wait)

        core.models._inventory.refresh = counted  # type: ignore[method-assign]
        return core


@pytest.fixture
def bench(data_root: DataRoot, short_tmp: Path) -> RealBench:
    for seed, name in enumerate(("alpha", "beta"), start=1):
        write_tiny_gguf(short_tmp / "models" / f"{name}.gguf", name=name, seed=seed, context=256)
    return RealBench(data_root, short_tmp / "models")


async def test_the_first_prompt_after_the_daemons_return_is_one_reconcile(
    bench: RealBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELD_MODEL_FOLDERS", str(bench.settings.model_folders[0]))
    async with bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        with pytest.raises(ModeldError) as down:
            await client.prompt(session, "hi")
        assert down.value.kind == "daemon_not_running"
        before = bench.reconciles
        async with Modeld(bench.root, "llama"):
            done = await client.prompt(session, "hi")
            assert done["_meta"]["modeld.turn"]["model"] == "alpha"
            assert bench.reconciles == before + 1
            again = await client.prompt(session, "again")
            assert again["_meta"]["modeld.turn"]["model"] == "alpha"
            assert bench.reconciles == before + 1


async def test_many_prompts_at_once_are_one_reconcile(bench: RealBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in a conversation of its own, all of them missing their model at the same moment."""
    monkeypatch.setenv("MODELD_MODEL_FOLDERS", str(bench.settings.model_folders[0]))
    async with bridge(bench) as client:
        await client.initialize()
        sessions = [await client.new() for _ in range(5)]
        async with Modeld(bench.root, "llama"):
            async with anyio.create_task_group() as group:
                for session in sessions:
                    group.start_soon(client.prompt, session, "hi")
        assert bench.reconciles == 1
