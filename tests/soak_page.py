"""The page of a soak whose parts may be run apart."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import msgspec


class Line(msgspec.Struct):
    """One row of the result page."""

    what: str
    result: str


def kept(page: Path, lines: list[Line]) -> list[Line]:
    """Rows of an earlier run that this one, of some parts only, did not make again."""
    made = {line.what for line in lines}
    rows = page.read_text(encoding="utf-8").splitlines() if page.exists() else []
    cells = [row.strip("| ").split(" | ") for row in rows if row.startswith("| ")]
    return [Line(*cell) for cell in cells if len(cell) == 2 and cell[0] not in made | {"what", "---"}]


def page(lines: list[Line], seconds: float, title: str, program: str, folder: str = "soak") -> str:
    """The result page of `program`, a file of tests/`folder`."""
    head = [
        f"# Soak: {title}",
        "",
        (
            f"Run on {time.strftime('%Y-%m-%d', time.gmtime())}, {platform.system()} {platform.machine()}, "
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}, Python {platform.python_version()}, "
            f"{seconds:.0f} s. Made by `tests/{folder}/{program}`, whose parts may be run apart."
        ),
        "",
        "| what | result |",
        "| --- | --- |",
    ]
    return "\n".join([*head, *(f"| {line.what} | {line.result} |" for line in lines)]) + "\n"
