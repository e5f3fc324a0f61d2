"""The status for people: every part that the design names, one a line. Pure."""

from __future__ import annotations

from modeld.cli.context import lined
from modeld.memory.told import device_text
from shared.protocol import api
from shared.text.words import age, counted, size_text


def text(status: api.Status) -> str:
    """Some lines, without a newline at the end."""
    status = lined(status)
    return "\n".join(
        [
            (
                f"modeld {status.version}  {status.role}  pid {status.pid}  backend {status.backend}  "
                f"up {age(status.uptime_s)}"
            ),
            f"instance   {status.instance}",
            f"endpoint   {status.endpoint}",
            f"slot       {status.state}, generation {status.generation}",
            *_model(status),
            *_work(status),
            *_memory(status.memory),
            *([f"ending     {status.ending}"] if status.ending else []),
            *_notes(status),
            f"clients    {status.clients} connected, {counted(status.sessions, 'session')}",
            *_last(status),
        ]
    )


def _model(status: api.Status) -> list[str]:
    active = status.active
    if active is None:
        return [f"model      none (last: {status.hint_model})"] if status.hint_model else ["model      none"]
    layers = f", {_layers(active.gpu_layers)} on the GPU" if active.gpu_layers else ""
    split = f", split {'/'.join(f'{part:g}' for part in active.tensor_split)}" if active.tensor_split else ""
    lines = [
        (
            f"model      {active.name}, context {status.effective_context or active.num_ctx}, KV {active.kv_type}, "
            f"on {active.device}{layers}{split}"
        ),
        f"           {active.path} ({active.digest})",
        (
            f"           batch {active.num_batch}, flash attention {'on' if active.flash_attention else 'off'}, "
            f"template {active.template_digest[:8] or 'none'}, BOS token {active.bos_policy or '-'}, "
            f"reasoning {active.reasoning_format or 'none'}, engine {active.runtime_digest}"
        ),
    ]
    if active.adapters:
        lines.append(f"           adapters {', '.join(active.adapters)}")
    return lines


def _layers(number: int) -> str:
    return "all layers" if number < 0 else counted(number, "layer")


def _work(status: api.Status) -> list[str]:
    lines = [] if status.busy is None else [f"busy       {_operation(status.busy)}"]
    for place, waiting in enumerate(status.queue, start=1):
        wants = f"wants {waiting.model}, " if waiting.model else ""
        lines.append(f"queue {place:>2}   {waiting.client} {wants}waits {age(waiting.waited_s)}")
    return [*lines, *(f"job        {_operation(job)}" for job in status.jobs)]


def _operation(busy: api.BusyOperation) -> str:
    detail = ", ".join(f"{name} {value}" for name, value in busy.detail.items() if value != "")
    stage = f", {busy.stage}" + (f" ({detail})" if detail else "")
    holder = f"for {busy.holder}" if busy.holder else "no client waiting"
    return f"{busy.operation}{stage}, {holder}, {age(busy.age_s)}"


def _memory(memory: api.MemoryStatus) -> list[str]:
    if memory.free_bytes is None:
        return []
    reserved = f"{size_text(memory.reserve_bytes)} reserved for other programs"
    line = f"memory     {size_text(memory.free_bytes)} free, {reserved}"
    if memory.measured_bytes is not None:
        line += f"; the model took {size_text(memory.measured_bytes)} ({size_text(memory.required_bytes)} planned)"
    lines = [line, *(f"device     {device_text(one)}" for one in memory.devices)]
    if not memory.pressure:
        return lines
    return [*lines, "           memory is short: `modeld unload` frees the model's memory"]


def _notes(status: api.Status) -> list[str]:
    if not status.pending_reload:
        return []
    return ["           changed settings wait for the next load: `modeld load MODEL --switch`"]


def _last(status: api.Status) -> list[str]:
    lines = []
    if status.last_turn is not None:
        lines.append(f"last turn  {turn_text(status.last_turn)}")
    if status.last_error is not None:
        lines.append(f"last error {status.last_error.get('message', '')}")
    if status.abandoned_turns:
        lost = counted(status.abandoned_turns, "turn")
        were = "was" if status.abandoned_turns == 1 else "were"
        lines.append(f"           {lost} {were} lost with the modeld before this one")
    return lines


def turn_text(turn: api.TurnResult) -> str:
    """Counts and times of one turn."""
    usage, times = turn.usage, turn.timings
    by = f" by {turn.by}" if turn.by else ""
    counts = f"{counted(usage.reused, 'token')} reused, {usage.prefilled} prefilled, {usage.generated} generated"
    waits = (
        f"queued {times.queued_s:.1f} s, loaded {times.load_s:.1f} s" if times.queued_s + times.load_s >= 0.1 else ""
    )
    spent = (
        f"prefill {times.prefill_s:.1f} s, first token {times.first_token_s:.1f} s, {times.tokens_per_s:.1f} tokens/s"
    )
    if times.threads:
        spent += f" with {counted(times.threads, 'thread')}"
    looped = " (it repeated itself)" if turn.ended_by == "repetition" else ""
    return f"{turn.finish_reason}{by}{looped}: {counts}; " + "; ".join(part for part in (waits, spent) if part)
