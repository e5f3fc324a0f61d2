"""The engine folder's pure parts: gate, stream, frames, lanes, watchdog, threads, sampling."""

from __future__ import annotations

import ctypes
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeld.engine.contract import AbortFlag, Capabilities
from modeld.engine.llama.lanes import WORTH_PARKING, Checkpoint, Lane, Parked, State, choose
from modeld.engine.prefix import common_prefix
from modeld.engine.processors.topology import cgroup_quota, physical_cores
from modeld.pipe import exits
from modeld.pipe.frames import BadFrame, frame, to_worker_reader
from modeld.pipe.messages import Cancel, Count, Heartbeat
from modeld.worker.sampling import THINKING_TEMPERATURE, advice_for, decode_options, offered
from modeld.worker.stream import EventStream
from modeld.worker.turn_gate import TurnGate
from modeld.worker.watchdog import Watchdog
from shared.errors import UnsupportedFeature
from shared.protocol.api import Event, Generating, Prefix, ReasoningDelta, Sampling, TextDelta, ToolCallDelta

pytestmark = pytest.mark.unit
tokens = st.lists(st.integers(0, 3), max_size=60)


# --- abort and gate --------------------------------------------------------------------------------


def test_native_code_sees_the_flag_as_a_string_length() -> None:
    flag = AbortFlag()
    length = ctypes.pythonapi.strlen if hasattr(ctypes.pythonapi, "strlen") else ctypes.CDLL(None).strlen
    length.argtypes, length.restype = [ctypes.c_void_p], ctypes.c_size_t
    assert (bool(flag), length(flag.address)) == (False, 0)
    flag.set()
    assert (bool(flag), length(flag.address)) == (True, 1)
    flag.clear()
    assert (bool(flag), length(flag.address)) == (False, 0)


@given(st.lists(st.tuples(st.sampled_from(["start", "end", "cancel"]), st.integers(1, 6)), max_size=30))
def test_a_cancel_touches_exactly_its_own_turn(steps: list[tuple[str, int]]) -> None:
    flag = AbortFlag()
    gate = TurnGate(flag)
    running, ended, cancelled = None, 0, set()
    for step, number in steps:
        if step == "cancel":
            gate.cancel(number)
            if number > ended:
                cancelled.add(number)
        elif step == "start" and running is None:
            running = ended + 1
            gate.start(running)
        elif step == "end" and running is not None:
            gate.end()
            ended, running = running, None
        assert bool(flag) == (running is not None and running in cancelled)


# --- events ----------------------------------------------------------------------------------------


class Sent:
    """What a stream sent, with a clock set by hand."""

    def __init__(self) -> None:
        self.lists: list[list[Event]] = []
        self.stages: list[str] = []
        self.now = 0.0
        self.stream = EventStream(self.lists.append, self.stages.append, 0.02, lambda: self.now)


def test_the_first_text_leaves_at_once_and_later_text_waits_for_company() -> None:
    sent = Sent()
    sent.stream.add([Generating(), TextDelta(text="a")])
    assert sent.lists == [[Generating(), TextDelta(text="a")]]
    sent.now = 0.005
    sent.stream.add([TextDelta(text="b")])
    sent.now = 0.010
    sent.stream.add([TextDelta(text="c")])
    assert len(sent.lists) == 1
    sent.now = 0.021
    sent.stream.add([TextDelta(text="d")])
    assert sent.lists[1] == [TextDelta(text="bcd")]
    assert sent.stages == ["generating"]


def test_different_kinds_are_never_joined_and_nothing_is_lost_at_the_end() -> None:
    sent = Sent()
    sent.stream.say(Prefix(reused=0, total=1))
    sent.stream.add([ReasoningDelta(text="x")])
    sent.stream.add([ReasoningDelta(text="y"), TextDelta(text="z")])
    call = ToolCallDelta(index=0, id="1", name="f", arguments='{"a"')
    sent.stream.add([call, ToolCallDelta(index=0, id="1", name="", arguments=":1}")])
    sent.stream.add([ToolCallDelta(index=1, id="2", name="g", arguments="{}")])
    sent.stream.finish()
    assert [event for events in sent.lists for event in events] == [
        Prefix(reused=0, total=1),
        ReasoningDelta(text="x"),
        ReasoningDelta(text="y"),
        TextDelta(text="z"),
        ToolCallDelta(index=0, id="1", name="f", arguments='{"a":1}'),
        ToolCallDelta(index=1, id="2", name="g", arguments="{}"),
    ]


