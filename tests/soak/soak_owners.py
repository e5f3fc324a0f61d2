"""Twenty bridges in turns while the owners of the hardware die for two minutes (see tests/churn.py).

    python tests/soak/soak_owners.py [--bridges 20] [--deaths 40] [--every 3] [--out docs/soak/owners.md]

Ends with 1 when a turn hung, ended without a type, or a call met an instance that it was not meant for.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from churn import Churn
from spread import spread


def page(churn: Churn, bridges: int, every: float, seconds: float) -> str:
    """The result page."""
    outcomes = ", ".join(f"{count} {kind}" for kind, count in churn.outcomes.most_common())
    lines = [
        "# Soak: bridges whose owners die",
        "",
        (
            f"Run on {time.strftime('%Y-%m-%d', time.gmtime())}, {platform.system()} {platform.machine()}, "
            f"{os.cpu_count()} cores, Python {platform.python_version()}, ttl 1 s, {seconds:.0f} s in all. "
            "Made by `tests/soak/soak_owners.py`."
        ),
        "",
        "| what | result |",
        "| --- | --- |",
        f"| bridges in turns | {bridges} |",
        f"| owners killed / frozen, one every {every:.0f} s or more | {churn.killed} / {churn.frozen} |",
        f"| turns, by how they ended | {sum(churn.outcomes.values())}: {outcomes} |",
        "| turns that hung, or ended without a typed error | 0 |",
        "| calls that met an instance they were not meant for | 0 |",
        f"| a turn, its waiting included (s) | {spread(churn.turn_seconds)} |",
        f"| owner killed -> successor owns (s) | {spread(churn.takeovers)} |",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bridges", type=int, default=20)
    parser.add_argument("--deaths", type=int, default=40)
    parser.add_argument("--every", type=float, default=3.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs/soak/owners.md")
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="md-") as folder:
        churn = Churn(Path(folder), bridges=arguments.bridges, deaths=arguments.deaths, every=arguments.every)
        churn.run()
    if churn.problems:
        print("FAILED\n" + "\n".join(churn.problems))
        return 1
    text = page(churn, arguments.bridges, arguments.every, time.monotonic() - began)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
