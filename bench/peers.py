"""What modeld is measured beside: llama-server and llama-bench, built from the sources that llama-cpp-python's own
sdist carries (about nine minutes of CPU the first time), and `xllamacpp` from the package index, a wheel.

Both are kept outside the checkout, and no part of the product needs them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from bench.table import Table, spread
from vendored import source_archive
from weights import CACHE

BUILD_SECONDS = 3600
#: Its version names a build of llama.cpp of the same month as the one that llama-cpp-python 0.3.36 carries.
XLLAMA = "xllamacpp==2026.10.11549"
#: no downloads at build time, no tests, nothing shared: two programs that can be copied
OPTIONS = (
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DBUILD_SHARED_LIBS=OFF",
)


def build() -> Path:
    """The folder with both programs. Raises RuntimeError naming what is missing."""
    release = version("llama_cpp_python")
    target = CACHE / f"peers-{release}"
    if (target / "llama-bench").exists():
        return target
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            raise RuntimeError(f"{tool} is missing: apt-get install build-essential cmake")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="peers-") as name:
        work = Path(name)
        archive = source_archive(work)
        with tarfile.open(archive) as content:
            content.extractall(work, filter="data")
        (source,) = work.glob("*/vendor/llama.cpp")
        _run(["cmake", "-S", str(source), "-B", str(work / "build"), "-DCMAKE_BUILD_TYPE=Release", *OPTIONS])
        jobs = os.environ.get("BENCH_JOBS", str(os.cpu_count() or 1))
        build = ["nice", "-n", "19", "cmake", "--build", str(work / "build"), "-j", jobs]
        _run([*build, "--target", "llama-server", "llama-bench"])
        target.mkdir(exist_ok=True)
        for program in ("llama-server", "llama-bench"):
            shutil.copy(work / "build" / "bin" / program, target / program)
    return target


def xllama() -> Path:
    """The folder that `xllamacpp` can be imported from. Raises RuntimeError."""
    target = CACHE / XLLAMA.replace("==", "-")
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="xllamacpp-") as name:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
            _run([*pip, "--target", f"{name}/package", XLLAMA])
            os.replace(f"{name}/package", target)
    return target


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")


def measure(table: Table, model: Path) -> None:
    """Decode and prefill rates of llama-bench, for comparison with the rows of the llama engine."""
    programs = build()
    command = [str(programs / "llama-bench"), "-m", str(model), "-p", "512", "-n", "128", "-r", "5", "-o", "json"]
    done = subprocess.run(
        [*command, "-t", str(os.cpu_count() or 1)], capture_output=True, text=True, timeout=600, check=True
    )
    for result in json.loads(done.stdout):
        what = f"prefill of {result['n_prompt']}" if result["n_prompt"] else f"decode of {result['n_gen']}"
        table.add(f"llama-bench: {what}, tokens/s", spread(result["samples_ts"]))
