"""The certain begin of the next prompt is evaluated between two turns, and changes what they cost and nothing else."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_bench import assistant, user

from modeld.engine.contract import AbortFlag, LoadRequest
from modeld.engine.llama.engine import LlamaEngine
from modeld.engine.llama.library import Library
from modeld.pipe.messages import Done, TrimParked, Turn, Warm
from modeld.template.render import Template
from modeld.worker import process as worker
from modeld.worker.chat import Chat
from modeld.worker.process import Worker
from modeld.worker.template_limits import RenderGuard
from modeld.worker.turn import Heard, TurnRunner
from modeld.worker.turn_gate import Activity
from modeld.worker.watchdog import Watchdog
from shared.catalog.identity import RequestedIdentity
from shared.protocol.api import Event, Sampling

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
#: Behind the answer's last token: its end, a line break, the begin of the next message.
TAIL = ("<|im_end|>", "\n", "<|im_start|>")
EXACT: dict[str, Any] = {"kv_type": "f32", "flash_attention": False}


def silent(events: list[Event]) -> None:
    """Nobody reads."""


def never() -> bool:
    """No work comes."""
    return False


@functools.cache
def library() -> Library:
    """One for all engines here: native code keeps its log callback, which must not go with one of them."""
    return Library()


class Inside:
    """A runner and its engine in this process."""

    def __init__(self, path: Path, template: str | None = None) -> None:
        self.abort = AbortFlag()
        self.engine = LlamaEngine(self.abort)
        self.engine._library = library()
        identity = RequestedIdentity(backend="llama", name="m", digest="test", path=str(path), **EXACT)
        loaded = self.engine.load(
            LoadRequest(identity=identity, model={}, num_ctx=1024, threads=1, parked_bytes=64 << 20),
            lambda done, of: None,
        )
        chat = Chat(self.engine, Template(template or loaded.template), RenderGuard(10.0))
        self.runner = TurnRunner(self.engine, chat, loaded, Activity())
        self._turn = 0

    def ask(self, messages: list[dict[str, Any]], **params: Any) -> tuple[str, Done]:
        """One turn."""
        self._turn += 1
        said = Heard(silent)
        asked = Sampling(temperature=0.0, **{"max_tokens": 12, **params})
        done = self.runner.turn(Turn(turn=self._turn, messages=messages, tools=[], params=asked), said)
        return said.text, done

    def go_on(self, interrupted: Callable[[], bool] = never) -> int:
        """What the worker does while nobody waits."""
        return self.runner.prefill_ahead.evaluate(interrupted)


@pytest.fixture
def inside(tiny: Path) -> Iterator[Inside]:
    """Plain attention, full precision."""
    made = Inside(tiny)
    yield made
    made.engine.close()


def talk(answer: str, question: str = "And then?") -> list[dict[str, Any]]:
    """A conversation that goes on."""
    return [user("Tell me more."), assistant(answer), user(question)]


def test_the_next_question_costs_its_own_words(inside: Inside, tiny: Path) -> None:
    text, _ = inside.ask([user("Tell me more.")])
    _, plain = inside.ask(talk(text))
    text, _ = inside.ask([user("Tell me more.")])
    more = inside.go_on()
    assert more >= len(TAIL)
    answer, done = inside.ask(talk(text))
    assert done.usage.prefilled == plain.usage.prefilled - more
    fresh = Inside(tiny)
    try:
        assert fresh.ask(talk(text))[0] == answer
    finally:
        fresh.engine.close()


def test_it_is_done_once_and_only_behind_an_answer(inside: Inside) -> None:
    assert inside.go_on() == 0
    inside.ask([user("Tell me more.")])
    assert inside.go_on() > 0
    assert inside.go_on() == 0


def test_an_answer_that_was_stopped_by_words_is_left_alone(inside: Inside) -> None:
    text, _ = inside.ask([user("Tell me more.")])
    stopped, done = inside.ask([user("Tell me more.")], stop=[text[3:5]])
    assert (done.finish_reason, stopped) == ("stop", text[:3])
    assert inside.go_on() == 0, "what is held goes on behind what was said"


def test_a_template_that_rewrites_the_past_makes_nothing_certain(tiny: Path) -> None:
    shortened = "{% for m in messages %}<|im_start|>{{ m.content[:4] if not loop.last else m.content }}{% endfor %}"
    made = Inside(tiny, shortened)
    try:
        made.ask([user("Tell me more.")])
        assert made.go_on() == 0
    finally:
        made.engine.close()


def test_work_that_came_meanwhile_goes_first(inside: Inside) -> None:
    text, _ = inside.ask([user("Tell me more.")])
    assert inside.go_on(lambda: True) == 0
    inside.ask([user("Tell me more.")])
    inside.abort.set()
    assert inside.go_on() == 0, "stopped within the evaluation"
    inside.abort.clear()
    assert inside.engine.valid()
    answer, _ = inside.ask(talk(text))
    assert inside.ask(talk(text))[0] == answer


def test_what_a_warm_up_evaluates_has_no_logits_and_the_turn_behind_it_answers_alike(inside: Inside) -> None:
    expected, _ = inside.ask(talk("Once."))
    inside.ask([user("Something else " * 20)])
    inside.runner.warm(Warm(turn=99, messages=talk("Once."), tools=[]), silent)
    assert inside.ask(talk("Once."))[0] == expected


class Spare:
    """A resident model that wants the engine once, and sees work come meanwhile."""

    wants_spare_time = True

    def __init__(self, come: Callable[[], None]) -> None:
        self._come = come
        self.interrupted: list[bool] = []

    def use_spare_time(self, interrupted: Callable[[], bool]) -> None:
        """As Resident."""
        self.interrupted.append(interrupted())
        self._come()
        self.interrupted.append(interrupted())


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Worker:
    """A worker that waits for nothing."""
    monkeypatch.setattr(worker, "SPARE_AFTER", 0.0)
    return Worker("none", 0, 1, Watchdog(60.0, 1))


def test_work_that_comes_stops_what_nobody_waits_for(idle: Worker) -> None:
    job = TrimParked(turn=1, limit=0)
    flags: list[bool] = []

    def come() -> None:
        flags.append(bool(idle._abort))
        idle._give(job)
        flags.append(bool(idle._abort))

    spare = Spare(come)
    idle._resident = spare  # type: ignore[assignment]
    assert idle._next_job(LlamaEngine(AbortFlag())) is job
    assert spare.interrupted == [False, True]
    assert flags == [False, True]
    assert not idle._abort, "the job that came is not stopped with it"


def test_work_that_waits_already_comes_before_it(idle: Worker) -> None:
    spare = Spare(lambda: None)
    idle._resident = spare  # type: ignore[assignment]
    job = TrimParked(turn=1, limit=0)
    idle._give(job)
    assert idle._next_job(LlamaEngine(AbortFlag())) is job
    assert spare.interrupted == []
    assert not idle._abort