# --- frames ----------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 9), max_size=30))
def test_frames_survive_every_split(cuts: list[int]) -> None:
    sent = [Heartbeat(), Cancel(turn=7), Count(turn=8, messages=None, tools=[], text=["é" * 40])]
    data = b"".join(map(frame, sent))
    reader, got, at = to_worker_reader(), [], 0
    for cut in cuts:
        got += reader.feed(data[at : at + cut])
        at += cut
    got += reader.feed(data[at:])
    assert got == sent


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x01\x00\x00\x00\xc1", b"\x02\x00\x00\x00\x81\xa1"])
def test_garbage_is_reported_and_not_guessed_at(data: bytes) -> None:
    with pytest.raises(BadFrame):
        to_worker_reader().feed(data + b"rest")


def test_a_lone_surrogate_does_not_stop_the_pipe() -> None:
    sent = Count(turn=1, messages=[{"role": "user", "content": "a\ud83db"}], tools=[], text=None)
    (got,) = to_worker_reader().feed(frame(sent))
    assert isinstance(got, Count)
    assert got.messages == [{"role": "user", "content": "a\ufffdb"}]


# --- lanes -----------------------------------------------------------------------------------------


@given(tokens, tokens)
def test_the_common_prefix_is_the_longest(left: list[int], right: list[int]) -> None:
    size = common_prefix(left, right)
    assert left[:size] == right[:size]
    assert size == min(len(left), len(right)) or left[size] != right[size]


@given(tokens.filter(bool), tokens, st.integers(0, 60), st.lists(st.integers(1, 60), max_size=3))
def test_what_a_state_offers_is_common_leaves_one_token_and_respects_the_floor(
    prompt: list[int], held: list[int], floor: int, checkpoints: list[int]
) -> None:
    saved = [Checkpoint(length, None, 1) for length in checkpoints if length <= len(held)]
    offered = State(tokens=held, floor=min(floor, len(held)), checkpoints=saved).usable(prompt)
    assert offered < len(prompt)
    assert held[:offered] == prompt[:offered]
    if offered < len(held) and offered < min(floor, len(held)):
        assert offered == 0 or offered in checkpoints


def in_lane(tokens: list[int], conversation: str | None = None) -> Lane:
    """The lane with a conversation in it."""
    return Lane(0, State(tokens=tokens, conversation=conversation, used=2))


def parked(tokens: list[int], conversation: str | None = None) -> Parked:
    """A conversation in host memory."""
    return Parked(State(tokens=tokens, conversation=conversation, used=1), b"", 10)


def test_an_unrelated_prompt_keeps_what_was_there() -> None:
    taken = choose(in_lane(list(range(200))), [parked([7] * 100)], [900, 901, 902], None)
    assert (taken.restore, taken.reused, taken.park) == (None, 0, True)
    assert choose(in_lane([1, 2, 3]), [], [900, 901], None).park is False


@pytest.mark.parametrize("size", [30, 200])
def test_prompts_that_only_begin_alike_are_no_one_conversation(size: int) -> None:
    taken = choose(in_lane([1, 2, *range(100, 100 + size)]), [], [1, 2, 900, 901], None)
    assert (taken.reused, taken.park) == (0, True)


def test_the_same_conversation_is_cut_and_another_ones_memory_is_kept() -> None:
    lane, prompt = in_lane(list(range(300)), "a"), [*range(200), 900, 901]
    assert choose(lane, [], prompt, "a").park is False
    other = choose(lane, [], prompt, "b")
    assert (other.reused, other.park) == (200, True)
    assert WORTH_PARKING <= 300 - 200


def test_a_parked_state_that_is_warmer_comes_back() -> None:
    stored = parked(list(range(300)))
    taken = choose(in_lane(list(range(50))), [stored], [*range(300), 900], None)
    assert (taken.restore, taken.reused, taken.park, taken.keep) == (stored, 300, True, False)


def test_a_parked_state_that_another_conversation_begins_like_stays_parked_too() -> None:
    """Conversations of one editor begin with the same long instructions."""
    stored, prompt = parked(list(range(300)), "a"), [*range(200), 900, 901]
    assert choose(in_lane([]), [stored], prompt, "b").keep is True
    assert choose(in_lane([]), [stored], prompt, "a").keep is False


# --- watchdog --------------------------------------------------------------------------------------


def test_silence_adds_up_and_a_message_ends_it() -> None:
    watchdog = Watchdog(4.0, owner=1)
    assert [watchdog.step(1.0) for _ in range(3)] == [1.0, 2.0, 3.0]
    watchdog.heard()
    assert watchdog.step(1.0) == 1.0


