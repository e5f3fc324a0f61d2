"""`make coverage` and `make mutants`: whether the tests of the decisions can fail. Pages under docs/quality.

`coverage` runs the tests of the judged modules and fails where one has less than 95 % of its branches tried. `mutants
[GROUP...]` changes the judged modules, one small thing at a time, and fails where a module's tests notice less than
85 % of that, or where nobody has judged in docs/quality/survivors.toml why one that they did not notice is fine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from judged import FILE, Judgement, read_judgements
from mutation import Group, Mutant, earlier, mutate
from pure import PACKAGES, pure_files
from steps import PYTHON, ROOT, StepFailed, fail, say, shown

PAGES = ROOT / "docs" / "quality"
LEAST_BRANCHES = 95.0
LEAST_NOTICED = 85.0


def _tests(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/unit/{folder}/test_{name}.py" for name in names)


#: What is judged: the pure modules below these places, each with the tests that are about them.
GROUPS = (
    Group("turn", ("modeld/turn/*",), _tests("turn", "turn_lease", "turn_queue", "turn_stillness")),
    Group(
        "slot",
        ("modeld/slot/*",),
        _tests(
            "slot",
            "slot_transitions",
            "slot_machine",
            "slot_validate",
            "slot_request",
            "slot_rejections",
            "slot_identity",
        ),
    ),
    Group(
        "lease",
        ("shared/lease/*",),
        _tests("lease", "lease_policy", "lease_record"),
        _tests("lease", "lease_model_check"),
    ),
    Group(
        "output",
        ("modeld/output/*",),
        _tests("output", "emitter", "schema_grammar", "call_grammar", "output_samples", "output_spoken_tags")
        + _tests("output", "output_rules", "repetition", "schema_bounds"),
        _tests("output", "output_damage") + _tests("template", "template_lead"),
        without="cost_grows",
    ),
    Group(
        "rows",
        ("shared/catalog/*capability.py", "shared/catalog/*rows.py", "shared/catalog/*identity.py"),
        _tests("catalog", "catalog_rows", "catalog_capability") + _tests("slot", "slot_identity"),
    ),
    Group("models", ("acp_bridge/models/*",), _tests("bridge", "bridge_picker", "turn_values")),
    Group(
        "consent",
        ("acp_bridge/tools/consent/*",),
        _tests("bridge", "command_grants", "protected_files", "bridge_tools"),
    ),
    Group(
        "texts",
        ("shared/text/nesting.py", "shared/text/secret.py", "shared/text/shown.py"),
        _tests("project", "nesting", "secret", "shown"),
    ),
)


def with_modules(group: Group, files: Sequence[Path]) -> Group:
    """The group with the pure modules that its patterns stand for. Raises StepFailed where one stands for none."""
    found: dict[str, None] = {}
    for pattern in group.modules:
        names = [file.as_posix() for file in files if fnmatch(file.as_posix(), pattern)]
        if not names:
            raise StepFailed(f"{pattern} (group {group.name} of scripts/quality.py) stands for no pure module.")
        found |= dict.fromkeys(names)
    return replace(group, modules=tuple(found))


# --- coverage ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Covered:
    """What the unit tests reach of one module. `missing`: the jumps between lines that none of them takes."""

    module: str
    branches: int
    taken: int
    missing: tuple[str, ...]
    lines: float

    @property
    def percent(self) -> float:
        """Branches taken; a module without any is whole."""
        return 100.0 * self.taken / self.branches if self.branches else 100.0


def cover() -> int:
    """Run the groups' tests under branch coverage and write the page. Exit 1 below the bound, or where a test fails."""
    data, report = ROOT / ".work" / "coverage.data", ROOT / ".work" / "coverage.json"
    data.parent.mkdir(exist_ok=True)
    files = pure_files()
    judged = sorted(name for group in GROUPS for name in with_modules(group, files).modules)
    measured = ["--branch", f"--source={','.join(PACKAGES)}", f"--data-file={data}"]
    command: list[str | Path] = [PYTHON, "-m", "coverage", "run", *measured]
    environ = {**os.environ, "COVERAGE_CORE": "ctrace"}  # the one that knows branches in every Python
    tests = dict.fromkeys(test for group in GROUPS for test in (*group.tests, *group.walks))
    code = shown([*command, "-m", "pytest", "-q", "--timeout=300", *tests], environ=environ)
    if code != 0:
        return code
    include = ["--include", ",".join(judged), f"--data-file={data}"]
    if shown([PYTHON, "-m", "coverage", "json", "-q", "-o", report, *include]) != 0:
        raise StepFailed("coverage could not read its own data; run the command again.")
    found = json.loads(report.read_bytes())["files"]
    rows = [_covered(module, found) for module in judged]
    _write("coverage.md", _coverage_page(rows, len(files)))
    low = [row for row in rows if row.percent < LEAST_BRANCHES]
    for row in low:
        say(f"{row.module}: {row.percent:.0f} % of {row.branches} branches, not {', '.join(row.missing)}")
    return 1 if low else 0


