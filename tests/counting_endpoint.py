"""A listening OpenAI-compatible endpoint that counts who comes: zero connections are zero bytes of anybody's prompt."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from served import Served

MODEL = "lab/big"
ANSWER = "from another machine"


class CountingEndpoint(Served):
    """Serves in a thread of its own until the block ends. `prompts` are the bodies of the chat requests."""

    def __init__(self) -> None:
        self.connections = 0
        self.prompts: list[dict[str, Any]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def setup(self) -> None:
                endpoint.connections += 1
                super().setup()

            def do_GET(self) -> None:
                self._answer("application/json", json.dumps({"data": [{"id": "big", "max_model_len": 4096}]}))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.prompts.append(json.loads(body))
                chunk = {"choices": [{"delta": {"content": ANSWER}, "finish_reason": "stop"}]}
                self._answer("text/event-stream", f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")

            def _answer(self, kind: str, text: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *args: Any) -> None:
                """Quiet."""

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), Handler))

    def configure(self, file: Path, *, listed: bool = False) -> str:
        """Write it into a config file as the provider `lab`; the path. `listed`: its models are asked for, which is a
        connection too; else they stand in the file.
        """
        models = "" if listed else 'models = ["big"]\n'
        file.write_text(f'[providers.lab]\nbase_url = "http://127.0.0.1:{self._server.server_port}/v1"\n{models}')
        return str(file)
