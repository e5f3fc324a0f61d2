"""The page of commands and the man pages, from the parsers themselves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator


def subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Name, parser and one line of each command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            help_text = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                yield name, command, help_text.get(name, "")


def options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """How each option is written, and what it does."""
    for action in parser._actions:
        if isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):
            continue
        names = ", ".join(action.option_strings) or action.dest
        choices = "|".join(str(choice) for choice in action.choices) if action.choices else ""
        value = action.metavar if isinstance(action.metavar, str) else choices or action.dest.upper()
        if not action.option_strings:
            yield choices or names, action.help or ""
        elif action.nargs == 0:
            yield names, action.help or ""
        else:
            yield f"{names} {value}", action.help or ""


def page(parsers: dict[str, argparse.ArgumentParser]) -> list[str]:
    """Markdown: one section a command."""
    lines: list[str] = []
    for program, parser in parsers.items():
        lines += [f"## {program}", "", parser.description or "", ""]
        for name, command, help_text in subcommands(parser):
            lines += [f"### {program} {name}", "", f"{help_text[:1].upper()}{help_text[1:]}.", ""]
            rows = list(options(command))
            if rows:
                lines += ["| | |", "| --- | --- |"]
                lines += [f"| `{_cell(how)}` | {_cell(what)} |" for how, what in rows]
                lines.append("")
        if parser.epilog:
            lines += ["```text", parser.epilog, "```", ""]
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def man(program: str, parser: argparse.ArgumentParser, version: str) -> str:
    """A man page of section 1."""
    lines = [
        f'.TH {program.upper()} 1 "" "modeld {version}"',
        ".SH NAME",
        f"{_roff(program)} \\- {_roff(parser.description or '')}",
        ".SH SYNOPSIS",
        f".B {_roff(program)}",
        "command [options]",
        ".SH COMMANDS",
    ]
    for name, command, help_text in subcommands(parser):
        lines += [".TP", f".B {_roff(name)}", _roff(help_text)]
        for how, what in options(command):
            lines += [".RS", ".TP", f".B {_roff(how)}", _roff(what or " "), ".RE"]
    if parser.epilog:
        lines += [".SH EXIT STATUS", ".nf", *(_roff(line) for line in parser.epilog.splitlines()), ".fi"]
    lines += [".SH FILES", "The data root, as", ".B modeld doctor", "names it; the docs have the rest."]
    return "\n".join(lines) + "\n"


def _roff(text: str) -> str:
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain[:1] in (".", "'") else plain
