"""Runs mutmut over one group of modules and says of every mutant whether the tests noticed it.

mutmut reads its settings from the pyproject.toml of the folder that it runs in, and leaves its copies there: each group
gets a folder of its own under `.work/mutants`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pure import PACKAGES
from steps import PYTHON, ROOT, StepFailed

WORK = ROOT / ".work" / "mutants"
#: A mutant that runs into a time limit loops where the product does not: noticed as well.
NOTICED = frozenset({"killed", "timeout", "caught by type check"})
_IGNORED = shutil.ignore_patterns("__pycache__", "node_modules", "*.pyc")
#: mutmut leaves a listing of its own open, and our warnings are errors
_UNRAISABLE = "ignore::pytest.PytestUnraisableExceptionWarning"
#: mutmut tries a mutant on the tests that ran its function. What runs while a module is imported (a factory of parsers,
#: a table) ran in no test, or in the first that imported it, though all use what it made: it is tried on every test.
#: The short tests come first, so that most mutants are noticed at once.
_RUN = """
import sys
from mutmut import __main__ as program
from mutmut.state import state
collect = program.collect_or_load_stats
class Widened(dict):
    def __missing__(self, function):
        return ()
    def get(self, function, default=None):
        own = super().get(function, ())
        return dict.fromkeys(one for one in ordered if one in own or len(own) < 2)
def collect_and_widen(*arguments, **options):
    global ordered
    collect(*arguments, **options)
    ordered = sorted(state().duration_by_test, key=state().duration_by_test.get)
    state().tests_by_mangled_function_name = Widened(state().tests_by_mangled_function_name)
program.collect_or_load_stats = collect_and_widen
program.cli(["run", *sys.argv[1:]])
"""
#: asked of mutmut in its own folder: each mutant, its state, and the change of those that nobody noticed
_ASK = """
import json
from mutmut.__main__ import SourceFileMutationData, get_diff_for_mutant, status_by_exit_code, walk_mutatable_files
found = []
for path in walk_mutatable_files():
    data = SourceFileMutationData(path=path)
    data.load()
    for name, code in data.exit_code_by_key.items():
        status = status_by_exit_code[code]
        noticed = status in NOTICED or (status == "not checked" and name in KNOWN)
        found.append([str(path), name, noticed, "" if noticed else get_diff_for_mutant(name, path=path)])
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Mutant:
    """One small change of the code; `change` says which (`before => after`) where no test noticed it.
    `name` is mutmut's own; it means the same as long as the module does not change.
    """

    module: str
    function: str
    noticed: bool
    change: str
    name: str = ""


@dataclass(frozen=True)
class Group:
    """Modules (by their paths below the root) and the tests that are about them.

    `walks` are tests at random that take as long as all the others together: too long to run for every mutant. So are
    those whose names hold `without`.
    """

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    walks: tuple[str, ...] = ()
    without: str = ""


def mutate(group: Group, *, children: int, again: bool = False) -> list[Mutant]:
    """Every mutant of the group's modules, tried; with `again` only those that nobody noticed in the last run, and
    those of modules that changed since.

    Takes minutes. Raises StepFailed where mutmut itself fails.
    """
    sources = {module: _digest(module) for module in group.modules}
    last = _last(group.name) if again else None
    changed = [module for module in group.modules if last is None or last.sources.get(module) != sources[module]]
    kept = [one for one in (last.mutants if last is not None else ()) if one.module in group.modules]
    kept = [one for one in kept if one.module not in changed]
    asked = [one.name for one in kept if not one.noticed] + [_pattern(module) for module in changed]
    if not asked:
        return kept
    folder = _workspace(group)
    command = [str(PYTHON), "-c", _RUN, "--max-children", str(children), *(asked if kept else ())]
    log = WORK / f"{group.name}.log"
    environ = {**os.environ, "PYTEST_DEBUG_TEMPROOT": str(folder)}  # its own: pytest clears up after other runs too
    with log.open("wb") as sink:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        tail = "\n".join(line for line in lines if "🎉" not in line)[-3000:]  # its count comes with every mutant
        raise StepFailed(f"{tail}\nmutmut failed for {group.name}. Its whole output is in {log}.")
    mutants = _read(folder, frozenset(one.name for one in kept if one.noticed))
    _write(group.name, _Run(sources, mutants))
    shutil.rmtree(folder)
    return mutants


def earlier(name: str) -> list[Mutant] | None:
    """What the last run of this group found; None where there was none."""
    last = _last(name)
    return last.mutants if last is not None else None


@dataclass(frozen=True)
class _Run:
    """One run of a group: digests of its modules, as they were then, and their mutants."""

    sources: dict[str, str]
    mutants: list[Mutant]


def _last(name: str) -> _Run | None:
    try:
        found = json.loads((WORK / f"{name}.json").read_text(encoding="utf-8"))
        return _Run(found["sources"], [Mutant(**one) for one in found["mutants"]])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(name: str, run: _Run) -> None:
    (WORK / f"{name}.json").write_text(json.dumps(asdict(run)), encoding="utf-8")


def _pattern(module: str) -> str:
    """All mutants of a module, as mutmut names them."""
    return module.removesuffix(".py").removesuffix("/__init__").replace("/", ".") + ".x*"


def _digest(module: str) -> str:
    return hashlib.sha256((ROOT / module).read_bytes()).hexdigest()


def _workspace(group: Group) -> Path:
    folder = WORK / group.name
    shutil.rmtree(folder, ignore_errors=True)
    for name in (*PACKAGES, "tests", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=_IGNORED)
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8") + _settings(group)
    (folder / "pyproject.toml").write_text(settings, encoding="utf-8")
    return folder


def _settings(group: Group) -> str:
    left_out = ["-k", f"not {group.without}"] if group.without else []
    settings: dict[str, Sequence[str] | float] = {
        "source_paths": PACKAGES,
        "only_mutate": group.modules,
        "also_copy": ["scripts"],
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "--timeout=150", "-W", _UNRAISABLE, *left_out],
        "pytest_add_cli_args_test_selection": group.tests,
        "timeout_multiplier": 5.0,  # in seconds of the processor: a change that loops for ever costs no more than this
    }
    return "\n[tool.mutmut]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())


def _read(folder: Path, known: frozenset[str]) -> list[Mutant]:
    """What mutmut found; `known` were noticed before, and need not be tried again."""
    program = f"NOTICED, KNOWN = {sorted(NOTICED)!r}, set({sorted(known)!r})\n{_ASK}"
    done = subprocess.run([str(PYTHON), "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StepFailed(f"{done.stderr}\nThe results of mutmut could not be read; is it a version that changed them?")
    return [
        Mutant(
            Path(path).as_posix(),
            _function(name),
            noticed=noticed,
            change=_change(diff),
            name=name,
        )
        for path, name, noticed, diff in json.loads(done.stdout)
    ]


def _function(name: str) -> str:
    """`a.b.xǁClassǁmethod__mutmut_3` and `a.b.x_name__mutmut_1` as `Class.method` and `name`."""
    short = name.rpartition(".")[2].rpartition("__mutmut_")[0]
    if "ǁ" in short:
        return ".".join(short.split("ǁ")[1:])
    return short.removeprefix("x_")


def _change(diff: str) -> str:
    """A diff as `what stood there => what stands there now`, in one line."""
    lines = [line for line in diff.splitlines() if line[:3] not in {"+++", "---"}]
    before, after = (" ".join(line[1:].strip() for line in lines if line[:1] == sign) for sign in "-+")
    return f"{before} => {after}".strip()
