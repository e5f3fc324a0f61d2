"""Which licences come with an installation: of every distribution that `pip install "modeld[...]"` brings."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from shared.diagnosis import remedy  # noqa: E402 - after the path

#: Extras of the product; `dev` and `docs` never reach a user.
EXTRAS = ("", *remedy.EXTRAS)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def closure(extra: str) -> dict[str, importlib.metadata.Distribution]:
    """What `modeld[extra]` needs here, by name, itself left out."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = list(own_needs(extra))
    while waiting:
        name, wanted = waiting.pop()
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform or Python
        key = _key(name)
        if key in found and not wanted:
            continue
        found[key] = distribution
        waiting += [(each, more) for each, more in needs(distribution, wanted) if _key(each) not in found]
    return found


def own_needs(extra: str) -> Iterator[tuple[str, str]]:
    """What pyproject.toml asks for: the metadata of an editable installation may be older."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for line in [*project["dependencies"], *project["optional-dependencies"].get(extra, [])]:
        name = _NAME.match(line)
        if name is not None:
            yield name[0], ""


def needs(distribution: importlib.metadata.Distribution, extra: str) -> Iterator[tuple[str, str]]:
    """Names and extras that a distribution needs on this platform."""
    for line in distribution.requires or ():
        requirement, _, marker = line.partition(";")
        if "extra ==" in marker:
            named = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
            if named is None or named[1] != extra:
                continue
        elif marker.strip() and not _applies(marker):
            continue
        name = _NAME.match(requirement.strip())
        if name is not None:
            extras = re.search(r"\[([\w,.-]+)\]", requirement)
            yield name[0], extras[1].split(",")[0] if extras else ""


def _applies(marker: str) -> bool:
    from packaging.markers import Marker

    return bool(Marker(marker).evaluate({"extra": ""}))


def licence(distribution: importlib.metadata.Distribution) -> str:
    """As the distribution states it, shortest form first."""
    package = distribution.metadata
    if "License-Expression" in package:
        return str(package["License-Expression"])
    classified = [
        line.rpartition("::")[2].strip()
        for line in package.get_all("Classifier") or ()
        if line.startswith("License ::")
    ]
    stated = package.json.get("license", "")
    text = str(stated).strip().splitlines()
    if classified and classified != ["OSI Approved"]:
        return ", ".join(classified)
    return text[0][:60] if text else "not stated"


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def rows() -> list[tuple[str, str, str]]:
    """Name, the extras that bring it, licence; in order of names. Versions are those of constraints.txt."""
    brought: dict[str, set[str]] = {}
    known: dict[str, importlib.metadata.Distribution] = {}
    for extra in EXTRAS:
        for name, distribution in closure(extra).items():
            brought.setdefault(name, set()).add(extra)
            known[name] = distribution
    return [
        (name, "always" if "" in brought[name] else ", ".join(sorted(brought[name])), licence(known[name]))
        for name in sorted(brought)
    ]
