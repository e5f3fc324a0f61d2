"""What a load would take, by llama.cpp's own reckoning, with a model and contexts that have no memory behind them.

Some 40 MB and a tenth of a second, most of it the vocabulary; the sizes stand in the library's log. In a process to
throw away (`modeld.worker.dry_run`): a wrong combination of parameters may end it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from modeld.engine.contract import AbortFlag, Capabilities, LoadedModel, LoadRequest
from modeld.engine.dry_run import PROJECTOR, Sizes
from modeld.engine.llama.library import Library
from modeld.engine.llama.model import LoadedContext
from modeld.engine.llama.resolved import resolved_identity, template_of
from modeld.engine.llama.vision import open_image_encoder
from modeld.engine.llama.vocabulary import Vocabulary
from modeld.memory.probe import host_memory

_MIB = 1024 * 1024
_WEIGHTS = re.compile(r"file size\s*=\s*([0-9.]+) (MiB|GiB)")
_CACHE = re.compile(r"^(?:llama_kv_cache|llama_memory_recurrent)[\w:]*: size =\s*([0-9.]+) MiB")
_COMPUTE = re.compile(r"(?:compute|output) buffer size =\s*([0-9.]+) MiB")


def sizes_in(lines: list[str]) -> Sizes:
    """Bytes of weights, KV memory and working buffers as the log of one load tells them. Pure."""
    weights = sum(float(size) * (1024 if unit == "GiB" else 1) for size, unit in _all(_WEIGHTS, lines))
    cache = sum(float(size) for size in _all(_CACHE, lines))
    compute = sum(float(size) for size in _all(_COMPUTE, lines))
    return Sizes(weights=int(weights * _MIB), kv=int(cache * _MIB), compute=int(compute * _MIB))


def _all(pattern: re.Pattern[str], lines: list[str]) -> list[Any]:
    return [found for line in lines for found in pattern.findall(line)]


def measure(
    library: Library, request: LoadRequest, contexts: Sequence[int], began: Callable[[str], None], abort: AbortFlag
) -> tuple[LoadedContext, Vocabulary, list[Sizes]]:
    """The model without its weights, its vocabulary, and the sizes for each context. Raises as a load does."""
    read: list[str] = []
    library.tap.lines = read
    native = LoadedContext(library, request, dry=True)
    began("weights")
    native.load_model(lambda _: None, abort)
    vocabulary = Vocabulary(library.api, native.model)
    special = vocabulary.special
    fill = None not in (special.fim_prefix, special.fim_suffix, special.fim_middle)
    found = []
    began("context")
    for num_ctx in contexts:
        library.tap.lines = lines = list(read)
        context = LoadedContext(library, msgspec.structs.replace(request, num_ctx=num_ctx), dry=True)
        context.model = native.model
        context.open_context(fill=fill, abort=abort)
        found.append(sizes_in(lines))
        native.plan = context.plan
    library.tap.lines = None
    projector = request.identity.projector
    if projector and native.plan is not None and 2 * os.stat(projector).st_size < host_memory().free:
        began(PROJECTOR)
        open_image_encoder(library, native.model, native.plan, request.identity)  # one that is refused costs no load
    return native, vocabulary, found


def without_memory(library: Library, request: LoadRequest, native: LoadedContext, digest: str) -> LoadedModel:
    """What a dry run knows of the model that a load would make resident."""
    return LoadedModel(
        identity=resolved_identity(library, request, native.plan, digest),
        capabilities=Capabilities(),
        measured_bytes=0,
        template=template_of(native, request),
    )
