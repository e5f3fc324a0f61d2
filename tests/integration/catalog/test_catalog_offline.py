"""`modeld library` where there is nothing else: no daemon, no engine, and a data root that cannot be written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from modeld_process import write_models
from shared.paths import DataRoot

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

#: modeld on a machine on which no engine was ever installed.
WITHOUT_ENGINES = """
import importlib.util, sys
found = importlib.util.find_spec
def find_spec(name, package=None):
    return None if name.partition(".")[0] in ("llama_cpp", "openvino", "openvino_genai") else found(name, package)
importlib.util.find_spec = find_spec
from modeld.__main__ import main
code = main()
loaded = {name.partition(".")[0] for name in sys.modules} & {"llama_cpp", "openvino", "openvino_genai", "numpy"}
sys.exit(f"engines were imported: {loaded}" if loaded else code)
"""
#: For root the rights of a folder mean nothing: it gets a view of its own of the file system.
READ_ONLY = 'mount --bind -o ro "$1" "$1" && shift && exec "$@"'


def on_read_only(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_ENGINES, *arguments]
    if os.geteuid() == 0:
        command = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(root), *command]
    else:
        root.chmod(0o555)
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50, check=False
        )
    finally:
        root.chmod(0o700)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a view of the file system is Linux's")
def test_the_library_needs_no_daemon_no_engine_and_writes_nothing(data_root: DataRoot) -> None:
    write_models(data_root, "a", "b")
    (data_root.models / "broken.gguf").write_bytes(b"GGUF\x03\x00")
    before = sorted(data_root.path.rglob("*"))
    done = on_read_only(data_root.path, "library", "--json")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert sorted(rows) == ["a", "b", "broken"]
    assert "fits with context" in rows["a"]["reason"], "the verdict is there before any load"
    assert "estimate" in rows["a"]["reason"]
    assert rows["a"]["actions"] == ["install_engine"], "a start would not make it usable"
    assert rows["broken"]["state"] == "not servable"
    assert sorted(data_root.path.rglob("*")) == before, "nothing was written"
    table = on_read_only(data_root.path, "library")
    assert "NAME" in table.stdout, table.stderr
