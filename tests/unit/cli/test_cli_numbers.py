"""Numbers on the command line and on the wire: what cannot be meant is refused before anything is unloaded."""

from __future__ import annotations

import msgspec
import pytest

from modeld.cli.app import parser
from modeld.cli.context import config_words, load_config
from shared.errors import DiskFull, InsufficientMemory, ModelNotFound
from shared.protocol.api import LoadConfig

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "given",
    [
        ["load", "m", "--ctx", "0"],
        ["load", "m", "--ctx", "-5"],
        ["load", "m", "--min-ctx", "0"],
        ["load", "m", "--batch", "0"],
        ["load", "m", "--gpu-layers", "-2"],
        ["load", "m", "--wait", "-1"],
        ["load", "m", "--wait", "nan"],
        ["unload", "--wait", "-0.5"],
        ["stop", "--drain", "-1"],
        ["restart", "--drain", "nan"],
        ["logs", "-n", "-1"],
    ],
    ids=" ".join,
)
def test_a_number_that_cannot_be_meant_is_refused(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        parser().parse_args(given)
    assert refused.value.code == 2
    assert "is less than" in capsys.readouterr().err


def test_what_can_be_meant_stays() -> None:
    options = parser().parse_args(["load", "m", "--ctx", "1", "--gpu-layers", "-1", "--wait"])
    assert (options.ctx, options.gpu_layers, options.wait) == (1, -1, -1.0)
    assert parser().parse_args(["logs", "-n", "0"]).n == 0


def test_a_command_that_is_reported_again_keeps_its_options() -> None:
    given = "--ctx 2048 --min-ctx 1024 --batch 64 --device CPU --gpu-layers -1 --kv-type q8_0 --flash-attention off"
    words = [*given.split(), "--adapter", "/x/my lora.gguf", "--adapter", "/x/b.gguf"]
    assert config_words(load_config(parser().parse_args(["load", "m", *words]))) == words
    assert config_words(load_config(parser().parse_args(["load", "m"]))) == []


@pytest.mark.parametrize("field", ["num_ctx", "min_ctx", "num_batch"])
@pytest.mark.parametrize("value", [0, -5])
def test_the_wire_refuses_a_context_of_no_tokens(field: str, value: int) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({field: value}, LoadConfig)


def test_messages_have_amounts_and_names_as_people_read_them() -> None:
    memory = InsufficientMemory(device="CPU", required_bytes=230785499648, free_bytes=20357701632, reserve_bytes=5)
    assert "230.8 GB needed, 20.4 GB free, 0 MB reserved" in memory.message
    assert memory.required_bytes == 230785499648
    assert memory.message.endswith("; close other programs, or take a smaller model"), "what to do, and never None"
    fits = InsufficientMemory(device="CPU", required_bytes=2, free_bytes=1, reserve_bytes=0, fits=1792)
    assert fits.message.endswith("or a context of 1792 tokens (`--ctx 1792`)")
    assert DiskFull(path="/x", needed_bytes=258342336).message == "no space left at /x; free at least 258 MB"
    assert ModelNotFound(requested="a", near=["b", "c"]).message == "no model named a; closest: b, c"
    assert ModelNotFound(requested="a", near=[]).message == "no model named a; `modeld library` lists them"
