"""Records `docs/_static/session.svg`: real commands in a home of their own, drawn as a terminal that types.

Run it with the package index at hand: `python scripts/record.py`. Nothing in it is staged but the pauses, which are cut
to a second at most.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "_static" / "session.svg"
COMMANDS = (
    "modeld pull starter",
    "modeld start",
    "acp-bridge install zed",
    'acp-bridge chat "What is the capital of France?"',
)
WIDTH, LINE, MARGIN = 100, 19, 18
#: Seconds a letter takes, and the longest pause that is shown.
KEY, LONGEST = 0.03, 1.0
_LETTER = 8.4


def run(line: str, environ: dict[str, str], home: str) -> tuple[list[str], float]:
    """What a command printed, both outputs in order, and how long it took."""
    words = shlex.split(line)
    command = [str(Path(sys.executable).parent / words[0]), *words[1:]]
    started = time.monotonic()
    done = subprocess.run(
        command, env=environ, cwd=home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"{line} failed:\n{done.stdout}")
    return done.stdout.replace(home, "~").replace(str(Path(sys.executable).parent), "~/.venv/bin").splitlines(), (
        time.monotonic() - started
    )


def session() -> list[tuple[float, str, bool]]:
    """When each line is there, the line, and whether it was typed."""
    shown: list[tuple[float, str, bool]] = []
    at = 0.5
    with tempfile.TemporaryDirectory(prefix="md-") as home:
        path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])  # as in an activated environment
        environ = {"HOME": home, "PATH": path, "LANG": "C.UTF-8"}
        environ |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        try:
            for line in COMMANDS:
                shown.append((at, f"$ {line}", True))
                at += len(line) * KEY
                printed, took = run(line, environ, home)
                at += min(took, LONGEST)
                for each in printed:
                    shown += [(at, part, False) for part in _wrapped(each)]
                    at += 0.03
                at += 0.7
        finally:
            run("modeld stop", environ, home)
    return shown


def _wrapped(line: str) -> list[str]:
    return [line[at : at + WIDTH] for at in range(0, max(len(line), 1), WIDTH)]


def drawn(shown: list[tuple[float, str, bool]]) -> str:
    """The drawing: every line appears at its time and stays."""
    height = len(shown) * LINE + 2 * MARGIN + 22
    width = int(WIDTH * _LETTER) + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>modeld in a terminal</title>",
        "<style>",
        "text { font: 14px ui-monospace, Menlo, Consolas, monospace; fill: #d7dce5; white-space: pre }",
        # hidden until its time and not after: what cannot animate shows all of it
        ".typed { fill: #8bd5a0 } .seen { animation: hidden linear }",
        "@keyframes hidden { from { opacity: 0 } to { opacity: 0 } }",
        "@media (prefers-reduced-motion: reduce) { .seen { animation: none } }",
        "</style>",
        f'<rect width="{width}" height="{height}" rx="10" fill="#1b2130"/>',
        *(f'<circle cx="{MARGIN + 6 + 18 * n}" cy="18" r="5" fill="#3b455c"/>' for n in range(3)),
    ]
    for number, (at, text, typed) in enumerate(shown):
        y = MARGIN + 34 + number * LINE
        kind = "seen typed" if typed else "seen"
        place = f'x="{MARGIN}" y="{y}" style="animation-duration:{at:.2f}s"'
        lines.append(f'<text class="{kind}" {place}>{escape(text)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def main() -> int:
    """Write the drawing."""
    TARGET.write_text(drawn(session()), encoding="utf-8")
    print(TARGET.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
