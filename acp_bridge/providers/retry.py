"""When a request is tried again. Pure: chance and clock are handed in."""

from __future__ import annotations

#: The first pause, doubled with each try up to the second number; seconds.
FIRST_S, MOST_S = 0.5, 8.0
#: What comes on top by chance, as a part of the pause: the windows of a team do not come back at once.
JITTER = 0.25
#: A longer wait that an endpoint asks for is told at once: nobody is kept waiting for it.
LONGEST_S = 60.0


def pause(attempt: int, asked: float | None, chance: float) -> float | None:
    """Seconds before try number `attempt` + 1 (from 1); None where another is not made.

    `asked`: what the endpoint asked for; never less is waited. `chance` is from 0 to 1.
    """
    if asked is not None and asked > LONGEST_S:
        return None
    base = min(FIRST_S * 2 ** (attempt - 1), MOST_S) if asked is None else asked
    return base * (1 + JITTER * chance)
