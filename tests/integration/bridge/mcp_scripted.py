"""An MCP server by hand, without a library: what it lists, and how it behaves, stands in the variable SCRIPT as JSON.

`pages` are lists of tools ({name, annotations}), `circle` makes the last page name the first again, `endless` makes one
page after the other, `hang` answers nothing to `initialize`, `dies` ends the process at the first call of a tool.
A call answers with the server's own name and the tool's.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def tool(facts: dict[str, Any]) -> dict[str, Any]:
    """One tool as it is listed."""
    return {"description": "x", "inputSchema": {"type": "object", "properties": {}}, **facts}


def page(script: dict[str, Any], cursor: str) -> dict[str, Any]:
    """The page that a cursor names."""
    place = int(cursor or 0)
    if script.get("endless"):
        return {"tools": [tool({"name": f"t{place}"})], "nextCursor": str(place + 1)}
    pages = script["pages"]
    listed: dict[str, Any] = {"tools": [tool(facts) for facts in pages[place % len(pages)]]}
    if place + 1 < len(pages) or script.get("circle"):
        listed["nextCursor"] = str((place + 1) % len(pages) or len(pages))
    return listed


def answer(script: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        info = {"name": "scripted", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return page(script, params.get("cursor", ""))
    if script.get("dies"):
        os._exit(3)
    return {"content": [{"type": "text", "text": f"{script.get('says', '')} {params['name']}".strip()}]}


def main() -> None:
    """Until the input ends."""
    script = json.loads(os.environ["SCRIPT"])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and not script.get("hang"):
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": answer(script, message)}
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
