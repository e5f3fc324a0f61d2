"""The options of `chat` and `run`, which both command lines have: `acp-bridge` runs them, `modeld` hands them over.

Pure.
"""

from __future__ import annotations

import argparse

from shared.text.arguments import Parser

#: What `chat` and `run` are for, in the help of both programs.
CHAT = "talk with a model at the terminal, or ask it one question"
RUN = "the same as chat, with the model named first"
#: The commands that are these.
NAMES = ("chat", "run")
MODEL = "model name, or a prefix that matches only one"


def add_chat(parser: Parser) -> None:
    """`chat [PROMPT]`."""
    parser.intermixed = True
    _prompt(parser)
    parser.add_argument("--model", "-m", help=MODEL)
    _options(parser)


def add_run(parser: Parser) -> None:
    """`run MODEL [PROMPT]`."""
    parser.intermixed = True
    parser.add_argument("model", help=MODEL)
    _prompt(parser)
    _options(parser)


def _prompt(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prompt",
        nargs="*",
        metavar="PROMPT",
        help="what to say; without it a conversation begins. What is piped in goes with it; `-` is what is piped in",
    )


def _options(parser: argparse.ArgumentParser) -> None:
    _of_the_conversation(parser)
    _of_the_answer(parser)
    shown = parser.add_argument_group("output")
    shown.add_argument("--json", action="store_true", help="one JSON object a line as the turn goes on")
    shown.add_argument("--plain", action="store_true", help="print the answer as it comes, without rendering Markdown")
    shown.add_argument("--quiet", "-q", action="store_true", help="the answer alone: no progress, no line of counts")
    daemon = parser.add_argument_group("modeld")
    daemon.add_argument("--start", action="store_true", help="start modeld if it is not running")
    daemon.add_argument("--keep", action="store_true", help="leave the modeld that --start started running")
    daemon.add_argument("--switch", action="store_true", help="switch even if another client is using the loaded model")


def _of_the_conversation(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("conversation")
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--continue", "-c", dest="go_on", action="store_true", help="continue the newest conversation of this folder"
    )
    which.add_argument("--conversation", metavar="ID", help="continue this one (`acp-bridge export --list`)")
    group.add_argument("--system", "-s", metavar="TEXT", help="system message; an empty one sends none")
    group.add_argument("--file", "-f", action="append", default=[], metavar="FILE", help="attach a text file")
    group.add_argument("--image", "-i", action="append", default=[], metavar="FILE", help="attach an image")
    group.add_argument("--no-save", action="store_true", help="forget the conversation at the end")


def _of_the_answer(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("answer")
    group.add_argument("--temperature", "-t", type=at_least(float, 0), metavar="NUMBER", help="0 for the likeliest")
    group.add_argument("--top-p", type=at_least(float, 0), metavar="NUMBER", help="part of the likely tokens kept")
    group.add_argument("--seed", type=at_least(int, 0), metavar="NUMBER", help="the same answer again")
    group.add_argument("--max-tokens", type=at_least(int, 1), metavar="TOKENS", help="end the answer there")
    group.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end the answer before this text")
    group.add_argument("--thinking", metavar="LEVEL", help="how much a reasoning model thinks, or off")
    group.add_argument("--json-schema", metavar="FILE|JSON", help="hold the answer to this JSON schema")


class _Number:
    """Reads a number that is at least `least`; its name is what argparse says of a word that is none."""

    def __init__(self, kind: type[int | float], least: int) -> None:
        self._kind = kind
        self._least = least
        self.__name__ = "whole number" if kind is int else "number"

    def __call__(self, text: str) -> float:
        value = self._kind(text)
        if not self._least <= value < float("inf"):  # nor nan
            raise argparse.ArgumentTypeError(f"{text} is not a number of at least {self._least}")
        return value


def at_least(kind: type[int | float], least: int) -> _Number:
    """A type for argparse: a number of at least `least`."""
    return _Number(kind, least)
