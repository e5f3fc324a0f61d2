"""`modeld doctor`: what could keep modeld from working, each finding with what to do."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import anyio

from modeld.cli.context import print_json
from modeld.doctor import environment
from shared import codes
from shared.diagnosis.finding import Finding, lines, problems
from shared.paths import DataRoot
from shared.protocol import api
from shared.settings import Settings


def main(options: argparse.Namespace) -> int:
    """Exit code 1 when there is a problem. Looks; starts and repairs nothing."""
    settings, findings, status, root = look()
    if options.json:
        print_json(findings)
    else:
        print("\n".join(lines(findings)))
    if options.bundle:
        from modeld.doctor.bundle import write

        path = Path(options.bundle).expanduser().absolute()
        names = write(path, findings, status, settings, root)
        print(f"wrote {path}: {', '.join(names)}; look through it before you send it", file=sys.stderr)
    return codes.FAILED if problems(findings) else codes.OK


def look() -> tuple[Settings, list[Finding], api.Status | None, DataRoot | None]:
    """Every look, in the order in which a person would go through them. A broken part never hides the others."""
    settings, findings = environment.settings()
    root, about_root = environment.root()
    found = [*environment.versions(), *environment.environment(), *findings, *about_root, *environment.engines()]
    if root is None:
        return settings, found, None, None
    from modeld.doctor import runtime

    live, status = anyio.run(runtime.all_of, root, settings)
    resident = status is not None and status.active is not None
    found += [*environment.sockets(root), *environment.memory_and_models(root, settings, resident=resident), *live]
    return settings, found, status, root
