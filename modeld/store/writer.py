"""One thread through which everything goes that touches the owner's connection.

A daemon thread on purpose: a write that hangs in a stalled filesystem must not keep the process from
ending.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Writer:
    """Runs calls one after the other, in the order they came."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._started = False
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call; its result or error stands in the future. Raises RuntimeError where no thread can be had."""
        with self._lock:
            if not self._started:
                self._thread.start()
                self._started = True
        future: Future[T] = Future()
        self._calls.put((future, call))
        return future

    def close(self) -> None:
        """End after what is queued. Waits for nothing."""
        self._calls.put(None)

    def _work(self) -> None:
        while True:
            item = self._calls.get()
            if item is None:
                return
            future, call = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
