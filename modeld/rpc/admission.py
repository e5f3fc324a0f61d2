"""How many clients a daemon takes, out of what the system lets it open. Pure.

The lease, the database and the worker need descriptors too, at any moment: those are kept back. A client that has said
hello holds its place; one that says nothing gives it up, to the next that comes or after a while.
"""

from __future__ import annotations

import msgspec

#: Kept back for the lease, the records, the database, a worker with its pipes, logs, downloads and looks at files.
KEPT_BACK = 48
#: With less than this nobody could look after a daemon any more.
LEAST = 8
#: Beyond the most: for the command line, by which a person finds out and makes room.
FOR_COMMANDS = 4


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """`greeted` clients at most that have said hello, and `silent` at most that have not."""

    greeted: int
    silent: int

    def takes(self, greeted: int, *, command: bool) -> bool:
        """Whether one more may say hello beside `greeted` others. `command`: it is a command of a moment."""
        return greeted < self.greeted + (FOR_COMMANDS if command else 0)


def admission(descriptors: int | None, most: int) -> Admission:
    """For a process that may open so many descriptors (None: no bound), and at most `most` clients."""
    room = most if descriptors is None else min(most, max(descriptors - KEPT_BACK, LEAST))
    silent = max(room // 4, 2)
    return Admission(greeted=max(room - silent - FOR_COMMANDS, 2), silent=silent)