def _covered(module: str, files: Mapping[str, Any]) -> Covered:
    found = files[str(Path(module))]
    summary = found["summary"]
    missing = tuple(f"{start} to {'the end' if end < 0 else end}" for start, end in found["missing_branches"])
    return Covered(
        module, summary["num_branches"], summary["covered_branches"], missing, summary["percent_statements_covered"]
    )


def _coverage_page(rows: Sequence[Covered], pure: int) -> str:
    return "\n".join([
        "# Coverage of the decisions",
        "",
        f"Branches and lines that the tests which are about a module take of it. {_machine()} Made by `make coverage`,",
        f"which fails where a module is below {LEAST_BRANCHES:.0f} % of its branches. Of {pure} pure modules these",
        f"{len(rows)} decide; `scripts/quality.py` names their places and tests.",
        "",
        f"## {sum(row.taken for row in rows)} of {sum(row.branches for row in rows)} branches",
        "",
        "| module | branches | taken | lines |",
        "| --- | ---: | ---: | ---: |",
        *(f"| `{row.module}` | {row.branches} | {row.percent:.0f} % | {row.lines:.0f} % |" for row in rows),
        "",
    ])  # fmt: skip


# --- mutants -----------------------------------------------------------------------------------


def try_mutants(names: Sequence[str], children: int, *, again: bool) -> int:
    """Try the mutants of these groups (all where none is named). Exit 1 below the bound, or where one is unjudged.

    `again` tries only what nobody noticed last time, after tests were added. The page holds the last run of each group.
    """
    judgements = read_judgements()
    files = pure_files()
    failed = False
    for group in GROUPS:
        if names and group.name not in names:
            continue
        started = time.monotonic()
        mutants = mutate(with_modules(group, files), children=children, again=again)
        say(f"{group.name}: {score_text(mutants)} ({time.monotonic() - started:.0f} s)")
        failed = not _sound(mutants, judgements) or failed
    found = {group.name: earlier(group.name) for group in GROUPS}
    away = [name for name, mutants in found.items() if mutants is None]
    _write("mutants.md", _mutants_page([one for mutants in found.values() for one in mutants or ()], judgements, away))
    return 1 if failed else 0


def _sound(mutants: Sequence[Mutant], judgements: Sequence[Judgement]) -> bool:
    """Whether every module is above the bound and every survivor judged; says what is not."""
    sound = True
    for module, own in by_module(mutants).items():
        if score(own) < LEAST_NOTICED:
            say(f"  {module}: {score_text(own)}, below {LEAST_NOTICED:.0f} %")
            sound = False
    for mutant in unjudged(mutants, judgements):
        say(f"  not judged in {FILE.name}: {mutant.module} {mutant.function}\n    {mutant.change}")
        sound = False
    return sound


def unjudged(mutants: Iterable[Mutant], judgements: Sequence[Judgement]) -> list[Mutant]:
    """The survivors that no judgement is about."""
    return [mutant for mutant in mutants if not mutant.noticed and not _judgements_of(mutant, judgements)]


