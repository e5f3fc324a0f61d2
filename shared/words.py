"""Words of numbers, the same in every command and every face. Pure."""

from __future__ import annotations


def counted(number: int, word: str) -> str:
    """`1 model`, `2 models`, `1,024 tokens`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
