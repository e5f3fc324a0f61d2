"""How a worker begins and ends: its owner's death, silence and slowness; its pipes; what it leaves behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import anyio
import psutil
import pytest
from engine_bench import GREEDY, Engines, identity

from modeld.host.worker_host import WorkerHost
from modeld.pipe import exits
from modeld.pipe.messages import Count, Load
from scripted_engine import script_environ
from shared.errors import EngineFailed, ModelLoadFailed, TemplateFailed
from shared.lease.process.identity import same_process
from shared.protocol.api import Event, Sampling, TextDelta
from shared.settings import Settings
from tiny_gguf import write_tiny_gguf

pytestmark = [pytest.mark.anyio, pytest.mark.integration]
QUICK = Settings(lease_ttl=1.0)
#: A template whose loops take for ever, within what the sandbox allows.
ENDLESS = (
    "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    "{% if messages[0]['content'] == 'HANG' %}{% for a in range(99999) %}{% for b in range(99999) %}"
    "{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}{% endif %}"
)
OWNER = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from modeld.host.worker_host import WorkerHost
    from shared.settings import Settings

    async def main():
        host = await WorkerHost.start("none", Settings(lease_ttl=1.0), Path(sys.argv[1]))
        print(host.pid, flush=True)
        await asyncio.sleep(3600)

    asyncio.run(main())
    """
)


