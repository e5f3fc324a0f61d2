"""Instances that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lease_processes import Instance
from shared.paths import DataRoot


@pytest.fixture
def start(data_root: DataRoot) -> Iterator[Callable[..., Instance]]:
    """Start an instance on this test's data root, and wait until it is there."""
    started: list[Instance] = []

    def begin(*, wait: bool = True, **options: object) -> Instance:
        instance = Instance(data_root, **options)  # type: ignore[arg-type]
        started.append(instance)
        if wait:
            instance.ready()
        return instance

    yield begin
    for instance in started:
        instance.end()
