"""`make chat` tells a person only what is right where it is shown."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "scripts"))

import chat
from steps import StepFailed

pytestmark = [pytest.mark.unit, pytest.mark.skipif(os.name == "nt", reason="the stub is a shell script")]

STUB = """#!/bin/sh
[ "$*" = "pull starter --json" ] || { echo "Next: \\`modeld start\\`"; exit 9; }
echo '{"name": "starter"}'
exit ${STUB_EXIT:-0}
"""


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "modeld").write_text(STUB)
    (tmp_path / "modeld").chmod(0o755)
    monkeypatch.setattr(chat, "BIN", tmp_path)
    return tmp_path


def test_no_step_is_reported_that_is_done_already(stub: Path, capfd: pytest.CaptureFixture[str]) -> None:
    chat._pull(dict(os.environ))
    said = capfd.readouterr().out
    assert "Next" not in said
    assert "{" not in said


def test_a_failed_pull_names_what_to_check(stub: Path) -> None:
    with pytest.raises(StepFailed, match="check the network"):
        chat._pull({**os.environ, "STUB_EXIT": "7"})