@pytest.fixture
def owner(tmp_path: Path) -> subprocess.Popen[str]:
    """Another process that owns a worker; its first line of output is the worker's pid."""
    command = [sys.executable, "-c", OWNER, str(tmp_path / "log")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def worker_of(owner: subprocess.Popen[str]) -> psutil.Process:
    """The worker that the owner started."""
    assert owner.stdout is not None
    return psutil.Process(int(owner.stdout.readline()))


def end(owner: subprocess.Popen[str]) -> None:
    """Kill the owner and reap it."""
    owner.kill()
    owner.wait()
    assert owner.stdout is not None
    owner.stdout.close()


async def stopped(pid: int) -> None:
    """Freeze a process, all its threads."""
    process = psutil.Process(pid)
    process.suspend()
    while any(thread_state(pid, thread.id) != "T" for thread in process.threads()):
        await anyio.sleep(0.01)


def thread_state(pid: int, thread: int) -> str:
    """The kernel's letter for one thread."""
    return Path(f"/proc/{pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()[0]


async def test_the_hello_proves_the_process(engines: Engines) -> None:
    host = await engines.start("none")
    assert host.pid > 0
    assert same_process(host.pid, host.start_token)


async def test_a_worker_ends_when_its_owner_is_killed(owner: subprocess.Popen[str]) -> None:
    worker = worker_of(owner)
    end(owner)
    assert await anyio.to_thread.run_sync(lambda: psutil.wait_procs([worker], timeout=5)[1]) == []


async def test_a_worker_ends_by_itself_when_its_owner_is_frozen(owner: subprocess.Popen[str]) -> None:
    worker = worker_of(owner)
    owner.send_signal(signal.SIGSTOP)
    try:
        with anyio.fail_after(10):
            while worker.status() != psutil.STATUS_ZOMBIE:  # its frozen parent cannot reap it
                await anyio.sleep(0.05)
    finally:
        end(owner)


async def test_heartbeats_keep_an_idle_worker(engines: Engines) -> None:
    host = await engines.start("none", QUICK)
    with anyio.move_on_after(3 * QUICK.worker_watchdog):
        await host.exited.wait()
    assert not host.exited.is_set()


async def test_an_owner_whose_loop_comes_to_nothing_keeps_its_worker(engines: Engines) -> None:
    """A machine that gives it little, much to do at once: the owner lives, and its lease is renewed by a thread too."""
    host = await engines.start("none", QUICK)
    time.sleep(3 * QUICK.worker_watchdog)  # the loop is what must not be needed
    await anyio.sleep(QUICK.worker_watchdog / 2)
    assert not host.exited.is_set()
    assert await host.sample() is not None


async def test_without_heartbeats_of_an_owner_in_doubt_it_ends_and_says_why(engines: Engines) -> None:
    host = await engines.start("none", QUICK)
    host.may_beat = lambda: False
    with anyio.fail_after(5):
        await host.exited.wait()
    assert host.exit_reason == exits.describe_exit(exits.OWNER_SILENT)


async def test_the_watchdog_lets_a_worker_live_that_was_itself_frozen(engines: Engines) -> None:
    host = await engines.start("none", QUICK)
    await stopped(host.pid)
    await anyio.sleep(2 * QUICK.worker_watchdog)
    os.kill(host.pid, signal.SIGCONT)
    with anyio.move_on_after(2 * QUICK.worker_watchdog):
        await host.exited.wait()
    assert not host.exited.is_set()
    assert await host.sample() is not None


async def test_a_count_that_a_frozen_worker_does_not_make_ends_typed(engines: Engines) -> None:
    host = await engines.start("none", Settings(load_stall=0.1))
    await stopped(host.pid)
    with anyio.fail_after(10), pytest.raises(EngineFailed, match="nothing was counted within"):
        await host.count(Count(turn=host.next_turn(), messages=[], tools=[], text=["word"]))


async def test_what_native_code_prints_reaches_the_log_and_never_the_pipe(tmp_path: Path) -> None:
    """A worker whose engine writes to descriptor 1 before and after its hello still speaks clean frames."""
    program = (
        "import os, sys; from modeld.worker import process as worker; from modeld.engine import factory;"
        "old = factory.make_engine\n"
        "def loud(*a):\n    os.write(1, b'loud library\\n'); print('loud python', flush=True); return old(*a)\n"
        "worker.make_engine = loud; worker.main(sys.argv[1:])"
    )
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            program,
            "none",
            "--watchdog",
            "5",
            "--owner",
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        from modeld.pipe.frames import from_worker_reader
        from modeld.pipe.messages import Imported, WorkerHello

        reader, seen = from_worker_reader(), list[object]()
        while len(seen) < 2:
            seen += reader.feed(await process.stdout.read(1 << 16))
        process.stdin.close()
        rest = await process.stdout.read()
        await process.wait()
    assert [type(message) for message in seen] == [WorkerHello, Imported]
    assert rest == b""
    assert log.read_text() == "loud library\nloud python\n"


async def test_garbage_on_the_pipe_ends_the_worker(engines: Engines) -> None:
    host = await engines.start("none")
    assert host._outgoing is not None
    host._outgoing.put(b"\xff\xff\xff\xffgarbage")
    with anyio.fail_after(5):
        await host.exited.wait()
    assert host.exit_reason == exits.describe_exit(exits.BAD_PROTOCOL)


async def test_close_is_bounded_for_a_worker_that_hangs(engines: Engines) -> None:
    engine = await engines.scripted(replies=[{"pieces": ["a", "b"], "endless": True, "hang_after": 3}])
    await stopped(engine.host.pid)
    await engine.host.close(0.2)
    assert engine.host.exit_reason == "killed by SIGKILL"
    assert not psutil.pid_exists(engine.host.pid)


async def test_a_hung_decode_shows_in_the_account_and_can_be_killed(engines: Engines) -> None:
    engine = await engines.scripted(replies=[{"pieces": ["a", "b"], "endless": True, "hang_after": 3}])
    failures: list[EngineFailed] = []

    async def ask() -> None:
        try:
            await engine.ask("hang")
        except EngineFailed as error:
            failures.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        with anyio.fail_after(10):
            marks: list[float] = []
            while len(marks) < 5:  # so often in a row the same
                account = await engine.host.sample()
                hung = account is not None and account.stage == "generating"
                marks = [*marks, account.mark] if hung and account and set(marks) <= {account.mark} else []
                await anyio.sleep(0.05)
        assert account is not None
        assert account.in_engine
        assert account.place.startswith("modeld.engine.outside:")
        assert account.running is not None
        engine.host.cancel(account.running)
        engine.host.kill()
    assert failures[0].reason == "killed by SIGKILL"


async def test_a_crash_in_load_is_a_failed_load(engines: Engines) -> None:
    with pytest.raises(ModelLoadFailed) as failed:
        await engines.scripted(load_crash=True)
    assert failed.value.stage == "weights"
    assert "SIGKILL" in failed.value.reason


async def test_a_load_that_fails_leaves_a_worker_that_can_be_closed(engines: Engines) -> None:
    with pytest.raises(ModelLoadFailed) as failed:
        await engines.scripted(load_failure="the disk is on fire")
    assert (failed.value.stage, failed.value.reason) == ("weights", "the disk is on fire")


async def test_a_load_can_be_cancelled(engines: Engines, tmp_path: Path) -> None:
    script = tmp_path / "slow.json"
    script.write_text('{"load_s": 60}')
    host = await engines.start("scripted", environ={**os.environ, **script_environ(script)})
    turn = host.next_turn()
    message = Load(turn=turn, identity=identity(script, "scripted"), model={}, num_ctx=512)
    with anyio.fail_after(5), pytest.raises(ModelLoadFailed) as failed:
        await host.load(message, lambda _: host.cancel(turn))
    assert failed.value.reason == "cancelled"


async def test_a_file_that_is_no_model_fails_with_the_librarys_own_words(engines: Engines, tmp_path: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<html>not found</html>" * 100)
    with pytest.raises(ModelLoadFailed) as failed:
        await engines.load("llama", page)
    assert failed.value.stage == "weights"
    assert "magic" in failed.value.reason


async def test_a_truncated_file_fails_and_the_next_worker_loads(engines: Engines, tiny: Path, tmp_path: Path) -> None:
    data = tiny.read_bytes()
    for part in (0, 4, 24, len(data) // 3, len(data) - 4096, len(data) - 1):
        cut = tmp_path / f"cut-{part}.gguf"
        cut.write_bytes(data[:part])
        with pytest.raises(ModelLoadFailed):
            await engines.load("llama", cut)
    assert (await engines.load("llama", tiny)).loaded.identity.name == "tiny"


async def test_a_template_without_end_costs_the_worker_and_says_so(engines: Engines, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "endless.gguf", template=ENDLESS)
    engine = await engines.load("llama", path, deadline=0.5)
    assert (await engine.ask("short")).done.finish_reason == "length"
    with anyio.fail_after(10), pytest.raises(TemplateFailed, match="too long"):
        await engine.ask("HANG")
    assert engine.host.exited.is_set()


async def test_a_template_that_cannot_render_is_a_failed_load(engines: Engines, tmp_path: Path) -> None:
    for template in ("{% for %}", "{{ raise_exception('no') }}", "no words of the user"):
        path = write_tiny_gguf(tmp_path / "bad.gguf", template=template)
        with pytest.raises(ModelLoadFailed) as failed:
            await engines.load("llama", path)
        assert failed.value.stage == "template"


async def test_prompts_never_reach_the_log(engines: Engines, tiny: Path, tmp_path: Path) -> None:
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF of nobody")
    with pytest.raises(ModelLoadFailed):
        await engines.load("llama", tiny, adapters=(str(junk),))
    engine = await engines.load("llama", tiny)
    await engine.ask("the secret word is xylophone")
    await engine.host.close(2)
    log = engines.log.read_text()
    assert "adapter" in log, "what the library says of a bad adapter stands there"
    assert "xylophone" not in log
    assert oct(engines.log.stat().st_mode & 0o777) == "0o600"


async def test_a_cancelled_caller_cancels_its_turn(engines: Engines) -> None:
    engine = await engines.scripted(replies=[{"pieces": ["a"], "endless": True}], token_s=0.005)
    started = anyio.Event()

    def seen(_: int, event: Event) -> None:
        if isinstance(event, TextDelta):
            started.set()

    async with anyio.create_task_group() as group:
        group.start_soon(lambda: engine.ask("go", Sampling(max_tokens=1000), on_event=seen))
        await started.wait()
        group.cancel_scope.cancel()
    with anyio.fail_after(5):
        while engine.host.unsettled:
            await anyio.sleep(0.01)
    assert (await engine.ask("again", GREEDY)).done.finish_reason == "length"


@pytest.mark.timeout(60)
async def test_twenty_workers_leave_no_descriptor_and_no_process(tmp_path: Path) -> None:
    async def once() -> None:
        host = await WorkerHost.start("none", Settings(), tmp_path / "log")
        await host.imported()
        await host.close(2)
        assert not psutil.pid_exists(host.pid)

    await once()
    before = psutil.Process().num_fds()
    for _ in range(20):
        await once()
    assert psutil.Process().num_fds() == before
