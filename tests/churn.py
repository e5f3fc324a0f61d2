"""Bridges in turns while the owners of the hardware die: real bridges, real daemons, a scripted engine.

Two daemons are kept alive, an owner and a standby. Every few seconds the owner is killed, every third time frozen
instead and woken when its successor owns. Each turn must end with its answer or with a typed error, and no daemon may
see a call that was meant for another instance: a daemon logs that, and the log is read at the end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from clients.bridge import Bridge, BridgeError, private_environment
from clients.schema import WireCheck
from leaks import end_processes_of
from modeld_process import write_models, write_script
from shared.errors import UnknownError, from_wire
from shared.lease.reader import LeaseView, survey
from shared.paths import DataRoot

MODEL = "churned"
ANSWER = ["one ", "two ", "three ", "four ", "five "]
#: Longer than a bridge may take to find out that an owner is frozen, and to be served by the next.
TURN_SECONDS = 60.0
PROMPTS_IN_A_SESSION = 4
#: The longest that a daemon, an owner or a successor may take on a machine that does other things too. Seconds.
LIMIT = 90.0
#: What a daemon logs when a call was meant for another instance.
STALE = "was meant for another instance"


class Unjudged(WireCheck):
    """Other tests judge each line; here only the outcome counts."""

    def __init__(self) -> None:
        self.problems = []
        self.seen = Counter()

    def to_agent(self, line: str) -> None:
        del line

    def from_agent(self, line: str) -> None:
        del line


class Churn:
    """`run` once. Afterwards `outcomes` counts how turns ended, `problems` is what must not have been."""

    def __init__(self, folder: Path, *, bridges: int, deaths: int, every: float) -> None:
        self.root = DataRoot(folder / "data")
        self.outcomes: Counter[str] = Counter()
        self.problems: list[str] = []
        self.turn_seconds: list[float] = []
        self.takeovers: list[float] = []
        self.killed = self.frozen = 0
        self._bridges = bridges
        self._deaths = deaths
        self._every = every
        self._folder = folder
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._environ = private_environment(folder, MODELD_LEASE_TTL="1")

    def run(self) -> None:
        """Everything, to its end; leaves no process."""
        self.root.path.mkdir(mode=0o700, parents=True)
        write_models(self.root, MODEL)
        self._environ.update(write_script(self._folder, [{"pieces": ANSWER}], token_s=0.02))
        started: list[Bridge] = []
        try:
            self._keep_two()
            self._until(lambda: bool(survey(self.root).living), "a daemon")
            started = [self._bridge() for _ in range(self._bridges)]
            threads = [threading.Thread(target=self._converse, args=(bridge,)) for bridge in started]
            for thread in threads:
                thread.start()
            self._kill_owners()
            self._over.set()
            for thread in threads:
                thread.join()
        finally:
            for bridge in started:
                bridge.close()
            self._end_daemons()
        self._judge()

    # --- daemons -------------------------------------------------------------------------------

    def _keep_two(self) -> None:
        for process in [one for one in self._daemons if one.poll() is not None]:
            self._daemons.remove(process)
        command = [sys.executable, "-m", "modeld", "serve", "--quiet", "--backend", "scripted"]
        while len(self._daemons) < 2:
            with (self._folder / "daemons.log").open("ab") as log:
                self._daemons.append(
                    subprocess.Popen(command, env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                )

    def _kill_owners(self) -> None:
        while self.killed + self.frozen < self._deaths and not self.problems:
            pause = time.monotonic() + self._every
            self._until(lambda: self._owner() is not None, "an owner")
            while time.monotonic() < pause:
                time.sleep(0.05)
            owner = self._owner()
            if owner is not None:
                self._end_owner(owner)
            self._keep_two()

    def _end_owner(self, owner: LeaseView) -> None:
        freeze = (self.killed + self.frozen) % 3 == 2
        began = time.monotonic()
        os.kill(owner.pid, signal.SIGSTOP if freeze else signal.SIGKILL)
        if freeze:
            self.frozen += 1
            self._until(lambda: self._owner_but(owner.instance), "a successor of a frozen owner")
            os.kill(owner.pid, signal.SIGCONT)
            return
        self.killed += 1
        process = next((one for one in self._daemons if one.pid == owner.pid), None)
        if process is not None:
            process.wait()
        if self._until(lambda: self._owner_but(owner.instance), "a successor"):
            self.takeovers.append(time.monotonic() - began)

    def _owner(self) -> LeaseView | None:
        found = survey(self.root).owner
        return found if found is not None and found.standing == "held" and not found.dead and found.pid else None

    def _owner_but(self, instance: str) -> bool:
        owner = self._owner()
        return owner is not None and owner.instance != instance

    def _until(self, true: Callable[[], bool], what: str) -> bool:
        deadline = time.monotonic() + LIMIT
        while not true():
            if time.monotonic() > deadline:
                self.problems.append(f"not within {LIMIT:.0f} s: {what}")
                return False
            time.sleep(0.01)
        return True

    def _end_daemons(self) -> None:
        for process in self._daemons:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self._daemons:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                self.problems.append(f"daemon {process.pid} did not end")
                process.kill()
                process.wait()

    # --- bridges -------------------------------------------------------------------------------

    def _bridge(self) -> Bridge:
        command = [sys.executable, "-m", "acp_bridge", "acp"]
        return Bridge(command, self._environ, Unjudged(), cwd=self._folder)

    def _converse(self, bridge: Bridge) -> None:
        try:
            bridge.initialize()
            while not self._over.is_set():
                session = bridge.new_session(self._folder)
                name = str(session["sessionId"])
                bridge.choose(name, "model", bridge.find_model(session, MODEL, 30.0))
                for _ in range(PROMPTS_IN_A_SESSION):
                    if not self._over.is_set():
                        self._prompt(bridge, name)
            self._last_word(bridge, name)
        except Exception as error:  # reported by the test; the other bridges go on
            with self._lock:
                self.problems.append(f"a bridge gave up: {type(error).__name__} {error}")

    def _prompt(self, bridge: Bridge, session: str) -> str:
        began = time.monotonic()
        try:
            turn = bridge.prompt(session, "count to five", TURN_SECONDS)
            outcome = turn.stop_reason
            if outcome == "end_turn" and turn.text.strip() != "".join(ANSWER).strip():
                self.problems.append(f"another answer: {turn.text!r}")
        except BridgeError as error:
            outcome = error.kind
            wire = {"code": error.code, "message": error.message, "data": error.data}
            if isinstance(from_wire(wire), UnknownError):
                self.problems.append(f"no typed error: {error}")
        except TimeoutError as error:
            outcome = "HANGS"
            self.problems.append(f"a turn hangs: {error}")
        with self._lock:
            self.outcomes[outcome] += 1
            self.turn_seconds.append(time.monotonic() - began)
        return outcome

    def _last_word(self, bridge: Bridge, session: str) -> None:
        """Nobody dies any more: the bridge goes on by itself."""
        for _ in range(3):  # the first may still meet the last death
            if self._prompt(bridge, session) == "end_turn":
                return
        self.problems.append("a bridge did not find the last owner")

    # --- the end -------------------------------------------------------------------------------

    def _judge(self) -> None:
        log = self.root.logs / "modeld.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        self.problems += [line for line in lines if STALE in line or "defect" in line]
        said = (self._folder / "daemons.log").read_text(errors="replace")
        if "Traceback" in said:
            self.problems.append(said[-3000:])
        self.problems += [f"left behind: {one}" for one in end_processes_of(self.root.path)]
