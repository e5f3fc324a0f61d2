"""The commands of `acp-bridge` besides the face: chat, http, install, export, models, doctor.

Exit codes are those of `shared.codes`, as modeld's are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from shared import chat_options, codes
from shared.completion import SHELLS, candidates, script
from shared.text.arguments import Parser
from shared.version import __version__


def run(arguments: Sequence[str]) -> int:
    """Run one command line; gives the exit code."""
    if arguments[:1] == ["complete"]:
        return _complete(list(arguments[1:]))
    return codes.ended("acp-bridge", arguments, lambda: _run(parser().parse_args(arguments)))


def _run(options: argparse.Namespace) -> int:
    if options.command in chat_options.NAMES:
        from acp_bridge.cli.chat import chat

        return int(chat(options))
    if options.command == "install":
        from acp_bridge.install.command import main as install

        if not options.http:
            return install(options)
        from acp_bridge.cli.http_command import provider

        return install(options, provider(options))
    if options.command == "http":
        from acp_bridge.cli.http_command import http

        return http(options)
    if options.command == "export":
        from acp_bridge.cli.export_command import export

        return export(options)
    if options.command == "models":
        from acp_bridge.cli.report_commands import models

        return int(models(as_json=options.json))
    if options.command == "doctor":
        from acp_bridge.cli.report_commands import doctor

        return int(doctor(as_json=options.json, bundle=options.bundle))
    if options.command == "completion":
        sys.stdout.write(script("acp-bridge", options.shell))
        return 0
    parser().print_help(sys.stderr)
    return codes.USAGE


def _complete(words: list[str]) -> int:
    """What a shell asks for: one candidate a line."""
    given = words[1:] if words[:1] == ["--"] else words
    sys.stdout.write("".join(f"{word}\n" for word in candidates(parser(), given, list)))
    return 0


def parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    parser = Parser(
        prog="acp-bridge",
        description="Local models in your editor, through modeld.",
        epilog=codes.epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"acp-bridge {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    commands.add_parser("acp", help="serve an editor that speaks ACP, on standard input and output")
    commands.add_parser("lsp", help="serve an editor that speaks LSP (VS Code), on standard input and output")
    _http(commands.add_parser("http", help="serve programs that speak the OpenAI protocol, on this machine alone"))
    chat_options.add_chat(commands.add_parser("chat", help=chat_options.CHAT))
    chat_options.add_run(commands.add_parser("run", help=chat_options.RUN))
    _install(commands.add_parser("install", help="add acp-bridge to an editor's settings, or remove it"))
    _export(commands.add_parser("export", help="a saved conversation as Markdown, or the list of them"))
    reports = (("models", "list the models an editor would show"), ("doctor", "diagnose problems and suggest fixes"))
    for name, text in reports:
        reading = commands.add_parser(name, help=text)
        reading.add_argument("--json", action="store_true", help="machine-readable output")
    reading.add_argument("--bundle", metavar="FILE", help="also write a redacted support bundle (zip)")
    completion = commands.add_parser("completion", help="print the shell completion script")
    completion.add_argument("shell", choices=SHELLS)
    return parser


def _http(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="N",
        help="port on 127.0.0.1; the system chooses a free one when left out",
    )
    where.add_argument("--socket", metavar="FILE", help="a Unix socket (mode 0600) instead of a port")
    key = parser.add_mutually_exclusive_group()
    key.add_argument(
        "--key-file", metavar="FILE", help="keep the key there between runs; it is made where there is none"
    )
    key.add_argument("--key-env", metavar="NAME", help="take the key from this environment variable")
    parser.add_argument(
        "--switch", action="store_true", help="switch models even if another client is using the loaded one"
    )
    parser.add_argument(
        "--remote",
        action="append",
        default=[],
        metavar="PROVIDER/MODEL",
        help="also serve this model of a configured provider (may be repeated)",
    )
    parser.add_argument("--json", action="store_true", help="print where it listens as one JSON object")


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("conversation", nargs="?", help="its id, or how it begins; the newest one when left out")
    parser.add_argument("--list", action="store_true", help="list the saved conversations, newest first")
    parser.add_argument("--cwd", metavar="FOLDER", help="of this folder instead of the current one")
    parser.add_argument("--all", action="store_true", help="of every folder")
    parser.add_argument("--output", "-o", metavar="FILE", help="write there instead of to standard output")
    parser.add_argument("--json", action="store_true", help="machine-readable output: the list, or every saved event")


def _install(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("editor", choices=("zed", "jetbrains", "vscode", "neovim", "continue"))
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--print", dest="print_only", action="store_true", help="print what would be pasted by hand")
    what.add_argument("--remove", action="store_true", help="remove it from the settings")
    parser.add_argument("--dry-run", action="store_true", help="show the change and make none")
    parser.add_argument("--http", action="store_true", help="add the models as `acp-bridge http` serves them")
    parser.add_argument("--port", type=int, default=8199, metavar="N", help="with --http: the port of the server")
    parser.add_argument("--yes", action="store_true", help="with --http: do not ask first")
    parser.add_argument("--settings", metavar="FILE", help="another file than the usual one (neovim: folder)")
    parser.add_argument("--vsix", metavar="FILE", help="for vscode: the extension's package")
