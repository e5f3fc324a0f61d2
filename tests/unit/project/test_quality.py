"""What is judged of the tests is found by rule, and a judgement is about what it names and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "scripts"))

import mutation
from judged import Judgement, read_judgements
from mutation import Group, Mutant
from pure import pure_files
from quality import GROUPS, by_module, score, unjudged, with_modules
from steps import ROOT, StepFailed

pytestmark = pytest.mark.unit

ONE = Judgement(module="a.py", function="f", judgement="equivalent", why="the same", changes=("x => y",))


def test_every_group_has_pure_modules_and_tests() -> None:
    files = pure_files()
    judged = [name for group in GROUPS for name in with_modules(group, files).modules]
    assert len(judged) == len(set(judged)) >= 40
    for group in GROUPS:
        assert all((ROOT / test).exists() for test in group.tests), group.name


def test_a_place_without_pure_modules_is_reported() -> None:
    with pytest.raises(StepFailed, match=r"^nowhere/\* \(group g"):
        with_modules(Group("g", ("nowhere/*",), ()), pure_files())
    files = [Path("a/b.py"), Path("a/c/d.py"), Path("e.py")]
    assert with_modules(Group("g", ("a/*", "a/c/*"), ("t",)), files) == Group("g", ("a/b.py", "a/c/d.py"), ("t",))


def test_judgements_are_about_modules_that_exist() -> None:
    assert {one.module for one in read_judgements() if not (ROOT / one.module).is_file()} == set()


@pytest.mark.parametrize(
    ("module", "function", "change", "about"),
    [
        ("a.py", "f", "x => y", True),
        ("b.py", "f", "x => y", False),
        ("a.py", "g", "x => y", False),
        ("a.py", "f", "x => z", False),
    ],
)
def test_a_judgement_is_about_one_change_of_one_function(module: str, function: str, change: str, about: bool) -> None:
    mutant = Mutant(module=module, function=function, noticed=False, change=change)
    assert unjudged([mutant], [ONE]) == ([] if about else [mutant])
    assert unjudged([Mutant(module, function, noticed=True, change="")], []) == []


def test_a_judgement_may_be_about_whatever_fits_a_pattern_in_any_function() -> None:
    texts = Judgement(module="a.py", judgement="harmless", why="words", pattern=r"=> .*XX")
    assert texts.about("a.py", "any", "'a' => 'XXaXX'")
    assert not texts.about("a.py", "any", "'XX' => 'a'")


@pytest.mark.parametrize(
    "text",
    [
        "[[survivors]]\nmodule = 'a.py'\njudgement = 'fine'\nwhy = 'so'\nchanges = ['x']",
        "[[survivors]]\nmodule = 'a.py'\njudgement = 'harmless'\nwhy = ''\nchanges = ['x']",
        "[[survivors]]\nmodule = 'a.py'\njudgement = 'harmless'\nwhy = 'so'",
        "[[survivors]]\nmodule = 'a.py'\nodd = 1",
        "not toml",
    ],
)
def test_a_judgement_that_is_not_whole_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(StepFailed):
        read_judgements(tmp_path / "s.toml")


def test_the_score_is_of_one_module() -> None:
    mutants = [
        Mutant(module, "f", noticed=noticed, change="") for module, noticed in [("b", True), ("a", False), ("b", False)]
    ]
    assert {module: score(own) for module, own in by_module(mutants).items()} == {"a": 0.0, "b": 50.0}
    assert score([]) == 100.0


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("modeld.turn.queue.xǁTurnQueueǁadd__mutmut_12", "TurnQueue.add"),
        ("modeld.turn.queue.x__fits__mutmut_1", "_fits"),
    ],
)
def test_a_changed_function_is_named_as_in_its_source(name: str, function: str) -> None:
    assert mutation._function(name) == function


def test_a_change_is_reported_in_one_line() -> None:
    diff = "--- a.py\n+++ a.py\n@@ -1,3 +1,3 @@\n def f():\n-    return (\n-        1\n+    return 2\n"
    assert mutation._change(diff) == "return ( 1 => return 2"
    assert mutation._change("--- a\n+++ a\n-    x()\n") == "x() =>"
