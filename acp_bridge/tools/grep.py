"""`python -P -m acp_bridge.tools.grep PATTERN FILES ROOT...`: what search_text runs where it can be ended.

Prints the lines that match. FILES is a glob pattern, "" for all files.
"""

from __future__ import annotations

import re
import sys

from acp_bridge.tools.read_tools import grep


def main(arguments: list[str]) -> None:
    """Search, and print what was found."""
    pattern, files, *roots = arguments
    found = "\n".join(grep(roots, re.compile(pattern), files))
    sys.stdout.buffer.write(found.encode("utf-8", "replace"))


if __name__ == "__main__":
    main(sys.argv[1:])
