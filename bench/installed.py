"""Start-up as a user has it: the bridge out of the built wheel, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from uv import find_uv_bin

from bench.table import Table

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 15
_HELLO = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}) + "\n"


def measure(table: Table) -> None:
    """Spawn to the answer of `initialize`, and what the installation takes on disk."""
    with tempfile.TemporaryDirectory(prefix="md-") as name:
        folder = Path(name)
        python = _install(folder)
        environ = {"HOME": name, "PATH": os.environ["PATH"], "MODELD_DATA_ROOT": str(folder / "data")}
        command = [str(python.parent / "acp-bridge"), "acp"]
        _answered([*command], environ)  # the caches of the file system
        bridge, module, interpreter = [], [], []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            subprocess.run([python, "-c", "import asyncio"], env=environ, check=True)
            interpreter.append(time.perf_counter() - started)
            bridge.append(_answered(command, environ))
            module.append(_answered([str(python), "-P", "-m", "acp_bridge", "acp"], environ))
        table.at_most("from the wheel: spawn to ACP initialize answer", bridge, 150, "ms", scale=1000)
        ratios = [ours / theirs for ours, theirs in zip(bridge, interpreter, strict=True)]
        table.at_most("the same, in interpreters that import asyncio", ratios, 2.5, "times")
        costs = [script / plain for script, plain in zip(bridge, module, strict=True)]
        table.at_most("the same, in starts by `python -m acp_bridge`", costs, 1.1, "times")
        size = sum(each.stat().st_size for each in (folder / "venv").rglob("*") if each.is_file())
        table.add("installation without an engine, on disk", f"{size / 1e6:.0f} MB")


def _install(folder: Path) -> Path:
    """The interpreter of a fresh environment with the wheel, byte code compiled as pip does."""
    uv = str(find_uv_bin())
    _run(uv, "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT))
    _run(uv, "venv", "--quiet", "--python", sys.executable, str(folder / "venv"))
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("modeld-*.whl")
    constraints = str(ROOT / "constraints.txt")
    install = ("pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), "-c", constraints)
    _run(uv, *install, str(wheel))
    return python


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _answered(command: list[str], environ: dict[str, str]) -> float:
    """Seconds from the spawn to the first answer."""
    started = time.perf_counter()
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(_HELLO)
        process.stdin.flush()
        assert '"protocolVersion":1' in process.stdout.readline()
        took = time.perf_counter() - started
        process.stdin.close()
        process.wait(5)
    return took
