"""A defect planted in the worker of a real daemon: a function of ours fails or never returns while a file says so."""

from __future__ import annotations

from pathlib import Path

#: Where text is handled in a turn, by name.
PLACES = {
    "template": "modeld.template.render:Template.render",
    "shape": "modeld.template.render:adapt",
    "text to tokens": "modeld.engine.llama.engine:LlamaEngine.tokenize",
    "tool schema": "modeld.worker.turn:tool_grammar",
    "detokenizer": "modeld.engine.llama.engine:LlamaEngine.piece",
    "characters": "modeld.output.utf8:Utf8Decoder.feed",
    "stop strings": "modeld.output.stops:StopFilter.feed",
    "parser": "modeld.output.parser:OutputParser.feed",
    "end of the output": "modeld.output.parser:OutputParser.finish",
    "event stream": "modeld.worker.stream:EventStream.add",
}
ENGINE = {
    "prefix": "modeld.engine.llama.engine:LlamaEngine.ensure_prefix",
    "prefill": "modeld.engine.llama.engine:LlamaEngine.prefill_suffix",
}

_SITE = """
import sys
if "modeld.worker.process" in sys.orig_argv:
    import functools, importlib, time
    ARMED, PLACES = {armed!r}, {places!r}
    calls = {{}}

    def plant(name, place):
        module, _, path = place.partition(":")
        owner = importlib.import_module(module)
        *outer, attribute = path.split(".")
        for step in outer:
            owner = getattr(owner, step)
        sound = getattr(owner, attribute)

        @functools.wraps(sound)
        def struck(*arguments, **named):
            try:
                with open(ARMED) as file:
                    armed, _, how = file.read().partition("|")
            except FileNotFoundError:
                armed = how = ""
            if armed != name:
                return sound(*arguments, **named)
            if how.isdigit() and calls.setdefault(name, 0) < int(how):
                calls[name] += 1
                return sound(*arguments, **named)
            open(ARMED + ".struck", "w").close()
            if how == "hang":
                while True:
                    pass
            raise RuntimeError("a planted defect")

        # the stack shall name the function that was struck, and its module
        code = struck.__code__.replace(co_name=attribute)
        there = {{**globals(), "__name__": module}}
        setattr(owner, attribute, type(struck)(code, there, attribute, None, struck.__closure__))

    for name, place in PLACES.items():
        plant(name, place)
"""


class Planted:
    """`environ` is for the daemon. Nothing strikes before `arm`."""

    def __init__(self, folder: Path, places: dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._armed = folder / "armed"
        site = _SITE.format(armed=str(self._armed), places=places)
        (folder / "sitecustomize.py").write_text(site, encoding="utf-8")
        self.environ = {"PYTHONPATH": str(folder)}

    def arm(self, name: str, how: str = "raise") -> None:
        """From now on that place fails, after `how` calls if that is a number; `hang`: it never returns."""
        part = self._armed.with_suffix(".part")
        part.write_text(f"{name}|{how}", encoding="utf-8")
        part.replace(self._armed)

    @property
    def struck(self) -> bool:
        """Whether it has struck."""
        return self._armed.with_suffix(".struck").exists()

    def disarm(self) -> None:
        """All is sound again."""
        self._armed.unlink()
