"""What every command shares: settings, data root, options that become a LoadConfig, and printing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import msgspec

from modeld.cli.client import Connection, reach
from shared.paths import DataRoot, config_file, data_root
from shared.protocol import api
from shared.settings import Settings, load_settings

T = TypeVar("T")


class Context:
    """The surroundings of one command. Raises SettingInvalid."""

    def __init__(self) -> None:
        self.root: DataRoot = data_root()
        self.settings: Settings = load_settings(file=config_file())

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
        adapters=options.adapter,
    )


def config_words(options: argparse.Namespace) -> list[str]:
    """The options of `_config` as they would be typed again."""
    named = {
        "--ctx": options.ctx,
        "--min-ctx": options.min_ctx,
        "--batch": options.batch,
        "--device": options.device,
        "--gpu-layers": options.gpu_layers,
        "--kv-type": options.kv_type,
        "--flash-attention": options.flash_attention,
    }
    words = [str(word) for name, value in named.items() if value is not None for word in (name, value)]
    return words + [word for path in options.adapter for word in ("--adapter", path)]


def on_busy(options: argparse.Namespace) -> tuple[api.OnBusy, float | None]:
    """`--wait` and `--cancel` as the wire says it."""
    if options.cancel:
        return "cancel", None
    if options.wait is not None:
        return "wait", None if options.wait < 0 else options.wait
    return "fail", None


def print_json(value: Any) -> None:
    """One JSON document on stdout, every field written: scripts need no defaults."""
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(complete(value)), indent=2) + b"\n")
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


def size_text(count: int | None) -> str:
    """Bytes for people."""
    if count is None:
        return "?"
    if count >= 10**9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB"


class Progress:
    """A bar on a terminal, nothing when piped. Goes to stderr, so that stdout stays the result."""

    def __init__(self) -> None:
        self._shown = ""
        self._terminal = sys.stderr.isatty()

    def show(self, fraction: float | None, text: str) -> None:
        """`fraction` 0 to 1, or None for unknown."""
        if not self._terminal:
            return
        filled = int((fraction or 0.0) * 30)
        percent = "    " if fraction is None else f"{fraction:4.0%}"
        line = f"[{'#' * filled}{'.' * (30 - filled)}] {percent} {text}"
        if line != self._shown:
            self._shown = line
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()

    def end(self) -> None:
        """Give the line back."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = ""


def show_event(progress: Progress, event: api.Event) -> None:
    """Queue and load events of a call as progress."""
    match event:
        case api.Queued():
            progress.show(None, f"waiting at place {event.position} behind {', '.join(event.ahead) or 'nobody'}")
        case api.Loading():
            unloads = f", unloading {event.unloads}" if event.unloads else ""
            progress.show(event.fraction, f"loading {event.model}{unloads}")
        case api.JobProgress():
            fraction = event.done / event.total if event.total else None
            progress.show(fraction, f"{event.label} {size_text(event.done)}")
        case _:
            return
