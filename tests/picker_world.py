"""Real editors' bridges around a modeld that goes and comes back: what their pickers show, and what prompts get.

A picker's *shape* is everything but its descriptions: the groups' ids and names, the values and names in order, and the
current value. Used by the tests (a few restarts) and by `tests/soak/soak_catalog.py` (all of them).
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import psutil

from clients.bridge import Bridge, BridgeError, Pending, model_option, private_environment
from clients.npm import node_modules
from clients.schema import WireCheck
from clients.wire import Wire
from leaks import end_processes_of
from shared.lease.reader import survey
from shared.paths import DataRoot
from tiny_gguf import write_tiny_gguf
from waiting import until

End = Literal["stop", "kill", "upgrade"]
Shape = tuple[str, tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]]
JsonObject = dict[str, Any]

#: More than a loaded machine needs; what must be quick is measured, not asserted.
PATIENCE = 60.0
AWAY_WORDS = ("restarting", "stopped, start modeld")
OTHER_VERSION = "9.9.9"
MODELS = ("alpha", "beta", "gamma")


@dataclass
class Seat:
    """One editor window: a bridge, a conversation in a folder of its own, and what its picker must look like."""

    bridge: Bridge
    work: Path
    session: str = ""
    made: JsonObject = field(default_factory=dict)

    def open(self) -> Self:
        """A new conversation."""
        self.bridge.initialize()
        self.made = self.bridge.new_session(self.work)
        self.session = self.made["sessionId"]
        return self

    def poll(self) -> JsonObject:
        """The model option as it is now: setting the mode it has answers with the complete list."""
        return model_option(self.bridge.choose(self.session, "mode", "ask"))

    def pick(self, name: str) -> JsonObject:
        """Pick a model; the option after it."""
        return model_option(self.bridge.choose(self.session, "model", name))

    def pushed(self) -> list[tuple[int, JsonObject]]:
        """Every model option that came by itself, with its place among the updates."""
        found = []
        for at, params in enumerate(list(self.bridge.updates)):
            update = params["update"]
            if params["sessionId"] == self.session and update["sessionUpdate"] == "config_option_update":
                found.append((at, model_option(update)))
        return found

    def until(self, what: Callable[[JsonObject], bool], label: str, seconds: float = PATIENCE) -> JsonObject:
        """The first polled option for which `what` holds."""
        held: list[JsonObject] = []

        def look() -> bool:
            held[:] = [self.poll()]
            return what(held[0])

        until(look, label, seconds)
        return held[0]


class World:
    """One user's data root with three tiny real models, a modeld that comes and goes, and editor windows."""

    def __init__(self, **environ: str) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="md-")
        self.folder = Path(self._temporary.name)
        self.root = DataRoot(self.folder / "data")
        self.models = self.folder / "models"
        self.environ = private_environment(self.folder, MODELD_MODEL_FOLDERS=str(self.models), **environ)
        self.root.path.mkdir(mode=0o700)
        for seed, name in enumerate(MODELS, start=1):
            write_tiny_gguf(self.models / f"{name}.gguf", name=name, seed=seed, context=256)
        self.schema = node_modules() / "sdk-2.4/schema/v1/schema.json"
        self.seats: list[Seat] = []
        self.daemon: subprocess.Popen[bytes] | None = None
        self.started = 0.0
        self._said = self.folder / "modeld.said"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None:
                print(self.reported())
            for seat in list(self.seats):
                self.leave(seat, clean=kind is None)
            if self.daemon is not None:
                self.end("stop")
            left = end_processes_of(self.root.path)
            assert kind is not None or not left, f"left behind: {left}"
        finally:
            end_processes_of(self.root.path)
            self._temporary.cleanup()

    def reported(self, lines: int = 40) -> str:
        """The last of what modeld and the bridges said, for a failure."""
        log = self.root.logs / "modeld.log"
        parts = [(path.name, path.read_text(errors="replace")) for path in (self._said, log) if path.exists()]
        parts += [(f"the bridge of {seat.work.name}", seat.bridge.errors()) for seat in self.seats]
        shown = [f"--- {name}\n" + "\n".join(text.splitlines()[-lines:]) for name, text in parts if text.strip()]
        return "\n".join(shown) or "nobody said anything"

    # --- modeld --------------------------------------------------------------------------------

    def start(self, *, version: str = "") -> None:
        """A modeld that can be found. `version`: as if another one had been installed meanwhile."""
        environ = dict(self.environ)
        if version:
            environ["PYTHONPATH"] = str(self._installed(version))
        self.started = time.monotonic()
        with self._said.open("ab") as output:
            self.daemon = subprocess.Popen(
                [sys.executable, "-m", "modeld", "serve", "--quiet", "--backend", "llama"],
                env=environ,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        pid = self.daemon.pid
        until(
            lambda: (
                self.daemon is None
                or self.daemon.poll() is not None
                or any(view.pid == pid for view in survey(self.root).living)
            ),
            "modeld can be found",
        )
        assert self.daemon.poll() is None, self._said.read_text()

    def _installed(self, version: str) -> Path:
        """A folder whose `shared.version` comes before the installed one."""
        place = self.folder / f"version-{version}"
        (place / "shared").mkdir(parents=True, exist_ok=True)
        (place / "shared" / "version.py").write_text(f'"""Another one."""\n\n__version__ = "{version}"\n')
        return place

    def end(self, how: End) -> None:
        """The running modeld goes, and is seen gone."""
        assert self.daemon is not None
        if how == "kill":
            workers = [child.pid for child in psutil.Process(self.daemon.pid).children()]
            self.daemon.send_signal(signal.SIGKILL)
            self.daemon.wait(PATIENCE)
            until(lambda: not any(map(_runs, workers)), "the worker of a killed modeld ends by itself")
        else:
            method = "daemon/handover" if how == "upgrade" else "daemon/shutdown"
            with Wire(self.root.path) as wire:
                wire.request(method, {} if how == "upgrade" else {"reason": how})
            self.daemon.wait(PATIENCE)
        self.daemon = None

    def restart(self) -> None:
        """In place: the same process goes on as another instance. Returns once it was reported."""
        self.started = time.monotonic()
        with Wire(self.root.path) as wire:
            wire.request("daemon/restart", {})

    def instance(self) -> str:
        """The instance that can be found now, "" while none can."""
        living = survey(self.root).living
        return living[0].instance if living else ""

    def version(self) -> str:
        """Of the modeld that answers."""
        with Wire(self.root.path) as wire:
            return str(wire.status()["version"])

    def active(self) -> str:
        """The model that is loaded, "" when none is."""
        with Wire(self.root.path) as wire:
            active = wire.status()["active"]
            return str(active["name"]) if active else ""

    # --- editors -------------------------------------------------------------------------------

    def sit(self, work: str, **environ: str) -> Seat:
        """Another editor window, with a conversation in the folder `work`."""
        place = self.folder / work
        place.mkdir(exist_ok=True)
        bridge = Bridge(
            [sys.executable, "-m", "acp_bridge", "acp"],
            {**self.environ, **environ},
            WireCheck(self.schema),
            cwd=place,
        )
        seat = Seat(bridge, place)
        self.seats.append(seat)
        return seat.open()

    def leave(self, seat: Seat, *, clean: bool = True) -> None:
        """The window is closed."""
        self.seats.remove(seat)
        code = seat.bridge.close()
        if clean:
            assert code == 0, seat.bridge.errors()
            assert not seat.bridge.check.problems, seat.bridge.check.problems

    @contextmanager
    def born(self, work: str) -> Iterator[Seat]:
        """A window that is opened now and closed again."""
        seat = self.sit(work)
        try:
            yield seat
        finally:
            if seat in self.seats:
                self.leave(seat, clean=sys.exc_info()[0] is None)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# --- pickers ------------------------------------------------------------------------------------


def shape_of(option: JsonObject) -> Shape:
    """Everything of a picker that may not move in a gap."""
    return (
        option["currentValue"],
        tuple(
            (group["group"], group["name"], tuple((choice["value"], choice["name"]) for choice in group["options"]))
            for group in option["options"]
        ),
    )


def values(option: JsonObject) -> list[str]:
    """The values in order, whatever their group."""
    return [choice["value"] for group in option["options"] for choice in group["options"]]


def groups(option: JsonObject) -> dict[str, list[str]]:
    """The values by group id."""
    return {group["group"]: [choice["value"] for choice in group["options"]] for group in option["options"]}


def descriptions(option: JsonObject) -> dict[str, str]:
    """What each value says of itself."""
    return {
        choice["value"]: choice.get("description") or "" for group in option["options"] for choice in group["options"]
    }


def is_away(option: JsonObject) -> bool:
    """Whether every local row says that modeld is away."""
    local = [
        choice.get("description") or ""
        for group in option["options"]
        if group["group"] in ("active", "installed")
        for choice in group["options"]
    ]
    return bool(local) and all(text.startswith(AWAY_WORDS) for text in local)


def is_live(option: JsonObject) -> bool:
    """Whether local models are listed and none says that modeld is away."""
    listed = groups(option)
    return bool(listed.get("active") or listed.get("installed")) and not any(
        text.startswith(AWAY_WORDS) for text in descriptions(option).values()
    )


# --- prompts ------------------------------------------------------------------------------------


def outcome(seat: Seat, pending: Pending, seconds: float = PATIENCE) -> tuple[str, JsonObject]:
    """How a prompt ended: (`served`, what its answer says of the turn) or (the error's kind, its data)."""
    try:
        turn = seat.bridge.end_prompt(pending, seconds)
    except BridgeError as error:
        return error.kind, {**error.data, "lines": error.message.count("\n") + 1}
    return "served", dict(turn.meta.get("modeld.turn") or {})
