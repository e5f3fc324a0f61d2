"""Numbers for Prometheus: what modeld says of itself, and what this face has served. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from shared.protocol import api

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Seconds. A warm turn begins in some hundredths, a long prompt on a slow machine takes minutes.
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
STATES = ("Empty", "Loading", "Ready", "Busy", "Switching", "Unloading", "Failed", "ShuttingDown", "LostOwner")
Labels = dict[str, str]
Sample = tuple[str, Labels, float]


class Histogram:
    """Observations in seconds."""

    def __init__(self) -> None:
        self.counts = [0] * len(BUCKETS)
        self.count = 0
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """One more."""
        self.count += 1
        self.sum += seconds
        for place, bound in enumerate(BUCKETS):
            self.counts[place] += seconds <= bound

    def samples(self, name: str) -> list[Sample]:
        """As the format wants them: buckets that include the smaller ones."""
        rows: list[Sample] = [
            (f"{name}_bucket", {"le": str(bound)}, n) for bound, n in zip(BUCKETS, self.counts, strict=True)
        ]
        return [
            *rows,
            (f"{name}_bucket", {"le": "+Inf"}, self.count),
            (f"{name}_sum", {}, self.sum),
            (f"{name}_count", {}, self.count),
        ]


class Counters:
    """What this process has served since it began."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int], int] = {}
        self.running = 0
        self.reused = self.prefilled = self.generated = 0
        self.waited = Histogram()
        self.first_token = Histogram()

    def request(self, route: str, status: int) -> None:
        """An answer went out."""
        self.requests[route, status] = self.requests.get((route, status), 0) + 1

    def used(self, usage: api.Usage) -> None:
        """Tokens of one turn, fill or embedding."""
        self.reused += usage.reused
        self.prefilled += usage.prefilled
        self.generated += usage.generated

    def turn(self, result: api.TurnResult) -> None:
        """A turn has ended."""
        self.used(result.usage)
        self.waited.observe(result.timings.queued_s)
        if result.usage.generated:
            self.first_token.observe(result.timings.first_token_s)


def page(counters: Counters, status: api.Status | None) -> str:
    """The text of `GET /metrics`."""
    return "".join([*_served(counters), *_daemon(status)])


def _served(counters: Counters) -> Iterable[str]:
    requests = [
        ("acp_bridge_http_requests_total", {"route": route, "status": str(status)}, float(number))
        for (route, status), number in sorted(counters.requests.items())
    ]
    yield _family("acp_bridge_http_requests", "counter", "Requests that were answered.", requests)
    yield _one("acp_bridge_http_requests_running", "gauge", "Requests that run now.", counters.running)
    for kind, number, text in (
        ("prompt_reused", counters.reused, "Tokens of prompts that were warm."),
        ("prompt_prefilled", counters.prefilled, "Tokens of prompts that were evaluated."),
        ("generated", counters.generated, "Tokens of answers."),
    ):
        yield _one(f"acp_bridge_http_{kind}_tokens", "counter", text, number)
    for name, text, histogram in (
        ("acp_bridge_http_queue_wait_seconds", "Time that turns waited in modeld's queue.", counters.waited),
        (
            "acp_bridge_http_first_token_seconds",
            "From a turn's start at the engine to its first token.",
            counters.first_token,
        ),
    ):
        yield _family(name, "histogram", text, histogram.samples(name))


def _daemon(status: api.Status | None) -> Iterable[str]:
    yield _one("modeld_up", "gauge", "Whether modeld is there.", 0 if status is None else 1)
    if status is None:
        return
    info = {"version": status.version, "backend": status.backend, "model": status.active.name if status.active else ""}
    yield _family("modeld_info", "gauge", "What runs, as labels.", [("modeld_info", info, 1)])
    states: list[Sample] = [("modeld_slot_state", {"state": name}, float(name == status.state)) for name in STATES]
    yield _family("modeld_slot_state", "gauge", "1 for the state of the slot.", states)
    oldest = max((waiting.waited_s for waiting in status.queue), default=0.0)
    memory = status.memory
    for name, text, value in (
        ("modeld_slot_generation", "Rises with each load, unload and switch.", status.generation),
        ("modeld_queue_waiting", "Requests that wait for the slot.", len(status.queue)),
        ("modeld_queue_oldest_wait_seconds", "How long the oldest of them has waited.", oldest),
        ("modeld_busy", "Whether the slot is in use.", status.busy is not None),
        ("modeld_clients", "Connected clients.", status.clients),
        ("modeld_sessions", "Open sessions.", status.sessions),
        ("modeld_context_tokens", "Window of the resident model.", status.active.num_ctx if status.active else 0),
        ("modeld_abandoned_turns", "Turns whose client had gone.", status.abandoned_turns),
        ("modeld_uptime_seconds", "Since modeld began.", status.uptime_s),
        ("modeld_memory_required_bytes", "By the plan of the resident model.", memory.required_bytes),
        ("modeld_memory_free_bytes", "Free on the device.", memory.free_bytes),
        ("modeld_memory_reserve_bytes", "Kept free for other programs.", memory.reserve_bytes),
        ("modeld_memory_measured_bytes", "What the resident model took.", memory.measured_bytes),
        ("modeld_memory_pressure", "Whether memory is short.", memory.pressure),
    ):
        if value is not None:
            yield _one(name, "gauge", text, value)


def _one(name: str, kind: str, text: str, value: float) -> str:
    return _family(name, kind, text, [(f"{name}_total" if kind == "counter" else name, {}, float(value))])


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> str:
    family = f"{name}_total" if kind == "counter" else name
    lines = [f"# HELP {family} {text}", f"# TYPE {family} {kind}"]
    lines += [f"{sample}{_labels(labels)} {_number(value)}" for sample, labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{told}}}" if told else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