def _judgements_of(mutant: Mutant, judgements: Iterable[Judgement]) -> list[Judgement]:
    return [one for one in judgements if one.about(mutant.module, mutant.function, mutant.change)]


def by_module(mutants: Iterable[Mutant]) -> dict[str, list[Mutant]]:
    """The mutants of each module, sorted by its name."""
    modules: dict[str, list[Mutant]] = {}
    for mutant in sorted(mutants, key=lambda one: one.module):
        modules.setdefault(mutant.module, []).append(mutant)
    return modules


def score(mutants: Sequence[Mutant]) -> float:
    """Per cent noticed; nothing to change is all of it."""
    return 100.0 * sum(one.noticed for one in mutants) / len(mutants) if mutants else 100.0


def score_text(mutants: Sequence[Mutant]) -> str:
    """The score with its counts."""
    return f"{sum(one.noticed for one in mutants)} of {len(mutants)} noticed, {score(mutants):.0f} %"


#: what the page shows of a survivor that fails the run
_OPEN = Judgement(module="", judgement="open", why="not judged yet")


def _mutants_page(mutants: Sequence[Mutant], judgements: Sequence[Judgement], away: Sequence[str]) -> str:
    rows = [
        f"| `{module}` | {len(own)} | {sum(one.noticed for one in own)} | {score(own):.0f} % |"
        for module, own in by_module(mutants).items()
    ]
    survivors = [
        f"| `{mutant.module}`<br>`{mutant.function}` | {_code(mutant.change)} | {one.judgement}: {one.why} |"
        for mutant in sorted(mutants, key=lambda one: (one.module, one.function, one.change))
        if not mutant.noticed
        for one in [*_judgements_of(mutant, judgements), _OPEN][:1]
    ]
    return "\n".join([
        "# Mutants: can the tests fail?",
        "",
        "One small change at a time (an operator, a number, a condition, an argument) in the modules that decide, and",
        f"whether a unit test notices. {_machine()}",
        f"Made by `make mutants` with mutmut, which fails below {LEAST_NOTICED:.0f} % of a module, or where a change",
        "that nobody noticed is not judged in `docs/quality/survivors.toml`.",
        "",
        *([f"Without {', '.join(away)}, which were not run here.", ""] if away else []),
        f"## {score_text(mutants)}",
        "",
        "| module | changes | noticed | score |",
        "| --- | ---: | ---: | ---: |",
        *rows,
        "",
        "## What nobody noticed, and why that is fine",
        "",
        "*equivalent*: the program does the same. *harmless*: it does something else that no rule forbids.",
        "",
        "| where | change | judgement |",
        "| --- | --- | --- |",
        *survivors,
        "",
    ])  # fmt: skip


def _code(text: str) -> str:
    """Code in a cell of a table."""
    fence = "``" if "`" in text else "`"
    pad = " " if fence == "``" else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def _machine() -> str:
    date, python = time.strftime("%Y-%m-%d"), ".".join(map(str, sys.version_info[:3]))
    return f"Run on {date}, {platform.system()}, Python {python}."


def _write(name: str, text: str) -> None:
    PAGES.mkdir(parents=True, exist_ok=True)
    (PAGES / name).write_text(text, encoding="utf-8")
    say(f"written: docs/quality/{name}")


def main() -> int:
    """Run one of the two; the exit code says whether the bounds hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("coverage")
    mutants = commands.add_parser("mutants")
    mutants.add_argument("groups", nargs="*", choices=[[], *(group.name for group in GROUPS)], metavar="GROUP")
    mutants.add_argument("--children", type=int, default=os.cpu_count() or 1, help="processes at once")
    mutants.add_argument("--again", action="store_true", help="only what nobody noticed in the last run")
    asked = parser.parse_args()
    try:
        return cover() if asked.command == "coverage" else try_mutants(asked.groups, asked.children, again=asked.again)
    except StepFailed as error:
        return fail(error)


if __name__ == "__main__":
    sys.exit(main())
