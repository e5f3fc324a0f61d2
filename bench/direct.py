"""The same engine in one process, without daemon, worker or bridge: `python -m bench.direct BACKEND FOLDER NAME`.

Reads one JSON command a line, answers one JSON object a line: `{"messages": M, "tokens": N}` evaluates the
rendered conversation (warm as far as it is) and decodes N tokens, sampled by the defaults. Rendering is not timed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main() -> int:
    """Serve until the end of input."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # native libraries print
    os.umask(0o077)  # a conversion lands in the user's cache, as a worker's does
    began = time.perf_counter()
    direct = Direct(sys.argv[1], sys.argv[2], sys.argv[3])
    answers.write(json.dumps({"load_s": time.perf_counter() - began}) + "\n")
    for line in sys.stdin:
        wanted = json.loads(line)
        answers.write(json.dumps(direct.turn(wanted)) + "\n")
    direct.engine.close()
    return 0


class Direct:
    """One engine with one model."""

    def __init__(self, backend: str, folder: str, name: str) -> None:
        from modeld.engine.contract import AbortFlag, LoadRequest
        from modeld.engine.factory import make_engine
        from shared.catalog.identity import RequestedIdentity
        from shared.catalog.library import Library
        from shared.paths import DataRoot
        from shared.settings import load_settings

        root, settings = DataRoot(Path(folder)), load_settings()
        library = Library(root, settings)
        entry = library.find(name, wait=10.0)
        library.close()
        self.engine = make_engine(backend, AbortFlag())
        self.engine.prepare()
        identity = RequestedIdentity(backend=backend, name=entry.name, digest=entry.digest, path=str(entry.path))
        self.loaded = self.engine.load(
            LoadRequest(
                identity=identity,
                model=entry.facts(),
                num_ctx=int(os.environ.get("BENCH_CTX", "4096")),
                threads=settings.threads,  # these two as the daemon beside it
                speculation=settings.speculation,
            ),
            lambda done, total: None,
        )

    def turn(self, wanted: dict[str, Any]) -> dict[str, float]:
        """Seconds in all and to the first token."""
        from modeld.template.render import Template

        special = self.engine.special
        template = Template(self.loaded.template, special.bos_text, special.eos_text)
        tokens = self.engine.tokenize(template.render(wanted["messages"], [], None), special=True)
        return self._run(tokens, wanted["tokens"])

    def _run(self, tokens: list[int], count: int) -> dict[str, float]:
        from modeld.worker.sampling import decode_options
        from shared.protocol.api import Sampling

        # sampled as a turn is that asks for nothing: a greedy pick would cost less
        options = decode_options(Sampling(), self.loaded.sampling, self.loaded.capabilities, count)
        began = time.perf_counter()
        first = 0.0
        reused = self.engine.ensure_prefix(tokens)
        self.engine.prefill_suffix(options, lambda done, total: None)
        decoded = 0
        for _ in self.engine.decode(options):
            decoded += 1
            first = first or time.perf_counter() - began
        self.engine.end_turn()
        return {"seconds": time.perf_counter() - began, "first_s": first, "decoded": decoded, "reused": reused}


if __name__ == "__main__":
    sys.exit(main())
