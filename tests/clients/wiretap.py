"""`python wiretap.py LOG -- AGENT...`: stands between any client and the agent, and writes down both directions.

Each line of LOG is a JSON object `{t, d, s}`: seconds since the start, direction (`>` to the agent, `<` from it,
`#` what happened) and the line. End of input and signals are handed on; the exit code is the agent's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO, BinaryIO


class Log:
    """Appends whole lines; safe from two threads."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - lives as long as the process
        self._lock = threading.Lock()
        self._start = time.monotonic()

    def write(self, direction: str, line: str) -> None:
        entry = json.dumps({"t": round(time.monotonic() - self._start, 4), "d": direction, "s": line})
        with self._lock:
            self._file.write(entry + "\n")


def pump(source: IO[bytes], sink: IO[bytes] | BinaryIO, log: Log, direction: str) -> None:
    """Hand every line on as it comes; a reader that went away is written down."""
    for line in iter(source.readline, b""):
        log.write(direction, line.decode("utf-8", "surrogateescape"))
        try:
            sink.write(line)
            sink.flush()
        except BrokenPipeError:
            log.write("#", f"nobody reads {direction}")
            return
    log.write("#", f"end of {direction}")


def main() -> int:
    """Exit as the agent did."""
    log = Log(sys.argv[1])
    command = sys.argv[sys.argv.index("--") + 1 :]
    log.write("#", "start")
    agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert agent.stdin is not None
    assert agent.stdout is not None

    def hand_on(number: int, _frame: object) -> None:
        log.write("#", f"signal {number}")
        agent.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
        signal.signal(number, hand_on)

    agent_input = agent.stdin

    def feed() -> None:
        pump(sys.stdin.buffer, agent_input, log, ">")
        try:
            agent_input.close()
        except BrokenPipeError:
            log.write("#", "nobody reads >")

    threading.Thread(target=feed, daemon=True).start()
    pump(agent.stdout, sys.stdout.buffer, log, "<")
    code = agent.wait()
    log.write("#", f"exit {code}")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    result = main()
    sys.stdout.flush()
    os._exit(result)  # the feeding thread may still wait for a client that keeps the pipe open
