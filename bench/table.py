"""What was measured, against what was promised."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

MIB = 1 << 20


@dataclass(frozen=True)
class Row:
    """One line of the table. `met` is None where no target is set."""

    what: str
    measured: str
    target: str = ""
    met: bool | None = None


@dataclass
class Table:
    """Rows in the order they were measured; printed as they come."""

    rows: list[Row] = field(default_factory=list)

    def add(self, what: str, measured: str, target: str = "", met: bool | None = None) -> None:
        row = Row(what, measured, target, met)
        self.rows.append(row)
        print(f"  {row.what}: {row.measured}  [{row.target or 'no target'}] {_verdict(row.met)}", flush=True)

    def at_most(self, what: str, values: Sequence[float], limit: float, unit: str, *, scale: float = 1.0) -> None:
        """A row whose median must not exceed `limit`; `scale` turns the values into `unit`."""
        scaled = [value * scale for value in values]
        median = statistics.median(scaled)
        self.add(what, f"{spread(scaled)} {unit}", f"<= {limit:g} {unit}", median <= limit)

    def at_least(self, what: str, values: Sequence[float], limit: float, unit: str) -> None:
        """A row whose median must reach `limit`."""
        self.add(
            what, f"{spread(values)} {unit}".strip(), f">= {limit:g} {unit}".strip(), statistics.median(values) >= limit
        )

    @property
    def missed(self) -> list[Row]:
        return [row for row in self.rows if row.met is False]

    def markdown(self, notes: Sequence[str], day: str) -> str:
        """The notes and the table of this run, made on `day`."""
        lines = [
            *(f"- {note}" for note in notes),
            "",
            "| what | measured | target | | day |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [f"| {row.what} | {row.measured} | {row.target} | {_verdict(row.met)} | {day} |" for row in self.rows]
        return "\n".join(lines) + "\n"


def spread(values: Sequence[float]) -> str:
    """Median and, where there are several, the quartiles and the count."""
    median = statistics.median(values)
    if len(values) < 4:
        return f"{median:.4g}"
    low, _, high = statistics.quantiles(values, n=4)
    return f"{median:.4g} ({low:.4g} to {high:.4g}, n={len(values)})"


def percentile(values: Sequence[float], part: float) -> float:
    """The value that `part` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def machine() -> str:
    """Enough to compare two pages."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def _verdict(met: bool | None) -> str:
    return {True: "met", False: "MISSED", None: ""}[met]
