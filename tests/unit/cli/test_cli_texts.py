"""What commands say: every part of the status, and what an action costs before it is taken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from acp_bridge.turn.model.switch_question import switch_question
from modeld.cli.commands.library import next_steps
from modeld.cli.context import complete
from modeld.cli.statustext import text
from shared.errors import ModelSwitchRequired
from shared.protocol import api
from shared.text.words import counted, switch_sentence, use_sentence

pytestmark = pytest.mark.unit

ACTIVE = api.ActiveModel(
    name="qwen",
    backend="llama",
    digest="fp1-0a0b",
    path="/models/qwen.gguf",
    device="GPU",
    num_ctx=8192,
    num_batch=512,
    gpu_layers=24,
    flash_attention=True,
    kv_type="q8_0",
    template_digest="abcdef0123456789",
    bos_policy="add",
    reasoning_format="think",
    runtime_digest="llama 1.2",
    tensor_split=[0.25, 0.75],
    adapters=["/models/lora.gguf"],
    reserved_bytes=5_000_000_000,
)
FULL = api.Status(
    instance="11111111-2222",
    role="owner",
    pid=4711,
    backend="llama",
    state="Busy",
    generation=42,
    active=ACTIVE,
    version="9.8.7",
    endpoint="unix:/run/m-1.sock",
    busy=api.BusyOperation(
        operation="turn", stage="prefill", holder="Zed", age_s=12.3, detail={"done": 512, "total": 1024}
    ),
    queue=[api.Waiting(client="VS Code", model="codellama", waited_s=61.0)],
    jobs=[api.BusyOperation(operation="pull", stage="downloading", holder="a command", age_s=3.0, detail={"done": 7})],
    sessions=3,
    clients=2,
    effective_context=8192,
    memory=api.MemoryStatus(
        required_bytes=4_600_000_000,
        free_bytes=9_100_000_000,
        reserve_bytes=1_600_000_000,
        measured_bytes=5_000_000_000,
        pressure=True,
    ),
    pending_reload=True,
    last_error={"code": -32013, "message": "codellama could not be loaded (weights): cut short", "data": {}},
    uptime_s=7200.0,
    last_turn=api.TurnResult(
        finish_reason="cancelled_by_other",
        model="qwen",
        usage=api.Usage(reused=100, prefilled=20, generated=7),
        timings=api.Timings(queued_s=1.5, load_s=2.5, prefill_s=0.4, first_token_s=0.5, tokens_per_s=31.25),
        generation=42,
        by="VS Code",
    ),
    abandoned_turns=1,
)
#: The parts of the status as the design lists them, and where each shows.
PARTS = {
    "instance": "11111111-2222",
    "role": "owner",
    "pid": "pid 4711",
    "version": "modeld 9.8.7",
    "backend": "backend llama",
    "endpoint": "unix:/run/m-1.sock",
    "state": "Busy",
    "active: name": "qwen",
    "active: path and digest": "/models/qwen.gguf (fp1-0a0b)",
    "active: KV type": "KV q8_0",
    "active: device": "on GPU, 24 layers on the GPU, split 0.25/0.75",
    "active: batch": "batch 512",
    "active: flash attention": "flash attention on",
    "active: template": "template abcdef01",
    "active: BOS token": "BOS token add",
    "active: reasoning": "reasoning think",
    "active: runtime": "engine llama 1.2",
    "active: adapters": "adapters /models/lora.gguf",
    "generation": "generation 42",
    "busy: operation, stage, holder, age": "turn, prefill (done 512, total 1024), for Zed, 12.3 s",
    "queue": "VS Code wants codellama, waits 1 min",
    "jobs": "pull, downloading (done 7), for a command, 3.0 s",
    "sessions": "3 sessions",
    "effective context": "context 8192",
    "memory free": "9.1 GB free",
    "memory reserve": "1.6 GB reserved for other programs",
    "memory measured": "the model took 5.0 GB",
    "memory required": "4.6 GB planned",
    "memory pressure": "memory is short: `modeld unload` frees",
    "pending reload": "changed settings wait for the next load",
    "last error": "codellama could not be loaded (weights): cut short",
    "uptime": "up 2.0 h",
    "last turn": "cancelled_by_other by VS Code",
    "last turn's counts": "100 tokens reused, 20 prefilled, 7 generated",
    "last turn's timings": "queued 1.5 s, loaded 2.5 s; prefill 0.4 s, first token 0.5 s, 31.2 tokens/s",
    "abandoned turns": "1 turn was lost",
}


@pytest.mark.parametrize("part", PARTS)
def test_the_status_for_people_shows_every_part(part: str) -> None:
    assert PARTS[part] in text(FULL)


def test_the_status_for_scripts_writes_every_field_of_every_part() -> None:
    written = complete(FULL)
    assert set(written) == set(api.Status.__struct_fields__)
    for name, kind in (("active", api.ActiveModel), ("memory", api.MemoryStatus), ("last_turn", api.TurnResult)):
        assert set(written[name]) == set(kind.__struct_fields__)
    assert msgspec.json.decode(msgspec.json.encode(written), type=api.Status) == FULL


def test_an_empty_slot_says_so_and_names_the_last_model() -> None:
    bare: dict[str, Any] = {"instance": "i", "role": "idle", "pid": 1, "backend": "none", "state": "Empty"}
    assert "model      none\n" in text(api.Status(generation=0, **bare))
    assert "none (last: qwen)" in text(api.Status(generation=7, hint_model="qwen", **bare))


def test_numbers_have_the_right_word() -> None:
    assert [counted(number, "model") for number in (0, 1, 2, 1024)] == [
        "0 models",
        "1 model",
        "2 models",
        "1,024 models",
    ]
    one = msgspec.structs.replace(
        FULL, sessions=1, abandoned_turns=2, active=msgspec.structs.replace(ACTIVE, gpu_layers=-1)
    )
    assert "1 session\n" in text(one)
    assert "2 turns were lost" in text(one)
    assert "all layers on the GPU" in text(one)


def row(name: str, *actions: api.RowAction) -> api.LibraryRow:
    return api.LibraryRow(
        name=name, title=name, backend="llama", format="gguf", path="/m", size_bytes=1, actions=list(actions)
    )


def test_the_library_says_what_can_be_done_and_what_it_costs() -> None:
    idle = next_steps([row("a", "activate"), row("b", "activate")])
    assert idle == ["", "`modeld load NAME` loads one into memory."]
    assert next_steps([row("a", "use", "unload"), row("b", "switch")]) == [
        "",
        "`modeld load NAME --switch` unloads a and drops its warm context.",
        "`modeld unload` frees the memory of a, with its warm context.",
    ]
    busy = next_steps([row("a", "wait", "cancel"), row("b", "switch")])
    assert "unloads the model that is resident and drops its warm context" in busy[1]
    assert "`modeld start`" in next_steps([row("a", "start_modeld")])[1]
    assert "pip install" in next_steps([row("a", "install_engine")])[1]
    assert next_steps([row("a")]) == []
    assert next_steps([row("a", "activate")], "/opt/bin/modeld")[1].startswith("`/opt/bin/modeld load NAME`")


def test_a_switch_is_reported_in_the_words_of_every_face() -> None:
    assert switch_sentence("A", "B") == "Switching from A to B will unload A and drop its warm context"
    assert switch_sentence("A", "A").startswith("Loading A with other settings will unload it")
    assert use_sentence("A", []) == "A is in use by another editor"
    refused = ModelSwitchRequired(active="A", requested="B", in_use_by=["Zed", "Zed"]).message
    asked = switch_question("card", "A", "B", ["Zed", "Zed"]).title
    for sentence in (switch_sentence("A", "B"), use_sentence("A", ["Zed"])):
        assert sentence in refused
        assert sentence in asked
    assert "in use" not in ModelSwitchRequired(active="A", requested="B").message
