"""The Hugging Face cache: repositories with several revisions, of which `refs/main` is the one (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: A repository's folder begins so.
REPOSITORY = "models--"
#: Where the revisions of a repository lie, and the file that says which of them is the current one.
SNAPSHOTS, MAIN = "snapshots", ("refs", "main")
MAX_REF = 256
#: Characters of a revision that are shown.
SHORT = 7
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def repository(folder: str) -> str:
    """`owner/name` of a repository's folder, "" for any other folder."""
    return folder[len(REPOSITORY) :].replace("--", "/") if folder.startswith(REPOSITORY) else ""


def outdated(revision: str, main: str, revisions: Sequence[str]) -> str:
    """The short form of a revision that is not the current one (`main`), "" for that and where nothing is known."""
    if not _COMMIT.fullmatch(revision) or main not in revisions or revision == main:
        return ""
    return revision[:SHORT]
