"""Paths that are not ours are looked at through `shared.system.foreign` alone, which nobody waits for."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "scripts"))

from steps import ROOT

pytestmark = pytest.mark.unit

#: Where models are found, read, fetched and measured.
PLACES = ("shared/catalog", "shared/fetch", "modeld/library", "modeld/slot", "modeld/memory/policy.py")
COMMANDS = ("library", "list", "load", "pull", "rm")
_OS = {"stat", "lstat", "listdir", "scandir", "open", "readlink", "access"}
_OS_PATH = {"exists", "lexists", "isdir", "isfile", "islink", "ismount", "getsize", "getmtime", "realpath", "samefile"}
_PATH = {
    "exists", "is_dir", "is_file", "is_symlink", "stat", "lstat", "iterdir", "glob", "rglob", "read_bytes", "read_text",
    "resolve", "readlink", "samefile", "open",
}  # fmt: skip

#: Each function that makes such a call itself, and why it may: `ours` looks at the data root or at this installation,
#: `inside` is run by `Foreign.call`, `Foreign.each` or `ask` only.
ALLOWED = {
    "shared/catalog/fingerprint.py": {"fingerprint": "inside", "checksum": "inside"},
    "shared/catalog/formats/openvino.py": {
        "_scan": "inside", "_listing": "inside", "_size": "inside", "_read": "inside",
    },
    "shared/catalog/library.py": {"_pass": "inside", "_is_gone": "inside"},
    "shared/catalog/pulled_record.py": {"read_record": "ours", "stored_size": "ours", "own_records": "ours"},
    "shared/catalog/reader.py": {"read_gguf": "inside", "weight_files": "inside"},
    "shared/catalog/scan.py": {
        "again": "inside", "_is_folder": "inside", "_file": "inside", "_ir": "inside", "_is_link": "inside",
        "_listed": "inside", "_kind": "inside", "_beginning": "inside", "_changed": "inside",
    },
    "shared/fetch/download.py": {"_copy": "ours", "mark_of": "ours", "_size": "ours"},
    "shared/fetch/hub.py": {"_text": "inside"},
    "shared/fetch/local.py": {"__init__": "inside", "_chunks": "inside", "fetch": "ours"},
    "shared/fetch/partial.py": {"partials": "ours", "_bytes": "ours", "_remove": "ours"},
    "shared/fetch/pip_command.py": {"_bundled": "ours"},
    "shared/fetch/pull.py": {
        "_store": "ours", "waiting": "ours", "_present": "ours", "_finish": "ours", "_folder": "ours", "_left": "ours",
        "_exists": "inside",
    },
    "shared/fetch/pull_lock.py": {"exclusive": "ours", "_is_current": "ours"},
    "shared/fetch/remove.py": {"remove": "ours"},
    "shared/fetch/starter.py": {"_download": "ours", "extract": "ours", "_fetched": "ours", "_last_line": "ours"},
    "modeld/slot/loading/planner.py": {"_sizes_of": "inside"},
    "modeld/slot/loading/projectors.py": {"signature": "inside"},
    "modeld/cli/commands/pull.py": {"_exists": "inside"},
    "modeld/cli/model_folders.py": {"_no_folder": "inside"},
}  # fmt: skip


def test_no_look_at_a_foreign_path_goes_past_the_one_helper() -> None:
    files = [file for place in PLACES for file in _sources(ROOT / place)]
    files += [ROOT / "modeld" / "cli" / "commands" / f"{name}.py" for name in COMMANDS]
    files.append(ROOT / "modeld" / "cli" / "model_folders.py")
    found = {str(file.relative_to(ROOT)): looks(file.read_text(encoding="utf-8")) for file in files}
    assert {file: set(names) for file, names in found.items() if names} == {
        file: set(names) for file, names in ALLOWED.items()
    }


@pytest.mark.parametrize(
    ("source", "function"),
    [
        ("def f(p):\n    return os.stat(p)", "f"),
        ("def f(p):\n    return os.path.isdir(p)", "f"),
        ("def f(p):\n    return open(p)", "f"),
        ("def f(p):\n    return p.is_dir()", "f"),
        ("def f(p):\n    g(p.stat)", "f"),
        ("x = Path('a').exists()", ""),
    ],
)
def test_what_counts_as_a_look(source: str, function: str) -> None:
    assert looks(source) == [function]


def test_what_does_not() -> None:
    assert looks("def f(found, p):\n    found.is_ok(); os.path.join(p, p); hub.resolve(p); Foreign().open") == []


def looks(source: str) -> list[str]:
    """The functions that call the system about a path, in order; "" for the module itself."""
    found: list[str] = []

    def visit(node: ast.AST, function: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
            if _is_look(child) and inner not in found:
                found.append(inner)
            visit(child, inner)

    visit(ast.parse(source), "")
    return found


def _is_look(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "open"
    if not isinstance(node, ast.Attribute):
        return False
    owner = node.value
    if isinstance(owner, ast.Name) and owner.id == "os":
        return node.attr in _OS
    if isinstance(owner, ast.Attribute) and owner.attr == "path" and isinstance(owner.value, ast.Name):
        return node.attr in _OS_PATH if owner.value.id == "os" else node.attr in _PATH
    modules = {"hub", "private", "stat", "re", "opener", "archive", "Foreign"}
    if isinstance(owner, ast.Name) and owner.id in modules | {"opener"}:
        return False
    return node.attr in _PATH - {"open"}


def _sources(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(place.rglob("*.py"))
