"""`make sdks`: the official OpenAI SDKs against `acp-bridge http` and against llama.cpp's server, with the same model.

Each SDK (Python and JavaScript, the newest and one major version back) is installed into a folder of its own under
.work/sdks and runs every check of tests/clients/openai_checks.* . The outcome is docs/sdks.md: what each server failed,
and who is right where they differ. Exit 1 when ours failed a check.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from bench.peers import XLLAMA, xllama  # noqa: E402
from bench.server import XllamaServer  # noqa: E402
from clients.home import Home  # noqa: E402
from clients.npm import tool  # noqa: E402
from http_world import HttpServer  # noqa: E402
from weights import SMOLLM2, fetch  # noqa: E402

WORK = ROOT / ".work" / "sdks"
CLIENTS = ROOT / "tests" / "clients"
SCRIPT = str(CLIENTS / "openai_checks.mjs")
PAGE = ROOT / "docs" / "sdks.md"
#: The name of an SDK's folder, and what pip or npm is asked for.
PYTHON = {"python-newest": "openai>=3,<4", "python-before": "openai>=2,<3"}
JAVASCRIPT = {"javascript-newest": "openai@latest", "javascript-before": "openai@previous"}
KEY = "sk-the-key-of-this-run"
#: Where the servers differ, who is right, by check. What is not here and differs makes the run fail.
JUDGED = {
    "models": "ours: a name that can be typed, and no path of this machine is told",
    "unknown_model": "ours: another model must not answer; llama.cpp's server answers with the one that it has",
    "unknown_parameter": "ours: a parameter that is dropped is a wish that nobody fulfilled",
    "unseen_image": "ours: 400 says that the request cannot be served; a 500 makes SDKs repeat it",
    "wrong_value": "ours: roles and values that mean nothing are the caller's mistake, and 400 says so",
    "too_long": "ours: the protocol's code is context_length_exceeded; programs look for it",
    "suffix": "ours: a model without the tokens for it cannot fill in, and a suffix is not dropped",
    "embeddings": "both: the vectors of a chat model are of little use; llama.cpp's server wants an option for them",
    "tool_choice": "ours: a call that has to be is held to the tool's schema from its first token, and ends",
    "tools_in_pieces": "ours: a call that was asked for comes, in pieces as the model writes it",
    "tool_result": "ours: the model's own call comes back as it was given",
    "cached_tokens": "ours: what was warm is told in the protocol's own field",
    "unmet_parameter": "ours: what cannot be done is refused",
}


def main() -> int:
    """Exit 0 when ours passed every check of every SDK."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", action="store_true", help="leave llama.cpp's server out, and write no page")
    parser.add_argument("--sdk", nargs="+", choices=(*PYTHON, *JAVASCRIPT), help="these alone")
    arguments = parser.parse_args()
    runners = {**_python(), **_javascript()}
    runners = {name: run for name, run in runners.items() if name in (arguments.sdk or runners)}
    model = fetch(SMOLLM2)
    with _ours(model) as (url, key, name):
        ours = {sdk: run(url, key, name) for sdk, run in runners.items()}
    _show("acp-bridge http", ours)
    failed = any(wrong for outcome in ours.values() for wrong in outcome["checks"].values())
    if not arguments.ours:
        fields: Any = {"n_ctx": 8192, "n_parallel": 4, "api_keys": [KEY]}
        with XllamaServer(xllama(), model, 2, **fields) as server:
            url = f"http://127.0.0.1:{server.port}/v1"
            theirs = {sdk: run(url, KEY, model.name) for sdk, run in runners.items()}
        _show("llama.cpp's server", theirs)
        PAGE.write_text(page(ours, theirs, f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"), encoding="utf-8")
        unjudged = sorted(_differing(ours, theirs) - set(JUDGED))
        if unjudged:
            print(f"nobody has judged: {', '.join(unjudged)}")
            failed = True
    return 1 if failed else 0


def page(ours: dict[str, Any], theirs: dict[str, Any], day: str) -> str:
    """The page: versions, counts, and each difference with who is right."""
    lines = [
        "# The official SDKs, here and at llama.cpp's server",
        "",
        f"Made by `make sdks` on {day}: the same checks by each SDK against `acp-bridge http` and the server of",
        f"llama.cpp (`{XLLAMA}`), with SmolLM2-135M-Instruct. The Python SDK's own types, made from the published",
        "schema, validate every raw answer.",
        "",
        "| SDK | version | checks | failed here | failed there |",
        "| --- | --- | --- | --- | --- |",
    ]
    for sdk, outcome in ours.items():
        failed = [_failed(outcome), _failed(theirs.get(sdk))]
        lines.append(
            f"| {sdk.replace('-', ', ')} | {outcome['sdk']} | {len(outcome['checks'])} | {' | '.join(failed)} |"
        )
    lines += ["", "## Where they differ", "", "| check | here | there | who is right |", "| --- | --- | --- | --- |"]
    for check in sorted(_differing(ours, theirs)):
        here, there = (_first(side, check) for side in (ours, theirs))
        lines.append(f"| `{check}` | {_cell(here)} | {_cell(there)} | {JUDGED.get(check, 'not judged yet')} |")
    return "\n".join(lines) + "\n"


def _failed(outcome: dict[str, Any] | None) -> str:
    """How many of how many; nothing for what was not run."""
    if outcome is None:
        return "not run"
    return f"{sum(map(bool, outcome['checks'].values()))} of {len(outcome['checks'])}"


def _differing(ours: dict[str, Any], theirs: dict[str, Any]) -> set[str]:
    """The checks that one of them passes and the other does not, by any SDK that ran them at both."""
    return {
        check
        for sdk, outcome in ours.items()
        for check, wrong in outcome["checks"].items()
        if check in theirs.get(sdk, {}).get("checks", {}) and bool(wrong) != bool(theirs[sdk]["checks"][check])
    }


def _first(side: dict[str, Any], check: str) -> str:
    return next((outcome["checks"][check] for outcome in side.values() if outcome["checks"].get(check)), "")


def _cell(wrong: str) -> str:
    return wrong[:140].replace("|", "\\|").replace("<", "&lt;") if wrong else "passes"


def _show(name: str, outcomes: dict[str, Any]) -> None:
    for sdk, outcome in outcomes.items():
        wrong = {check: told for check, told in outcome["checks"].items() if told}
        print(f"{name}: {sdk} {outcome['sdk']}: {len(outcome['checks']) - len(wrong)} of {len(outcome['checks'])}")
        for check, told in wrong.items():
            print(f"    {check}: {told}")


@contextmanager
def _ours(model: Path) -> Iterator[tuple[str, str, str]]:
    """Address, key and the model's name."""
    with Home(MODELD_MODEL_FOLDERS=str(model.parent)) as home:
        home.start("llama")
        world: Any = SimpleNamespace(folder=home.folder, environ=home.environ)
        server = HttpServer(world)
        server.start()
        try:
            yield server.where["url"], server.key, home.model("smollm2")
        finally:
            server.end()


def _python() -> dict[str, Any]:
    runners = {}
    for name, wanted in PYTHON.items():
        folder = WORK / name
        python = folder / "bin" / "python"
        if not python.exists():
            _do([sys.executable, "-m", "venv", str(folder)])
            _do([str(python), "-m", "pip", "install", "--quiet", wanted])
        runners[name] = _runner(lambda *at, python=python: [str(python), str(CLIENTS / "openai_checks.py"), *at])
    return runners


def _javascript() -> dict[str, Any]:
    runners = {}
    for name, wanted in JAVASCRIPT.items():
        folder = WORK / name
        package = folder / "node_modules" / "openai"
        if not package.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _do(
                [
                    tool("npm"),
                    "install",
                    "--silent",
                    "--no-audit",
                    "--no-fund",
                    "--prefix",
                    str(folder),
                    _version(wanted),
                ]
            )
        runners[name] = _runner(lambda *at, package=package: [tool("node"), SCRIPT, str(package), *at])
    return runners


def _version(wanted: str) -> str:
    """`previous` is the major version before the latest."""
    if not wanted.endswith("@previous"):
        return wanted
    told = subprocess.run([tool("npm"), "view", "openai", "version"], capture_output=True, text=True, check=True)
    return f"openai@^{int(told.stdout.split('.')[0]) - 1}"


def _runner(command: Any) -> Any:
    def run(url: str, key: str, model: str) -> dict[str, Any]:
        done = subprocess.run(command(url, key, model), capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{command(url, '...', model)} failed:\n{done.stdout[-500:]}{done.stderr[-2000:]}")
        outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return outcome

    return run


def _do(command: list[str]) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
