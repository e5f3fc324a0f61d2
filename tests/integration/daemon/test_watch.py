"""`modeld status --watch` on a real terminal, and through a pipe."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys

import anyio
import anyio.to_thread
import pytest

from modeld_process import Modeld, write_models, write_script
from shared.paths import DataRoot
from waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(90)]

COMMAND = [sys.executable, "-P", "-m", "modeld", "status", "--watch"]


def modeld(root: DataRoot) -> Modeld:
    return Modeld(root, "scripted", MODELD_TEMPLATE_DEADLINE="30", **write_script(root.path))


@pytest.mark.skipif(os.name == "nt", reason="a terminal of Unix")
async def test_the_live_view_follows_and_gives_the_screen_back(data_root: DataRoot) -> None:
    import pty

    write_models(data_root, "a")
    async with modeld(data_root) as daemon:
        ours, theirs = pty.openpty()
        environ = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
        process = subprocess.Popen(COMMAND, stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
        os.close(theirs)
        seen = bytearray()

        def read() -> None:
            with contextlib.suppress(OSError):  # the other end has gone
                while chunk := os.read(ours, 65536):
                    seen.extend(chunk)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, read)
            await eventually(lambda: b"Empty" in seen, "the first screen")
            async with daemon.client("Ada") as client:
                await client.turn("a").end()
                await eventually(lambda: b"tokens/s" in seen, "the turn is shown")
            process.send_signal(signal.SIGINT)
            assert await anyio.to_thread.run_sync(process.wait) == 130
            tasks.cancel_scope.cancel()
        os.close(ours)
        text = seen.decode()
        assert text.startswith("\x1b[?1049h")
        assert "\x1b[?1049l" in text, "the old screen is back"
        assert "\x1b[?25h" in text, "and its cursor"
        plain = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", text)
        assert "● Ready" in plain
        assert "Traceback" not in plain


async def test_a_pipe_gets_text_and_a_restart_is_waited_for(data_root: DataRoot) -> None:
    write_models(data_root, "a")
    async with modeld(data_root) as daemon:
        with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("modeld ")
            before = daemon.instance()
            restart = [sys.executable, "-P", "-m", "modeld", "restart"]
            await anyio.run_process(restart, env=daemon.environ)
            assert daemon.instance() != before
            async with daemon.client() as client:
                await client.load("a")

            def until_loaded() -> str:
                assert process.stdout is not None
                text = ""
                while "slot       Ready" not in text:
                    line = process.stdout.readline()
                    assert line, text
                    text += line
                return text

            text = await anyio.to_thread.run_sync(until_loaded)
            process.terminate()
        assert "modeld stopped; waiting for it to come back" in text
        assert "\x1b" not in text
