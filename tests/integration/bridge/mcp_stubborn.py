"""An MCP server by hand, without a library: it has no tools, and ends neither with its input nor when asked to."""

from __future__ import annotations

import json
import signal
import sys
import time


def main() -> None:
    """Answer until the input ends, then stay."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        reply: dict[str, object] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "stubborn", "version": "1"}
            reply["result"] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        elif message["method"] == "tools/list":
            reply["result"] = {"tools": []}
        else:
            reply["error"] = {"code": -32601, "message": "no such method"}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