def test_the_workers_own_delays_are_not_charged_to_the_owner() -> None:
    watchdog = Watchdog(4.0, owner=1)
    assert [watchdog.ends(3600.0) for _ in range(4)] == [False] * 3 + [True]


def test_an_owner_that_writes_lives_though_nobody_reads_and_one_that_wrote_once_does_not() -> None:
    arrived = iter(range(0, 1000, 13))
    writes = Watchdog(4.0, owner=1, arrived=lambda: next(arrived))
    assert not any(writes.ends(1.0) for _ in range(40))
    wrote = Watchdog(4.0, owner=1, arrived=lambda: 13)
    assert [wrote.ends(1.0) for _ in range(4)] == [False] * 3 + [True]
    silent = Watchdog(4.0, owner=1)
    assert [silent.ends(1.0) for _ in range(4)] == [False] * 3 + [True]


# --- threads ---------------------------------------------------------------------------------------


def test_hyper_threads_are_one_core(tmp_path: Path) -> None:
    for cpu, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    assert physical_cores(tmp_path, {0, 1, 2, 3}) == 2
    assert physical_cores(tmp_path, {0, 2}) == 1


def test_the_tightest_quota_on_the_way_up_counts(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/user.slice/app\n")
    for folder, text in (("", "max 100000"), ("user.slice", "250000 100000"), ("user.slice/app", "400000 100000")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "cpu.max").write_text(text)
    assert cgroup_quota(tmp_path, own) == 2.5
    (tmp_path / "user.slice" / "cpu.max").write_text("max 100000")
    assert cgroup_quota(tmp_path, own) == 4.0


def test_no_quota_is_no_limit(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path, tmp_path / "missing") is None


# --- sampling --------------------------------------------------------------------------------------


def test_a_turns_own_value_goes_before_the_makers_advice_and_that_before_the_default() -> None:
    recommended = Sampling(temperature=0.2, top_k=7)
    options = decode_options(Sampling(temperature=0.0, max_tokens=9), recommended, Capabilities(), 100)
    assert (options.temperature, options.top_k, options.top_p, options.max_tokens) == (0.0, 7, 0.95, 9)


def test_without_advice_answers_are_drawn_carefully() -> None:
    assert decode_options(Sampling(), Sampling(), Capabilities(), 9).temperature == 0.2
    assert advice_for({}) == Sampling()


def test_the_makers_advice_goes_before_what_is_usual_for_the_kind() -> None:
    facts = {"thinking": True, "sampling": {"temperature": 0.7, "top_k": 20.0, "top_p": 0.8}}
    advice = advice_for(facts)
    assert (advice.temperature, advice.top_k, advice.top_p) == (0.7, 20, 0.8)
    assert isinstance(advice.top_k, int)


def test_a_model_that_thinks_is_not_held_so_tightly() -> None:
    assert advice_for({"thinking": True}).temperature == THINKING_TEMPERATURE
    assert advice_for({"thinking": True, "sampling": {"temperature": 0.3}}).temperature == 0.3


def test_the_window_bounds_the_answer() -> None:
    assert decode_options(Sampling(max_tokens=500), Sampling(), Capabilities(), 100).max_tokens == 100
    assert decode_options(Sampling(), Sampling(), Capabilities(), 100).max_tokens == 100


@pytest.mark.parametrize(
    "asked",
    [
        Sampling(json_schema={"type": "object"}),
        Sampling(tool_choice="required"),
        Sampling(max_tokens=0),
        Sampling(logit_bias={"word": 1.0}),
    ],
)
def test_what_cannot_be_done_is_refused_and_never_dropped(asked: Sampling) -> None:
    with pytest.raises(UnsupportedFeature):
        decode_options(asked, Sampling(), Capabilities(), 100)


def test_a_tool_choice_says_which_tools_the_answer_may_call() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("read", "now")]
    assert offered(Sampling(), tools) == offered(Sampling(tool_choice="auto"), tools) == tools
    assert offered(Sampling(tool_choice="none"), tools) == []
    assert offered(Sampling(tool_choice="required"), tools) == tools
    assert offered(Sampling(tool_choice="now"), tools) == tools[1:]
    for choice, among in (("required", []), ("write", tools), ("write", [])):
        with pytest.raises(UnsupportedFeature, match=choice):
            offered(Sampling(tool_choice=choice), among)


def test_exit_codes_read_as_sentences() -> None:
    assert exits.describe_exit(-9) == "killed by SIGKILL"
    assert exits.describe_exit(exits.OWNER_SILENT) == "no heartbeat from the owner"
    assert exits.describe_exit(99) == "ended with code 99"
    assert msgspec.to_builtins(exits.describe_exit(None)) == "still running"
