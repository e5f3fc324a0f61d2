"""Every file under the data root is its owner's alone: one rule, held in the source and by the files themselves."""

from __future__ import annotations

import ast
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.system import private

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
#: What is written here are the user's own files, in places of their own.
ELSEWHERE = {
    "acp_bridge/cli/export_command.py": "an exported conversation, where the user wants it",
    "acp_bridge/install/change.py": "an editor's settings",
    "acp_bridge/tools/workspace.py": "files of the workspace",
    "modeld/cli/configfile.py": "the config file",
    "modeld/cli/commands/service.py": "a unit of the service manager",
}


def calls() -> Iterator[tuple[str, ast.Call, str]]:
    """Every call in the product: file, node, and the name called."""
    for folder in ("acp_bridge", "modeld", "shared"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    yield str(path.relative_to(ROOT)), node, ast.unparse(node.func)


def test_what_is_written_is_made_by_the_rule() -> None:
    broken = [f"{file}:{node.lineno} {name}" for file, node, name in calls() if _breaks(node, name)]
    left = [where for where in broken if where.partition(":")[0] not in ELSEWHERE]
    assert not left, "use shared.system.private: " + ", ".join(left)


def _breaks(node: ast.Call, name: str) -> bool:
    if name == "os.open":
        return "O_CREAT" in ast.unparse(node) and not _is_private(node)
    if name == "open":
        by_rule = any(keyword.arg == "opener" for keyword in node.keywords)
        return _makes(node) and not by_rule and not _is_descriptor(node)
    if name.endswith(".mkdir"):
        return any(keyword.arg == "parents" for keyword in node.keywords)
    return name.endswith((".write_bytes", ".write_text"))


def _makes(node: ast.Call) -> bool:
    """Whether the mode of an `open` may make a file."""
    modes = [one.value for one in node.args[1:2] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return any(set(mode) & set("wax") for mode in modes)


def _is_private(node: ast.Call) -> bool:
    return len(node.args) > 2 and isinstance(node.args[2], ast.Constant) and node.args[2].value == 0o600


def _is_descriptor(node: ast.Call) -> bool:
    """Opened already, with its mode: `open(1, "w")`, `open(descriptor, "wb")`."""
    first = ast.unparse(node.args[0])
    return first.isdigit() or first == "descriptor"


@pytest.mark.skipif(os.name == "nt", reason="modes are those of Unix")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_rule_holds_under_any_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        private.write(tmp_path / "small", b"1")
        private.write(tmp_path / "small", b"2")
        with open(tmp_path / "large", "wb", opener=private.opener) as file:
            file.write(b"3")
        private.folder(tmp_path / "a" / "b" / "c")
        private.folder(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    for name in ("small", "large", "a", "a/b", "a/b/c"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) & 0o077 == 0
    assert sorted(os.listdir(tmp_path)) == ["a", "large", "small"], "nothing is left beside them"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    private.write(tmp_path / "kept", b"old")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"folder|denied|Directory|directory"):
        private.write(tmp_path / "folder", b"new")
    assert (tmp_path / "kept").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["folder", "kept"]


def test_nobody_is_forgotten() -> None:
    files = {file for file, _, _ in calls()}
    assert set(ELSEWHERE) <= files, sys.modules[__name__].__doc__
