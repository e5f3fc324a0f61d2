"""The tree tells where things are: no folder so full that one has to search it, and no circle of imports."""

from __future__ import annotations

from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

pytestmark = pytest.mark.unit
ROOT = Path(__file__).resolve().parents[3]
PRODUCT = ("acp_bridge", "modeld", "shared", "editors/vscode/src")
MOST = 15
#: One file a method or a command, and nothing else: found by its name.
ONE_A_METHOD = {
    "acp_bridge/faces/acp/methods",
    "acp_bridge/faces/lsp/features",
    "modeld/cli/commands",
    "modeld/rpc/methods",
}


@pytest.mark.parametrize("part", PRODUCT)
def test_no_folder_of_the_product_is_crowded(part: str) -> None:
    files = [path.relative_to(ROOT) for path in (ROOT / part).rglob("*") if path.suffix in (".py", ".ts")]
    folders = Counter(path.parent.as_posix() for path in files if path.name != "__init__.py")
    assert len(folders) > 5, "the tree was found"
    crowded = {folder for folder, count in folders.items() if count > MOST}
    assert crowded - ONE_A_METHOD == set()


def test_what_is_excused_is_still_crowded() -> None:
    counts = {folder: len(list((ROOT / folder).glob("*.py"))) for folder in ONE_A_METHOD}
    assert {folder for folder, count in counts.items() if count < MOST} == set()


def circle_of(imports: dict[str, set[str]]) -> list[str]:
    """One circle of modules that import each other, or nothing."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_at_run_time() -> None:
    """Imports inside functions count; those for types alone do not."""
    graph = grimp.build_graph("acp_bridge", "modeld", "shared", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert "shared.lease.reader" in imports["modeld.client"], "imports were found"
    assert "modeld.engine.llama.engine" in imports["modeld.engine.factory"], "those inside functions too"
    assert circle_of(imports) == []


def test_a_circle_is_found() -> None:
    assert set(circle_of({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
