"""The engine's packages call nobody: what they do at import is seen from a process with a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
IMPORT = """
import json, sys
attempts = []
sys.addaudithook(
    lambda event, details: attempts.append(event)
    if event in ("socket.connect", "socket.getaddrinfo", "urllib.Request", "subprocess.Popen")
    else None
)
from modeld.engine.openvino.library import Library
Library()
loaded = [name for name, module in sys.modules.items() if name.startswith("openvino_telemetry") and module]
print(json.dumps({"loaded": loaded, "attempts": attempts}))
"""


def test_the_engine_reports_to_nobody_and_writes_nothing_into_the_home(tmp_path: Path) -> None:
    pytest.importorskip("openvino_genai")
    kept = {name: value for name, value in os.environ.items() if name not in {"CI", "TF_BUILD", "JENKINS_URL"}}
    environ = {**kept, "HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}

    done = subprocess.run(
        [sys.executable, "-c", IMPORT], env=environ, capture_output=True, text=True, check=True, timeout=100
    )

    assert json.loads(done.stdout) == {"loaded": [], "attempts": []}
    assert list(tmp_path.iterdir()) == []
