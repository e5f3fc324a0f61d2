"""Interpreters that are wrong in one way each, as the extension may find them; and a right one in an odd place."""

from __future__ import annotations

import sys
from pathlib import Path

_STUB = """#!{python}
import json, sys
kind = {kind!r}
if "-c" in sys.argv:
    look = {{"executable": sys.argv[0], "version": [3, 12, 0], "package": True, "lsp": True, "command": ""}}
    if kind == "missing":
        look.update(package=False, lsp=False)
    elif kind == "old python":
        look.update(version=[3, 9, 2])
    elif kind == "old package":
        look.update(lsp=False)
    elif kind == "no python":
        print("v20.1.0")
        sys.exit(0)
    print(json.dumps(look))
elif kind == "wire":
    length = 0
    while (line := sys.stdin.buffer.readline().strip()):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    asked = json.loads(sys.stdin.buffer.read(length))
    offer = {{"modeld": {{"wire": 99, "version": "9.9", "methods": []}}}}
    body = json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": {{"capabilities": {{"experimental": offer}}}}}})
    sys.stdout.write(f"Content-Length: {{len(body)}}\\r\\n\\r\\n{{body}}")
    sys.stdout.flush()
    sys.stdin.buffer.read()
else:
    sys.exit("this bridge cannot live")
"""


def stub(folder: Path, kind: str) -> Path:
    """An executable that looks like a Python and is wrong in the way of `kind`."""
    path = folder / f"pythön {kind}"
    _write(path, _STUB.format(python=sys.executable, kind=kind))
    return path


def odd_place(folder: Path) -> Path:
    """A Python that works, at a path with spaces and other letters."""
    path = folder / "guter pythön 蛇"
    _write(path, f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    return path


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
