"""The live view of `modeld status --watch` on a terminal: drawn from statuses, in the width that there is. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from modeld.cli.context import lined
from shared.protocol import api
from shared.text.words import age, size_text

#: Turns whose rates the small chart shows.
KEPT_TURNS = 40
NARROWEST = 40
_BLOCKS = "▁▂▃▄▅▆▇█"
_STATE_COLOURS = {"Ready": 32, "Busy": 33, "Loading": 36, "Switching": 36, "Unloading": 36, "Failed": 31}


class View:
    """Remembers what a single status does not tell: the rates of the turns that were seen."""

    def __init__(self, *, colour: bool = True) -> None:
        self._colour = colour
        self._rates: deque[float] = deque(maxlen=KEPT_TURNS)
        self._last: tuple[int, float] | None = None

    def note(self, status: api.Status) -> None:
        """Take in a status; the same turn counts once."""
        turn = status.last_turn
        if turn is None or turn.timings.tokens_per_s <= 0:
            return
        mark = turn.usage.generated, turn.timings.decode_s
        if mark != self._last:
            self._last = mark
            self._rates.append(turn.timings.tokens_per_s)

    def lines(self, status: api.Status, *, width: int, since: float = 0.0, away: str = "") -> list[str]:
        """The screen, no line wider than `width`. `since`: its age in seconds; `away`: modeld is gone."""
        width = max(width, NARROWEST)
        status = lined(status)
        plain = [
            self._head(status, width, away),
            "",
            *self._slot(status, width, since),
            *self._queue(status, since),
            "",
            *self._memory(status, width),
            *self._turns(status, width),
            "",
            self._dim("Press Ctrl-C to quit"),
        ]
        return [_cut(line, width) for line in plain]

    # --- parts ---------------------------------------------------------------------------------

    def _head(self, status: api.Status, width: int, away: str) -> str:
        name = f"modeld {status.version}"
        summary = away or f"{status.role}, {status.backend}, pid {status.pid}, up {age(status.uptime_s)}"
        return f"{self._bold(name)}  {self._paint(summary, 31) if away else self._dim(summary)}"

    def _slot(self, status: api.Status, width: int, since: float) -> list[str]:
        state = self._paint(f"● {status.state}", _STATE_COLOURS.get(status.state, 37))
        active = status.active
        model = f"{active.name}  {self._dim(f'context {active.num_ctx}, {active.device}')}" if active else "no model"
        lines = [f"{'slot':<9}{state}  {model}"]
        busy = status.busy
        if busy is None:
            return [*lines, f"{'':<9}{self._dim('nothing runs')}"]
        holder = f" for {busy.holder}" if busy.holder else ""
        lines.append(f"{'':<9}{busy.operation} {busy.stage}{holder}, {age(busy.age_s + since)}")
        part = _progress(busy)
        if part is not None:
            lines.append(f"{'':<9}{self._bar(part, width - 18)} {part:4.0%}")
        return lines

    def _queue(self, status: api.Status, since: float) -> list[str]:
        if not status.queue:
            return [f"{'queue':<9}{self._dim('empty')}"]
        return [
            f"{'queue' if place == 0 else '':<9}{place + 1}. {each.client}  {self._dim(each.model)}  "
            f"waits {age(each.waited_s + since)}"
            for place, each in enumerate(status.queue)
        ]

    def _memory(self, status: api.Status, width: int) -> list[str]:
        memory = status.memory
        if memory.free_bytes is None:
            return []
        model = memory.measured_bytes or memory.required_bytes or 0
        reserve = memory.reserve_bytes or 0
        whole = max(model + memory.free_bytes, 1)
        summary = f"model {size_text(model)}, free {size_text(memory.free_bytes)}, reserved {size_text(reserve)}"
        bar = self._bar(model / whole, min(width - 9, 40))
        low = self._paint("  short: `modeld unload` frees the model's memory", 31) if memory.pressure else ""
        return [f"{'memory':<9}{bar}", f"{'':<9}{summary}{low}"]

    def _turns(self, status: api.Status, width: int) -> list[str]:
        turn = status.last_turn
        if turn is None:
            return [f"{'turns':<9}{self._dim('none yet')}"]
        usage, times = turn.usage, turn.timings
        summary = (
            f"{times.tokens_per_s:.1f} tokens/s, first after {times.first_token_s:.2f} s, "
            f"{usage.reused} reused, {usage.prefilled} prefilled, {usage.generated} generated"
        )
        chart = sparkline(list(self._rates)[-(width - 9) :])
        return [f"{'turns':<9}{self._paint(chart, 32)}", f"{'':<9}{summary}"]

    # --- ink -----------------------------------------------------------------------------------

    def _bar(self, part: float, width: int) -> str:
        full = round(min(max(part, 0.0), 1.0) * max(width, 1))
        return self._paint("█" * full, 36) + self._dim("░" * (max(width, 1) - full))

    def _paint(self, text: str, colour: int) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colour and text else text

    def _dim(self, text: str) -> str:
        return self._paint(text, 2)

    def _bold(self, text: str) -> str:
        return self._paint(text, 1)


def sparkline(values: Sequence[float]) -> str:
    """One block a value, the highest the fullest."""
    top = max(values, default=0.0)
    return "".join(_BLOCKS[min(int(value / top * 8), 7)] if top > 0 else _BLOCKS[0] for value in values)


def _progress(busy: api.BusyOperation) -> float | None:
    """How much of the present stage is done, 0 to 1, where it says so."""
    detail = busy.detail
    if "fraction" in detail:
        return float(detail["fraction"])
    if detail.get("total"):
        return float(detail.get("done", detail.get("reused", 0))) / float(detail["total"])
    return None


def _cut(line: str, width: int) -> str:
    """At most `width` letters; what colours them takes no room."""
    seen, at = 0, 0
    while at < len(line):
        if line[at] == "\x1b":
            at = line.index("m", at) + 1
            continue
        seen += 1
        if seen > width - 1 and len(_bare(line[at:])) > 1:
            return line[:at] + "…" + ("\x1b[0m" if "\x1b" in line else "")
        at += 1
    return line


def _bare(line: str) -> str:
    parts = line.split("\x1b[")
    return parts[0] + "".join(part.partition("m")[2] for part in parts[1:])
