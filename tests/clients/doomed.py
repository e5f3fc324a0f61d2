"""A client of modeld to be killed: says what it got over the wire, then reads until its end comes.

    python -I -S doomed.py unix:/path/of/the/socket /path/of/the/token name '[["session/turn", {...}], ...]'

Standard library only, so that hundreds of them are cheap. Each request but the last is answered before the next is
sent; the answer of the last one is reported by a line on stdout, an error ends it with a line on stderr.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any


def main(address: str, token_file: str, name: str, steps: str) -> None:
    """Until it is killed, or modeld closes the connection."""
    with open(token_file, encoding="utf-8") as file:
        token = file.read().strip()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address.removeprefix("unix:"))
    lines = connection.makefile("rb")
    client = {"name": name, "version": "1", "pid": os.getpid()}
    ask(connection, 1, "hello", {"protocol": 1, "token": token, "client": client})
    fence = answer(lines, 1)["instance"]
    *before, last = enumerate(json.loads(steps), start=2)
    for number, (method, params) in before:
        ask(connection, number, method, {**params, "fence": fence})
        answer(lines, number)
    number, (method, params) = last
    ask(connection, number, method, {**params, "fence": fence})
    answer(lines, number)
    print("answered", flush=True)
    for _ in lines:
        continue


def ask(connection: socket.socket, number: int, method: str, params: dict[str, Any]) -> None:
    """Send one request."""
    body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    connection.sendall(json.dumps(body).encode() + b"\n")


def answer(lines: Iterator[bytes], number: int) -> dict[str, Any]:
    """The result of that request; what comes before it is read over."""
    for line in lines:
        message = json.loads(line)
        if message.get("id") == number and "method" not in message:
            if "error" in message:
                sys.exit(f"{message['error']}")
            result: dict[str, Any] = message["result"]
            return result
    sys.exit("modeld closed the connection")


if __name__ == "__main__":
    main(*sys.argv[1:])
