"""The editor's pipes on Windows: pure stdout, binary both ways, an end that nothing holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

assert sys.platform == "win32"

pytestmark = pytest.mark.integration

CHECKOUT = os.environ["MODELD_CHECKOUT"]

AGENT = textwrap.dedent(
    f"""
    import sys; sys.path.insert(0, {CHECKOUT!r})
    from shared.endpoint.stdio import claim_stdin, claim_stdout, stdio_stream
    output = claim_stdout()
    import anyio, ctypes, os, subprocess
    from shared.protocol.framing import LineFramer
    from shared.protocol.peer import Peer
    from shared.settings import Settings

    async def answer(call):
        if call.method == "pollute":
            print("from print", flush=True)
            os.write(1, b"from os.write\\n")
            libc = ctypes.CDLL("ucrtbase")
            libc.puts(b"from a C library")
            libc.fflush(None)
            kernel = ctypes.WinDLL("kernel32")
            kernel.GetStdHandle.restype = ctypes.c_void_p
            kernel.WriteFile(ctypes.c_void_p(kernel.GetStdHandle(-11)), b"from a handle\\n", 14, None, None)
            subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
        return call.params(dict)

    async def main():
        settings = Settings()
        stream = stdio_stream(output, claim_stdin())
        peer = Peer(stream, LineFramer(settings.message_limit), on_request=answer,
                    on_notification=lambda note: None, settings=settings)
        with anyio.move_on_after(float(sys.argv[1]) if len(sys.argv) > 1 else 60):
            await peer.run()
        sys.stderr.write("reason=" + str(peer.closed_reason))

    anyio.run(main)
    """
)


def call(number: int, method: str, text: str = "") -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": {"text": text}}).encode() + b"\n"


def test_stdout_is_pure_whoever_prints_and_nothing_is_translated() -> None:
    odd = "a\r\nb\nc\x1a d \u00e9\U0001f600" + "x" * 200_000
    done = subprocess.run(
        [sys.executable, "-c", AGENT],
        input=call(1, "pollute") + call(2, "echo", odd),
        capture_output=True,
        check=False,
        timeout=60,
    )
    answers = {message["id"]: message["result"] for message in map(json.loads, done.stdout.split(b"\n")[:-1])}
    assert b"\r" not in done.stdout
    assert answers == {1: {"text": ""}, 2: {"text": odd}}
    for text in (b"print", b"os.write", b"a C library", b"a handle", b"a child"):
        assert b"from " + text in done.stderr
    assert b"reason=eof" in done.stderr
    assert done.returncode == 0


def test_a_silent_editor_does_not_hold_the_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", AGENT, "0.1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as agent:
        assert agent.wait(timeout=30) == 0  # standard input was open all the time
        agent.communicate()
