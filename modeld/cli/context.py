"""What every command shares: settings, data root, options that become a LoadConfig, and printing."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import anyio
import msgspec

from modeld.client import Connection, reach
from shared.paths import DataRoot, config_file, data_root
from shared.protocol import api
from shared.settings import read_settings
from shared.text.console import LiveLine
from shared.text.shown import escaped, one_line
from shared.text.words import size_text

T = TypeVar("T")


class Context:
    """The surroundings of one command. A setting that cannot be used costs itself: its default holds, which is told."""

    def __init__(self) -> None:
        self.root: DataRoot = data_root()
        self.settings, self.problems = read_settings(file=config_file())
        for problem in self.problems:
            sys.stderr.write(f"modeld: {problem.message}\n")

    def with_daemon(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` on a connection to the daemon that counts. Raises the typed daemon errors."""

        async def run() -> T:
            async with await reach(self.root, self.settings) as connection:
                return await work(connection)

        return anyio.run(run)


def load_config(options: argparse.Namespace) -> api.LoadConfig:
    """The options of `_config`."""
    return api.LoadConfig(
        num_ctx=options.ctx,
        min_ctx=options.min_ctx,
        num_batch=options.batch,
        device=options.device,
        gpu_layers=options.gpu_layers,
        kv_type=options.kv_type,
        flash_attention=None if options.flash_attention is None else options.flash_attention == "on",
        adapters=[os.path.abspath(path) for path in options.adapter],
    )


#: The options of `_config` and the fields that they set.
CONFIG_OPTIONS = {
    "--ctx": "num_ctx",
    "--min-ctx": "min_ctx",
    "--batch": "num_batch",
    "--device": "device",
    "--gpu-layers": "gpu_layers",
    "--kv-type": "kv_type",
    "--flash-attention": "flash_attention",
    "--adapter": "adapters",
}


def config_words(config: api.LoadConfig) -> list[str]:
    """Settings of a model as the options that would be typed for them."""
    words: list[str] = []
    for option, field in CONFIG_OPTIONS.items():
        value = getattr(config, field)
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                words += [option, {True: "on", False: "off"}[each] if isinstance(each, bool) else str(each)]
    return words


def on_busy(options: argparse.Namespace) -> tuple[api.OnBusy, float | None]:
    """`--wait` and `--cancel` as the wire says it."""
    if options.cancel:
        return "cancel", None
    if options.wait is not None:
        return "wait", None if options.wait < 0 else options.wait
    return "fail", None


def print_json(value: Any) -> None:
    """One JSON document on stdout, every field written: scripts need no defaults."""
    document = msgspec.json.format(msgspec.json.encode(complete(value)), indent=2).decode()
    sys.stdout.buffer.write(f"{escaped(document)}\n".encode())  # UTF-8 whatever the terminal's encoding is
    sys.stdout.flush()


def complete(value: Any) -> Any:
    """A value of the wire with the fields that the wire leaves out."""
    if isinstance(value, msgspec.Struct):
        fields = {name: complete(getattr(value, name)) for name in value.__struct_fields__}
        tag = value.__struct_config__.tag
        return fields if tag is None else {"type": tag, **fields}
    if isinstance(value, dict):
        return {key: complete(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [complete(item) for item in value]
    return value


def lined(value: T) -> T:
    """A value of the wire for people: each text in it is one line in which nothing acts."""
    if isinstance(value, str):
        return cast("T", one_line(value))
    if isinstance(value, msgspec.Struct):
        fields = {name: lined(getattr(value, name)) for name in value.__struct_fields__}
        return cast("T", msgspec.structs.replace(value, **fields))
    if isinstance(value, dict):
        return cast("T", {lined(key): lined(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return cast("T", type(value)(lined(item) for item in value))
    return value


class Progress(LiveLine):
    """A bar on a terminal, nothing when piped. Goes to stderr, so that stdout stays the result."""

    def bar(self, fraction: float | None, text: str) -> None:
        """`fraction` 0 to 1, or None for unknown."""
        filled = int((fraction or 0.0) * 30)
        percent = "    " if fraction is None else f"{fraction:4.0%}"
        self.show(f"[{'#' * filled}{'.' * (30 - filled)}] {percent} {text}")

    def end(self) -> None:
        """Give the line back."""
        self.show("")


def show_event(progress: Progress, event: api.Event) -> None:
    """Queue and load events of a call as progress."""
    match event:
        case api.Queued():
            progress.bar(None, f"waiting at place {event.position} behind {', '.join(event.ahead) or 'nobody'}")
        case api.Loading():
            unloads = f", unloading {event.unloads}" if event.unloads else ""
            progress.bar(event.fraction, f"loading {event.model}{unloads}")
        case api.JobProgress():
            fraction = event.done / event.total if event.total else None
            progress.bar(fraction, f"{event.label} {size_text(event.done)}")
        case _:
            return
