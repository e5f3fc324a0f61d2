"""`make programs`: real programs of the OpenAI protocol, each once, at `acp-bridge http` with real weights.

Each is installed into an environment of its own under .work/programs. Exit 1 when one got no answer.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from clients.home import Home  # noqa: E402
from clients.openai_programs import PROGRAMS, Place, installed  # noqa: E402
from http_world import HttpServer  # noqa: E402
from weights import SMOLLM2, fetch  # noqa: E402

WORK = ROOT / ".work" / "programs"


def main() -> int:
    """Exit 0 when every program got its answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", help=", ".join(PROGRAMS))
    wanted = parser.parse_args().only or list(PROGRAMS)
    environments = {name: installed(name, PROGRAMS[name][0], WORK) for name in wanted}
    failed = []
    with Home(MODELD_MODEL_FOLDERS=str(fetch(SMOLLM2).parent), MODELD_TURN_TOKENS="300") as home:
        home.start("llama")
        world: Any = SimpleNamespace(folder=home.folder, environ=home.environ)
        server = HttpServer(world)
        server.start()
        try:
            for name in wanted:
                with tempfile.TemporaryDirectory() as work:
                    place = Place(environments[name], Path(work), server, home.model("smollm2"))
                    failed += _tried(name, place)
        finally:
            server.end()
    return 1 if failed else 0


def _tried(name: str, place: Place) -> list[str]:
    try:
        said = PROGRAMS[name][1](place).strip()
    except Exception as error:
        print(f"FAILED: {name}: {error}")
        return [name]
    print(f"{name}: {' '.join(said.split())[-300:]}")
    return []


if __name__ == "__main__":
    sys.exit(main())
