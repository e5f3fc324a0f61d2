"""Which engines this installation has, found out without importing a native library."""

from __future__ import annotations

import importlib.util
import os
from importlib.machinery import ModuleSpec

import msgspec

from shared.backends import BACKENDS, OUTSIDE
from shared.diagnosis.remedy import install_command
from shared.errors import BackendUnavailable

#: File of an engine that is no part of the product, and what it is called with; for `--backend scripted` alone.
ENGINE_VARIABLE = "MODELD_SCRIPTED_ENGINE"


class Availability(msgspec.Struct, frozen=True, kw_only=True):
    """One engine here: whether it could be imported, why not, and the devices it would use."""

    backend: str
    importable: bool
    reason: str = ""
    devices: tuple[str, ...] = ()


def available() -> list[Availability]:
    """All engines in order of preference. Costs a look at the import path, no native code."""
    return [_look(backend) for backend in BACKENDS]


def choose(setting: str) -> str:
    """The backend of this modeld for its life: the configured one, else the first that is importable.

    `none` when no engine is installed. Raises BackendUnavailable when a named one is missing.
    """
    if setting == "none" or is_outside(setting):
        return setting
    found = {one.backend: one for one in available()}
    if setting != "auto":
        one = found.get(setting)
        if one is None or not one.importable:
            raise unavailable(setting, one.reason if one else "no such engine")
        return setting
    return next((one.backend for one in found.values() if one.importable), "none")


def is_outside(backend: str) -> bool:
    """Whether it is the engine of a file that the environment names (see docs/security.md)."""
    return backend == OUTSIDE and bool(os.environ.get(ENGINE_VARIABLE))


def unavailable(backend: str, reason: str) -> BackendUnavailable:
    """The typed error with the way out."""
    return BackendUnavailable(backend=backend, reason=reason, hint=_hint(backend))


def _hint(backend: str) -> str:
    if backend == "none":
        return f"start modeld with {' or '.join(f'--backend {name}' for name in BACKENDS)}"
    if backend not in BACKENDS:
        return "see `modeld doctor`"
    return f"install it with `{install_command(backend)}`{' (needs a C++ compiler)' if backend == 'llama' else ''}"


def _look(backend: str) -> Availability:
    package = BACKENDS[backend].package
    if _spec(package) is None:
        return Availability(backend=backend, importable=False, reason=f"the package {package} is not installed")
    return Availability(backend=backend, importable=True, devices=("CPU",))


def _spec(package: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None  # a half-removed package is not there


def installed_version(backend: str) -> str:
    """Version of the package behind a backend, without importing it; "" where there is none."""
    from importlib.metadata import PackageNotFoundError, version  # 15 ms, only where a plan is made

    try:
        return version(BACKENDS[backend].distribution) if backend in BACKENDS else ""
    except PackageNotFoundError:
        return ""
