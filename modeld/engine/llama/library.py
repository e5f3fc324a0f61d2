"""The native library: its low-level binding alone, its log, and its version.

The package's own `__init__` imports the high-level classes and numpy (0.2 s and 30 MB that nothing here
uses), so the package is registered unexecuted and only its binding module is imported. Worker only.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import sys
from typing import Any

from modeld.engine.backends import unavailable

_PACKAGE = "llama_cpp"
_BINDING = "llama_cpp.llama_cpp"
_WARN, _ERROR = 3, 4  # ggml_log_level; 5 goes on with the line before
_REASON_LIMIT = 300


class LogTap:
    """Warnings and errors of the native library go to the log; the last errors become reasons."""

    def __init__(self) -> None:
        self._errors: list[str] = []
        self.flash_attention: bool | None = None
        #: Every line, where a caller wants them (None: nobody does).
        self.lines: list[str] | None = None

    def line(self, level: int, text: bytes, _: object) -> None:
        """Called by native code with one piece of log text."""
        if b"Flash Attention " in text:
            self.flash_attention = b"enabled" in text
        if self.lines is not None:
            self.lines.append(text.decode("utf-8", "replace"))
        if level in (_WARN, _ERROR):
            message = text.decode("utf-8", "replace").strip()
            if level == _ERROR and message:
                self._errors.append(message)
            sys.stderr.write(message + "\n")

    def take_reason(self, fallback: str) -> str:
        """What went wrong, in the library's own words, and forget it."""
        errors, self._errors = self._errors, []
        return "; ".join(errors)[:_REASON_LIMIT] or fallback


class Library:
    """The loaded binding (`api`) and what must live as long as it: the log callback, libc."""

    def __init__(self) -> None:
        """Raises BackendUnavailable when it cannot be loaded."""
        os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # an abort must not start a debugger
        self.api: Any = _import_binding()
        self.tap = LogTap()
        self.log_callback = self.api.llama_log_callback(self.tap.line)
        # native code keeps it for good, also where another Library has come since and this one is gone
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.log_callback))
        self.api.llama_log_set(self.log_callback, None)
        self.api.llama_backend_init()
        #: `strlen` as an abort callback: 1 over a set flag, 0 over a clear one, no interpreter lock.
        self.abort_callback = ctypes.cast(_c_library().strlen, self.api.ggml_abort_callback)

    def digest(self) -> str:
        """Names the build: KV memory of one is never used by another."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            package = version("llama-cpp-python")
        except PackageNotFoundError:
            package = "unknown"
        native = self.api.llama_version().decode("utf-8", "replace")
        return f"llama-cpp-python {package} ({native})"


def set_fields(struct: Any, **values: Any) -> None:
    """Assign known fields only: a ctypes struct takes a misspelt one in silence."""
    known = {name for name, *_ in struct._fields_}
    for name, value in values.items():
        if name not in known:
            raise AttributeError(f"{type(struct).__name__} has no field {name}")
        setattr(struct, name, value)


def _import_binding() -> Any:
    try:
        if _PACKAGE not in sys.modules:
            spec = importlib.util.find_spec(_PACKAGE)
            if spec is None:
                raise unavailable("llama", f"the package {_PACKAGE} is not installed")
            sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
        return importlib.import_module(_BINDING)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise unavailable("llama", f"{type(error).__name__}: {error}") from error


def _c_library() -> Any:
    return ctypes.CDLL("msvcrt") if os.name == "nt" else ctypes.CDLL(None)
