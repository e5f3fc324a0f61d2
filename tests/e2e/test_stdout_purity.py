"""Nothing but protocol messages ever reaches the editor, whatever a library prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from clients.home import Home

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(120)]

#: runs before the bridge's own code: makes imports noisy by Python, by the descriptor and by C, and the exit too
NOISE = '''
import atexit, sys

def shout(where):
    import ctypes, os
    print(f"python noise {where}", flush=True)
    os.write(1, f"descriptor noise {where}\\n".encode())
    libc = ctypes.CDLL(None)
    libc.puts(f"c noise {where}".encode())
    libc.fflush(None)

class Noisy:
    """A library that prints while it is imported."""
    def find_spec(self, name, path=None, target=None):
        if name in ("msgspec", "anyio", "jinja2", "sqlite3", "shared.protocol.peer"):
            shout(name)
        return None

if "acp-bridge" in sys.argv[0] or "acp_bridge" in " ".join(sys.orig_argv):
    sys.meta_path.insert(0, Noisy())
    atexit.register(shout, "exit")
'''


@pytest.mark.openvino
def test_stdout_is_pure_under_noise(home: Home, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NOISE)
    home.start("openvino")
    with home.bridge(PYTHONPATH=str(tmp_path)) as editor:
        editor.initialize()
        session = editor.new_session(home.work)
        editor.choose(session["sessionId"], "model", editor.find_model(session, "smollm2"))
        assert editor.prompt(session["sessionId"], "What is the capital of France? Answer in one word.").text
    # leaving the block has judged every byte of stdout; the noise must really have been made
    noise = editor.errors()
    for kind in ("python noise", "descriptor noise", "c noise"):
        assert kind in noise
    assert "noise exit" in noise
