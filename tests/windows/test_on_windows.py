"""Runs the tests that need Windows with a Windows Python under wine, each file as one test here.

All files run in one process over there, since wine takes seconds to start one.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

import windows_python

assert sys.platform != "win32"

pytestmark = [
    pytest.mark.windows,
    pytest.mark.timeout(1200),  # the first test of a machine installs wine, and runs them all
]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

#: parts of the normal suite that must hold on Windows as they stand
SHARED = [
    "tests/unit/protocol/test_framing.py",
    "tests/unit/protocol/test_message.py",
    "tests/unit/protocol/test_outbox.py",
    "tests/unit/protocol/test_peer_basics.py",
    "tests/unit/protocol/test_peer_wire.py",
    "tests/unit/endpoint/test_pipe_rules.py",
    "tests/unit/engine/test_outgoing.py",
]
INSIDE = [f"tests/windows/inside/{path.name}" for path in sorted((HERE / "inside").glob("windows_*.py"))]


class Outcome(NamedTuple):
    """What one run over there said."""

    report: str
    passed: Counter[str]
    failed: dict[str, list[str]]


@pytest.fixture(scope="session")
def windows() -> Iterator[windows_python.WindowsPython]:
    try:
        machine = windows_python.prepare()
    except windows_python.WineMissing as missing:
        pytest.skip(f"*** NOT TESTED ON WINDOWS *** {missing}")
    yield machine
    machine.stop()


@pytest.fixture(scope="session")
def outcome(windows: windows_python.WindowsPython, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    results = tmp_path_factory.mktemp("windows") / "results.xml"
    there = windows_python.windows_path
    done = windows.run(
        "-m",
        "pytest",
        *(there(ROOT / file) for file in SHARED + INSIDE),
        "-q",
        "--noconftest",
        *("-p", "windows_fixtures", "-p", "no:cacheprovider"),
        *("-o", "pythonpath=" + " ".join(there(path).replace("\\", "/") for path in (ROOT, ROOT / "tests", HERE))),
        *("--strict-markers", "--timeout=60", f"--rootdir={there(ROOT)}", f"--junitxml={there(results)}"),
        *("-c", there(HERE / "inside" / "pytest.ini")),
        environ={"MODELD_CHECKOUT": there(ROOT)},
    )
    report = f"exit {done.returncode}\n{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
    assert results.exists(), report
    return _read(results, report)


def _read(results: Path, report: str) -> Outcome:
    passed: Counter[str] = Counter()
    failed: dict[str, list[str]] = {}
    for case in ET.parse(results).iter("testcase"):
        file = case.get("classname", "").replace(".", "/") + ".py"
        if len(case) == 0 or {child.tag for child in case} <= {"system-out", "system-err", "properties"}:
            passed[file] += 1
        else:  # a failure, an error, or a skip: nothing may be skipped over there
            failed.setdefault(file, []).append(case.get("name", "") + "".join(child.text or "" for child in case))
    return Outcome(report, passed, failed)


@pytest.mark.parametrize("file", SHARED + INSIDE)
def test_on_windows(outcome: Outcome, file: str) -> None:
    assert not outcome.failed.get(file), "\n".join(outcome.failed[file])
    assert outcome.passed[file] > 0, outcome.report
