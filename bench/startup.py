"""How fast both processes are there, and how much memory they take before any model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial

import psutil

from bench.table import MIB, Table
from clients.home import Home, command
from clients.wire import Wire
from waiting import until

ROUNDS = 15


def measure(table: Table, models: str) -> None:
    """Start-up, session/new and resident memory."""
    with Home(MODELD_MODEL_FOLDERS=models) as home:
        _bridge(table, home)
        _daemon(table, home)


def _bridge(table: Table, home: Home) -> None:
    home.start("none")
    _initialize_once(home)  # caches of the file system and the library
    bridge, interpreter = [], []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import asyncio"], check=True)
        interpreter.append(time.perf_counter() - started)
        bridge.append(_initialize_once(home))
    table.at_most("spawn to ACP initialize answer, daemon up", bridge, 150, "ms", scale=1000)
    ratios = [ours / theirs for ours, theirs in zip(bridge, interpreter, strict=True)]
    table.at_most("the same, in interpreters that import asyncio", ratios, 2.5, "times")
    pid = home.status()["pid"]
    table.at_most("session/new, daemon up", _new_sessions(home), 100, "ms", scale=1000)
    os.kill(pid, signal.SIGSTOP)
    try:
        table.at_most("spawn to ACP initialize answer, daemon hung", _initialize(home), 150, "ms", scale=1000)
        table.at_most("session/new, daemon hung", _new_sessions(home), 100, "ms", scale=1000)
    finally:
        os.kill(pid, signal.SIGCONT)
    home.run("modeld", "stop")
    table.at_most("spawn to ACP initialize answer, daemon down", _initialize(home), 150, "ms", scale=1000)
    table.at_most("session/new, daemon down", _new_sessions(home), 100, "ms", scale=1000)
    with home.bridge() as editor:
        editor.initialize()
        editor.new_session(home.work)
        time.sleep(1.0)  # late imports and first updates are part of what it takes
        memory = psutil.Process(editor.process.pid).memory_info().rss
    table.at_most("bridge, resident", [memory / MIB], 45, "MiB")


def _initialize(home: Home) -> list[float]:
    return [_initialize_once(home) for _ in range(5)]


def _initialize_once(home: Home) -> float:
    with home.bridge() as editor:
        editor.initialize()
        return time.monotonic() - editor.spawned


def _new_sessions(home: Home) -> list[float]:
    seconds = []
    for _ in range(5):
        with home.bridge() as editor:
            editor.initialize()
            started = time.perf_counter()
            editor.new_session(home.work)
            seconds.append(time.perf_counter() - started)
    return seconds


def _daemon(table: Table, home: Home) -> None:
    seconds, memory = [], 0.0
    for _ in range(5):
        started = time.perf_counter()
        process = subprocess.Popen(
            [command("modeld"), "serve", "--backend", "llama"],
            env=home.environ,
            cwd=home.work,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(partial(_greeted, home, process.pid), "hello", 10)
        seconds.append(time.perf_counter() - started)
        time.sleep(1.0)  # the background scan is part of what it takes
        memory = max(memory, psutil.Process(process.pid).memory_info().rss)
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    table.at_most("daemon start to first hello", seconds, 300, "ms", scale=1000)
    table.at_most("daemon without a model, resident", [memory / MIB], 45, "MiB")


def _greeted(home: Home, pid: int) -> bool:
    try:
        with Wire(home.root) as wire:
            return bool(wire.status()["pid"] == pid)
    except (AssertionError, OSError):
        return False
