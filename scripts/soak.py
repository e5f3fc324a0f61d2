"""`make soak`: every full count, with shortened leases; the results are written to docs/soak/.

First the tests with their full counts (`<date>.md`), then each program of tests/soak (`soak_lease.py` writes
`lease.md`, and so on). Standard library only. Arguments are handed to pytest; then the programs are left out.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import sys
import time
from xml.etree import ElementTree as ET

from prepare import setup
from steps import BIN, PYTHON, ROOT, StepFailed, fail, say, shown

PROGRAMS = ROOT / "tests" / "soak"
REPORT = ROOT / ".work" / "soak.xml"
#: the least ttl allowed: takeovers and grace periods pass ten times as fast
SHORT = {"MODELD_LEASE_TTL": "1"}


def main(arguments: list[str]) -> int:
    """Exit as pytest did, or with 1 when another soak failed."""
    try:
        setup(("dev", "mcp", "openvino", "remote", "llama"))
    except StepFailed as error:
        return fail(error)
    started = time.monotonic()
    environ = {**os.environ, **SHORT, "MODELD_TEST_COUNTS": "full"}
    environ["PATH"] = f"{BIN}{os.pathsep}{environ.get('PATH', os.defpath)}"
    selection = arguments or ["tests/integration", "tests/e2e"]
    code = shown([PYTHON, "-m", "pytest", "-q", "--timeout=3600", f"--junit-xml={REPORT}", *selection], environ=environ)
    target = ROOT / "docs" / "soak" / f"{dt.datetime.now(dt.UTC):%Y-%m-%d}.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(_page(time.monotonic() - started, code), encoding="utf-8")
    say(f"written: {target.relative_to(ROOT)}")
    return code if arguments else max(abs(code), _programs(environ))


def _programs(environ: dict[str, str]) -> int:
    """The soaks that are no tests: each writes a page of its own. 1 when one of them failed."""
    failed = [path.name for path in sorted(PROGRAMS.glob("soak_*.py")) if shown([PYTHON, path], environ=environ) != 0]
    for name in failed:
        say(f"FAILED: {name}")
    return 1 if failed else 0


def _page(seconds: float, code: int) -> str:
    suites = ET.parse(REPORT).getroot().iter("testsuite")
    counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    lines = []
    for suite in suites:
        for key in counts:
            counts[key] += int(suite.get(key, "0"))
        for case in suite.iter("testcase"):
            verdict = "failed" if case.find("failure") is not None or case.find("error") is not None else "passed"
            verdict = "skipped" if case.find("skipped") is not None else verdict
            lines.append(f"| {case.get('classname')} | {case.get('name')} | {case.get('time')} | {verdict} |")
    summary = ", ".join(f"{value} {key}" for key, value in counts.items())
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    head = [
        f"# Soak of {dt.datetime.now(dt.UTC):%Y-%m-%d}",
        "",
        f"Full counts, lease ttl 1 s; {machine}; {seconds:.0f} s; {'passed' if code == 0 else 'FAILED'}: {summary}.",
        "",
        "| module | test | seconds | verdict |",
        "| --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *lines]) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
