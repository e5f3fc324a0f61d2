"""Completion of commands in a shell: a few lines for each shell, which ask the command itself for its words. Pure."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence

SHELLS = ("bash", "zsh", "fish")
_SCRIPTS = {
    "bash": """{function}() {{
    local IFS=$'\\n'
    COMPREPLY=($({program} complete -- "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null))
}}
complete -o default -F {function} {program}
""",
    "zsh": """#compdef {program}
{function}() {{
    local -a found
    found=("${{(@f)$({program} complete -- "${{(@)words[2,CURRENT]}}" 2>/dev/null)}}")
    compadd -a found
}}
compdef {function} {program}
""",
    "fish": """function __{function}
    {program} complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null
end
complete -c {program} -f -a '(__{function})'
""",
}


def script(program: str, shell: str) -> str:
    """What the shell has to read once."""
    return _SCRIPTS[shell].format(program=program, function=f"_{program.replace('-', '_')}")


def candidates(parser: argparse.ArgumentParser, words: Sequence[str], models: Callable[[], Iterable[str]]) -> list[str]:
    """What may stand in the place of the last of `words` (those behind the program's name)."""
    *before, begun = words or [""]
    command: argparse.ArgumentParser | None = None
    for word in before:
        if command is None and not word.startswith("-"):
            command = commands(parser).get(word)
            if command is None:
                return []
    found = _of_program(parser) if command is None else _of_command(command, before, begun, models)
    return sorted({word for word in found if word.startswith(begun)})


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands that help shows."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            shown = {choice.dest for choice in action._choices_actions}
            return {name: each for name, each in action.choices.items() if name in shown}
    return {}


def _of_program(parser: argparse.ArgumentParser) -> list[str]:
    return [*commands(parser), *(option for action in parser._actions for option in action.option_strings)]


def _of_command(
    command: argparse.ArgumentParser, before: Sequence[str], begun: str, models: Callable[[], Iterable[str]]
) -> list[str]:
    actions = command._actions
    asked = next((action for action in actions if before and before[-1] in action.option_strings), None)
    if asked is not None and asked.nargs != 0:
        return _values(asked, models)
    if begun.startswith("-"):
        return [option for action in actions for option in action.option_strings]
    return [value for action in actions if not action.option_strings for value in _values(action, models)]


def _values(action: argparse.Action, models: Callable[[], Iterable[str]]) -> list[str]:
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    return list(models()) if action.dest == "model" else []
