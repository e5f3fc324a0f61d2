"""Tab in a real shell gives commands, options and the names of models."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from modeld.cli.app import parser
from modeld_process import write_models
from shared.completion import SHELLS, candidates, script
from shared.paths import DataRoot

pytestmark = pytest.mark.integration


def offered(*words: str) -> list[str]:
    return candidates(parser(), words, lambda: ["gemma3", "smollm2"])


def test_what_is_offered_where() -> None:
    assert "status" in offered("")
    assert offered("sta") == ["start", "status"]
    assert offered("status", "--w") == ["--watch"]
    assert offered("load", "s") == ["smollm2"]
    assert offered("service", "") == ["install", "remove", "status"]
    assert offered("describe", "--flash-attention", "") == ["off", "on"]
    assert offered("nonsense", "") == []
    assert "complete" not in offered("")


def test_bash_completes(data_root: DataRoot) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    write_models(data_root, "wanted-model")
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    program = (
        "source <(modeld completion bash); source <(acp-bridge completion bash)\n"
        'COMP_WORDS=(modeld load wan); COMP_CWORD=2; _modeld; echo "${COMPREPLY[@]}"\n'
        'COMP_WORDS=(acp-bridge install z); COMP_CWORD=2; _acp_bridge; echo "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run([bash, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["wanted-model", "zed"], done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_the_lines_are_of_their_shell(shell: str) -> None:
    text = script("acp-bridge", shell)
    assert "acp-bridge complete --" in text
    tool = shutil.which(shell)
    if tool is not None:  # what is here may say whether it can read it
        subprocess.run([tool, "-n", "-c", text] if shell != "fish" else [tool, "-n"], input=text, text=True, check=True)
