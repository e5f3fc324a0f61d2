"""What bridges of earlier releases said on the wire still gets the answers that they read.

Each file under `tests/data/wire` is one bridge's side of a conversation, recorded when it was released, with the shapes
of the answers it got. A new release adds a file; old ones are never changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from modeld_process import Modeld, write_models, write_script
from shared.endpoint.endpoint import connect
from shared.lease.presence import read_token
from shared.paths import DataRoot
from shared.protocol import api
from shared.protocol.framing import LineFramer

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(60)]

RECORDED = sorted((Path(__file__).resolve().parents[2] / "data" / "wire").glob("*.jsonl"))
#: Kinds of values that an answer must have; of the others, a default may be left out.
NEEDED = {"str": str, "int": int, "float": (int, float), "dict": dict}


class RawClient:
    """Sends recorded lines as they are; keeps what comes back."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._framer = LineFramer(1 << 26)
        self._bodies: list[Any] = []
        self.events: list[dict[str, Any]] = []

    async def send(self, message: dict[str, Any]) -> None:
        await self._stream.send(json.dumps(message).encode() + b"\n")

    async def answer(self, number: int) -> dict[str, Any]:
        while True:
            while not self._bodies:
                self._bodies += self._framer.feed(await self._stream.receive())
            message = json.loads(self._bodies.pop(0))
            if message.get("method") == "session/event":
                self.events.append(message["params"])
            elif message.get("id") == number:
                found: dict[str, Any] = message
                return found


def filled(message: dict[str, Any], **values: str) -> dict[str, Any]:
    text = json.dumps(message)
    for name, value in values.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    result: dict[str, Any] = json.loads(text)
    return result


def check(what: str, value: dict[str, Any], shape: dict[str, str]) -> None:
    for name, kind in shape.items():
        if kind in NEEDED:
            assert name in value, f"{what} has lost {name}"
            assert isinstance(value[name], NEEDED[kind]), f"{what}: {name} was {kind}, is {value[name]!r}"  # type: ignore[arg-type]


@pytest.mark.parametrize("path", RECORDED, ids=[path.stem for path in RECORDED])
async def test_an_earlier_bridge_gets_what_it_got(data_root: DataRoot, path: Path) -> None:
    write_models(data_root, "a", "b")
    script = write_script(data_root.path, [{"pieces": ["one ", "two"]}])
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    async with Modeld(data_root, "scripted", MODELD_TEMPLATE_DEADLINE="30", **script) as modeld:
        view = modeld.view()
        assert view is not None
        stream = await connect(view.endpoint, timeout=5.0, expected_pid=view.pid)
        client = RawClient(stream)
        token, fence = read_token(Path(view.token_file)), ""
        asked = 0
        for line in lines:
            if "client" in line:
                message = filled(line["client"], token=token, fence=fence, conversation="c1")
                await client.send(message)
                asked = message["id"]
                with anyio.fail_after(30):
                    reply = await client.answer(asked)
                continue
            assert line["answer"] == asked
            assert "result" in reply, f"{message['method']} was answered, is refused: {reply}"
            check(message["method"], reply["result"], line["shape"])
            fence = fence or reply["result"].get("instance", "")
            seen = {each["event"]["type"]: each["event"] for each in client.events if each["request"] == asked}
            for kind, shape in line.get("events", {}).items():
                assert kind in seen, f"{message['method']} has lost its event {kind}"
                check(f"event {kind}", seen[kind], shape)
        await stream.aclose()


def test_every_promised_protocol_is_recorded() -> None:
    recorded = {int(path.stem.rpartition("protocol-")[2]) for path in RECORDED}
    assert recorded == set(range(api.PROTOCOL_MIN, api.PROTOCOL_MAX + 1))
