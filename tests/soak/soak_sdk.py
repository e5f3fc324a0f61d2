"""Each answer of the table read by the official `openai` package as well: where the two differ, and who is right.

    python tests/soak/soak_sdk.py [--out docs/soak/sdk.md]

The package gets an environment of its own (`.work/sdk`). Ends with 1 where the package got more than the bridge.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import venv
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from provider_answers import CASES, Case, Handler, Server

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
HOME = ROOT / ".work" / "sdk"
#: Verdicts by kind of difference; the last one is the package's.
KINDS = {
    "a failure or a cut is taken for a whole answer": "the bridge",
    "one odd piece ends the answer": "the bridge",
    "text or calls are lost": "the bridge",
    "thoughts stand in the answer": "the bridge",
    "the bridge gets less": "the package",
}


def environment() -> Path:
    """The package's own Python."""
    python = HOME / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(HOME, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "openai>=3,<4"], check=True)
    return python


def outcomes(python: Path) -> dict[str, Any]:
    """What the package gets of each answer."""
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}/v1"
        command: list[str | Path] = [python, TESTS / "sdk_reader.py", address]
        done = subprocess.run(command, input=json.dumps(list(CASES)), stdout=subprocess.PIPE, text=True, check=True)
        Server.closing.set()
        server.shutdown()
        thread.join()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def difference(case: Case, got: dict[str, Any]) -> str:
    """The kind of a difference, "" where both get the same. The bridge gets what the table's test holds it to."""
    if case.error or got["error"]:
        if case.error and got["error"]:
            return ""
        if case.error:
            return "a failure or a cut is taken for a whole answer"
        usable = got["error"].startswith("APIError")
        return "the bridge gets less" if usable else "one odd piece ends the answer"
    calls = [list(call) for call in case.calls]
    same_calls = [name for name, _ in calls] == [name for name, _ in got["calls"]]
    if got["text"] == case.text and same_calls:
        return ""
    if case.thinking and case.thinking in got["text"]:
        return "thoughts stand in the answer"
    more = len(got["text"]) > len(case.text) or len(got["calls"]) > len(calls)
    return "the bridge gets less" if more else "text or calls are lost"


def page(found: dict[str, list[str]], version: str) -> str:
    """The result page."""
    date = time.strftime("%Y-%m-%d", time.gmtime())
    differing = sum(map(len, found.values()))
    head = [
        "# The bridge and the official package",
        "",
        f"Run on {date}: {len(CASES)} answers of one server, read by the bridge (`tests/provider_answers.py` says what",
        f"it has to get, `test_bridge_provider_answers.py` that it does) and by `openai` {version} as its manual does.",
        f"Of {differing} they get different things. Made by `tests/soak/soak_sdk.py`.",
        "",
        "| what the package does | answers | right | which |",
        "| --- | --- | --- | --- |",
    ]
    rows = [f"| {kind} | {len(found[kind])} | {KINDS[kind]} | {'; '.join(found[kind]) or '-'} |" for kind in KINDS]
    return "\n".join([*head, *rows]) + "\n"


def main() -> int:
    """1 where the package gets more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "soak" / "sdk.md")
    options = parser.parse_args()
    python = environment()
    got = outcomes(python)
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name, case in CASES.items():
        kind = difference(case, got[name])
        if kind:
            found[kind].append(name)
    asked: list[str | Path] = [python, "-c", "import openai; print(openai.__version__)"]
    version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    options.out.write_text(page(found, version), encoding="utf-8")
    lost = found["the bridge gets less"]
    print(f"written: {options.out}; the package gets more of {len(lost)}: {', '.join(lost) or 'none'}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
