"""`make fuzz`: the property tests with many more examples than `make test` gives them.

Standard library only. Arguments are handed to pytest.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from prepare import setup
from steps import PYTHON, StepFailed, fail, shown


def main(arguments: list[str]) -> int:
    """Exit as pytest did."""
    try:
        setup(("dev",))
    except StepFailed as error:
        return fail(error)
    command: list[str | Path] = [
        PYTHON,
        "-m",
        "pytest",
        "-q",
        "-m",
        "hypothesis",
        "--hypothesis-profile=fuzz",
        "--timeout=3600",
    ]
    return shown([*command, *(arguments or ["tests/unit"])], environ=dict(os.environ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
