"""The judgements of docs/quality/survivors.toml: why a change of the code that no test noticed is fine."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from steps import ROOT, StepFailed

FILE = ROOT / "docs" / "quality" / "survivors.toml"
KINDS = ("equivalent", "harmless")


@dataclass(frozen=True)
class Judgement:
    """Why some changes are fine. `function` "" stands for every function of the module.

    `changes` are whole (`before => after`); `pattern` is a regular expression that finds others, "" for none.
    """

    module: str
    judgement: str
    why: str
    function: str = ""
    changes: tuple[str, ...] = ()
    pattern: str = ""

    def about(self, module: str, function: str, change: str) -> bool:
        """Whether this is about that change."""
        if module != self.module or self.function not in ("", function):
            return False
        return change in self.changes or bool(self.pattern and re.search(self.pattern, change))


def read_judgements(file: Path = FILE) -> list[Judgement]:
    """Every judgement. Raises StepFailed for one that is not whole."""
    try:
        entries = tomllib.loads(file.read_text(encoding="utf-8")).get("survivors", [])
        judgements = [Judgement(**{**one, "changes": tuple(one.get("changes", ()))}) for one in entries]
    except (OSError, tomllib.TOMLDecodeError, TypeError) as error:
        raise StepFailed(f"{file} cannot be read: {error}") from error
    for one in judgements:
        if one.judgement not in KINDS or not one.why or not (one.changes or one.pattern):
            raise StepFailed(
                f"{file}: a judgement of {one.module} needs a kind of {KINDS}, a why, and what it is about"
            )
    return judgements
