"""`make fuzz`: damaged model headers and outputs, and the property tests with many more examples than in `make test`.

Standard library only. Arguments are handed to pytest.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from prepare import setup
from steps import PYTHON, StepFailed, fail, shown

DAMAGED = ("fuzz_gguf.py", "fuzz_output.py")


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
    environ = dict(os.environ)
    if arguments:
        return shown([*command, *arguments], environ=environ)
    seed = str(int(time.time()))
    damaged = [shown([PYTHON, f"tests/fuzz/{name}", "--seed", seed], environ=environ) for name in DAMAGED]
    return shown([*command, "tests/unit"], environ=environ) or max(damaged)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
