"""`make test`: installs everything, then lint, types and all tests, each with its duration.

`--lint` stops after the checks. `--editor` runs every scenario in the real VS Code, and nothing else: `make test` runs
the few marked `core_editor`, because what depends on an editor's own timing must not decide about a change.

Standard library only. Arguments are handed to pytest. What this machine cannot test (no compiler for the llama
engine, no browser for the VS Code) is said at the start and again at the end, and `MODELD_UNTESTED` tells the tests.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import editor
from prepare import setup
from steps import BIN, PYTHON, ROOT, StepFailed, captured, fail, say, shown

REQUIRED = ("dev", "docs", "http", "mcp", "openvino", "remote")
OPTIONAL = ("editor", "llama")
PLATFORMS = ("linux", "darwin", "win32")
#: Processes that share the tests, whole files each: one more than processors, since most of a test is waiting; each may
#: hold a model.
PROCESSES = min((os.cpu_count() or 1) + 1, 6)
#: pytest's exit codes
PASSED, SOME_FAILED = 0, 1
#: Tests that may need their second run: more of them are no accident of a busy machine any more.
MOST_AGAIN = 3
FAILED_BEFORE = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
ORDINARY = "not editor or core_editor"

Step = tuple[str, list[str | Path]]


def _types(platform: str) -> Step:
    """The product as each platform sees it; the tests as the one they are written on."""
    command: list[str | Path] = [PYTHON, "-m", "mypy", "--no-error-summary", "--platform", platform]
    command += ["--cache-dir", ROOT / ".mypy_cache" / platform]
    return f"types ({platform})", command if platform == "linux" else [*command, "acp_bridge", "modeld", "shared"]


LINT: list[Step] = [
    ("ruff", [BIN / "ruff", "check", "--quiet", "."]),
    ("imports", [BIN / "lint-imports", "--no-cache"]),
    *(_types(platform) for platform in PLATFORMS),
]


def lint() -> list[tuple[str, float, int, str]]:
    """All checks at once, each to its end, also where another has failed: name, seconds, exit code and what it said."""
    with ThreadPoolExecutor(len(LINT)) as pool:
        return [(step[0], *done) for step, done in zip(LINT, pool.map(_checked, LINT), strict=True)]


def _checked(step: Step) -> tuple[float, int, str]:
    started = time.monotonic()
    code, output = captured(step[1])
    return time.monotonic() - started, code, output


def _timed(name: str, command: list[str | Path], environ: dict[str, str] | None = None) -> tuple[str, float, bool]:
    started = time.monotonic()
    passed = shown(command, environ=environ) == 0
    return name, time.monotonic() - started, passed


def _tests(arguments: list[str], environ: dict[str, str]) -> tuple[list[tuple[str, float, bool]], list[str]]:
    """Those that were asked for; all of them in several processes, and what failed there once more, alone.

    Returns the rows of the table of durations, and the names of the tests that ran twice.
    """
    pytest: list[str | Path] = [PYTHON, "-m", "pytest", "-q"]
    if arguments:
        return [_timed("tests", [*pytest, *arguments], environ)], []
    started = time.monotonic()
    pytest += ["-m", ORDINARY]
    # what failed in an earlier run is forgotten, so that the names reported at the end are of this one
    code = shown([*pytest, "-n", str(PROCESSES), "--no-loadscope-reorder", "--cache-clear"], environ=environ)
    rows = [("tests", time.monotonic() - started, code in (PASSED, SOME_FAILED))]
    if code != SOME_FAILED:
        return rows, []
    twice = sorted(json.loads(FAILED_BEFORE.read_text(encoding="utf-8")))
    say("\n*** what failed beside the others runs once more, alone; twice is failed ***")
    again = [*pytest, "--last-failed", "--last-failed-no-failures", "none"]
    name, seconds, passed = _timed("tests, again", again, environ)
    return [*rows, (name, seconds, passed and len(twice) <= MOST_AGAIN)], twice


def _editor_ready() -> bool:
    try:
        editor.setup()
    except StepFailed as error:
        say(f"\n{error}\n\n*** VS Code could not be set up: what needs it is NOT tested ***")
        return False
    return True


def main(arguments: list[str]) -> int:
    """Exit 0 when all passed."""
    started = time.monotonic()
    only_lint = arguments == ["--lint"]
    if arguments[:1] == ["--editor"]:
        arguments = ["-m", "editor", "tests/e2e/vscode", *arguments[1:]]
    try:
        have = setup(REQUIRED, () if only_lint else OPTIONAL)
    except StepFailed as error:
        return fail(error)
    durations = [("set-up", time.monotonic() - started, True)]
    twice: list[str] = []
    untested = sorted(set(OPTIONAL) - have)
    with ThreadPoolExecutor(1) as beside:  # the editor is mostly fetched
        checks = beside.submit(lint)
        if not only_lint and "editor" not in untested and not _editor_ready():
            untested = sorted([*untested, "editor"])
        for name, seconds, code, output in checks.result():
            say(f"== {name}\n{output}".rstrip())
            durations.append((name, seconds, code == 0))
    if not only_lint:
        environ = {**os.environ, "MODELD_UNTESTED": ",".join(untested)}
        environ["PATH"] = f"{BIN}{os.pathsep}{environ.get('PATH', os.defpath)}"
        # hundreds of processes are started: each would compile the whole product again
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        say("== tests")
        rows, twice = _tests(arguments, environ)
        durations += rows
    say("\n== durations")
    for name, seconds, passed in [*durations, ("all", time.monotonic() - started, all(d[2] for d in durations))]:
        say(f"  {name:<26} {seconds:7.1f} s  {'' if passed else 'FAILED'}")
    for name in twice:
        say(f"  needed a second run: {name}")
    if len(twice) > MOST_AGAIN:
        say(f"*** {len(twice)} tests needed a second run; a busy machine explains {MOST_AGAIN} at most ***")
    if untested and not only_lint:
        say(f"\n*** NOT TESTED on this machine: {', '.join(untested)} (could not be installed, see above) ***")
    return 0 if all(passed for _, _, passed in durations) else 1


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
