"""The command line: one parser, built when a command other than `serve` is run; one file a command."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module

from modeld.engine.backends import is_outside
from shared import chat_options, codes
from shared.backends import OUTSIDE
from shared.completion import SHELLS
from shared.settings import BACKEND_CHOICES
from shared.text.arguments import Parser
from shared.version import __version__

Command = Callable[[argparse.Namespace], int]
CANCEL = "cancel the turn that is using the model, even another client's"
NAMED = "model name, or a prefix that matches only one"
FIRST_STEPS = """first steps:
  modeld pull starter       a small model
  modeld start              the daemon
  modeld chat               a conversation in the terminal
  acp-bridge install zed    your editor (or jetbrains, vscode, neovim)
something is wrong:
  modeld doctor             what it is, and what to do"""


def run(arguments: list[str]) -> int:
    """Parse and run one command; its exit code. A typed error is one line on stderr."""
    return codes.ended("modeld", arguments, lambda: _run(arguments))


def _run(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    if options.command is None:
        parser().print_help()
        return codes.USAGE
    handler: Command = import_module(f"modeld.cli.commands.{options.module}").main
    return handler(options)


def parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    top = Parser(
        prog="modeld",
        description="One local model server, shared by all your editors.",
        epilog=f"{FIRST_STEPS}\n\n{codes.epilog()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"modeld {__version__}")
    commands = top.add_subparsers(dest="command", metavar="command")

    def add(name: str, text: str, module: str = "", *, reads: bool = False) -> Parser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(module=module or name)
        if reads:
            command.add_argument("--json", action="store_true", help="print JSON")
        return command

    # run by acp-bridge (`modeld.__main__`); here for the help and what a shell completes
    chat_options.add_chat(add("chat", chat_options.CHAT))
    chat_options.add_run(add("run", chat_options.RUN))
    _daemon_commands(add)
    _model_commands(add)
    return top


def _daemon_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    add("serve", "serve in the foreground (see `modeld serve --help`)", "serve_help")
    start = add("start", "start modeld in the background and wait until it answers", "start")
    _backend(start)
    stop = add("stop", "stop every modeld of this data root: drain the running turn, unload, release", "stop")
    stop.add_argument("--drain", type=_number(float, 0), metavar="SECONDS", help="grace period for the running turn")
    restart = add("restart", "restart once the current turn ends; also upgrades an older running version", "restart")
    restart.add_argument("--drain", type=_number(float, 0), metavar="SECONDS", help="grace period for the running turn")
    _backend(restart)
    status = add("status", "show what modeld is doing", "status", reads=True)
    status.add_argument("--watch", action="store_true", help="live view (plain lines when piped)")
    status.add_argument("--all", action="store_true", help="all running instances, not just the owner")
    logs = add("logs", "the daemon's log: one line a turn, never a prompt", "logs", reads=True)
    logs.add_argument("-f", "--follow", action="store_true", help="keep printing new lines")
    logs.add_argument("-n", type=_number(int, 0), default=50, metavar="LINES", help="lines to show (default 50)")
    logs.add_argument("--worker", action="store_true", help="show the engine's own output")
    service = add("service", "have the system start modeld at login (optional)", "service", reads=True)
    service.add_argument("action", choices=("install", "remove", "status"))
    service.add_argument("--backend", choices=BACKEND_CHOICES)
    service.add_argument("--http", action="store_true", help="the service of `acp-bridge http` instead of modeld's own")
    service.add_argument(
        "--port", type=int, metavar="N", help="with --http: its port on 127.0.0.1 (8199 when left out)"
    )
    service.add_argument("--print", dest="print_only", action="store_true", help="print the file that would be written")
    add("version", "print the version", "version", reads=True)
    completion = add("completion", "print the shell completion script", "completion")
    completion.add_argument("shell", choices=SHELLS)
    doctor = add("doctor", "diagnose problems and suggest fixes", "doctor", reads=True)
    doctor.add_argument("--bundle", metavar="FILE", help="also write a redacted support bundle (zip)")


def _backend(command: argparse.ArgumentParser) -> None:
    """An engine from outside is known only where the environment names its file."""
    command.add_argument(
        "--backend",
        choices=(*BACKEND_CHOICES, *filter(is_outside, (OUTSIDE,))),
        metavar="|".join(BACKEND_CHOICES),
        help="inference engine to use until modeld stops",
    )


def _model_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    add("list", "what can run now", "list", reads=True)
    library = add("library", "every model on this machine, also with modeld stopped", "library", reads=True)
    library.add_argument("action", nargs="?", choices=("add", "remove", "refresh"), help="folders; scan again")
    library.add_argument("folder", nargs="?", help="for add and remove")
    describe = add("describe", "a model's abilities and what loading it would take", "describe", reads=True)
    describe.add_argument("model", help=NAMED)
    _config(describe)
    load = add("load", "load a model into memory", "load", reads=True)
    load.add_argument("model", help=NAMED)
    load.add_argument("--switch", action="store_true", help="unload the active model for it, with its warm context")
    load.add_argument(
        "--wait", type=_number(float, 0), metavar="SECONDS", nargs="?", const=-1.0, help="wait while it is busy"
    )
    load.add_argument("--cancel", action="store_true", help=CANCEL)
    _config(load)
    unload = add("unload", "unload the model and free its memory", "unload", reads=True)
    unload.add_argument(
        "--wait", type=_number(float, 0), metavar="SECONDS", nargs="?", const=-1.0, help="wait while it is busy"
    )
    unload.add_argument("--cancel", action="store_true", help=CANCEL)
    configure = add("configure", "show, save or reset settings for a model", "configure", reads=True)
    configure.add_argument("model", help=NAMED)
    configure.add_argument(
        "--reset",
        nargs="*",
        choices=("ctx", "min-ctx", "batch", "device", "gpu-layers", "kv-type", "flash-attention", "adapter"),
        metavar="OPTION",
        help="forget these settings, or all of them where none is named",
    )
    _config(configure)
    pull = add("pull", "fetch a model: starter, hf:owner/repo[:pattern], a URL or a file", "pull", reads=True)
    pull.add_argument("source", nargs="?")
    pull.add_argument("--name", help="save the file under this name")
    pull.add_argument("--digest", metavar="SHA256", type=_sha256, help="expected SHA-256; fail if the file differs")
    pull.add_argument("--partial", action="store_true", help="list unfinished downloads")
    pull.add_argument("--clean", action="store_true", help="remove unfinished downloads")
    pull.add_argument("--cancel", action="store_true", help="end the daemon's download of SOURCE, or all of them")
    parked = add("parked", "conversations kept on disk", "parked", reads=True)
    parked.add_argument("--clear", action="store_true", help="delete them all")
    remove = add("rm", "remove a model that modeld fetched", "rm", reads=True)
    remove.add_argument("model", help="its whole name")


def _sha256(text: str) -> str:
    """A checksum in any usual spelling; what argparse says where it is none."""
    from shared.fetch.source import sha256_of

    try:
        return sha256_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _number(kind: type[int | float], least: int) -> Callable[[str], float]:
    """A number that is at least `least`; what argparse says where it is not."""

    def number(text: str) -> float:
        value = kind(text)
        if not value >= least:  # also what is no number, as `nan`
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    number.__name__ = kind.__name__  # "invalid int value"
    return number


def _config(command: argparse.ArgumentParser) -> None:
    command.add_argument("--ctx", type=_number(int, 1), metavar="TOKENS", help="exactly this context")
    command.add_argument("--min-ctx", type=_number(int, 1), metavar="TOKENS", help="at least this context")
    command.add_argument("--batch", type=_number(int, 1), metavar="TOKENS")
    command.add_argument("--device")
    command.add_argument("--gpu-layers", type=_number(int, -1), metavar="LAYERS", help="-1 for all")
    command.add_argument("--kv-type", help="f16, q8_0, q4_0 and the like")
    command.add_argument("--flash-attention", choices=("on", "off"))
    command.add_argument("--adapter", action="append", default=[], metavar="FILE")
