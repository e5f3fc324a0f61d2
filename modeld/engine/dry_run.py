"""What a dry run of a load is asked, and what it tells: values between the daemon and a process to throw away. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.catalog.identity import RequestedIdentity

#: The step of a dry run that opens the file by which a model sees.
PROJECTOR = "projector"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Loads that are only thought of: one model with each of these contexts, in tokens.

    `model` is the catalog's facts; `template_deadline` in seconds.
    """

    identity: RequestedIdentity
    contexts: tuple[int, ...]
    model: dict[str, Any] = {}
    template_deadline: float = 2.0


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes: weights, KV memory for `num_ctx` (windows capped, lanes included), working buffers."""

    weights: int
    kv: int
    compute: int


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a dry run found. `sizes` one for each context, none where the engine has no arithmetic of its own.

    `error` as on the wire: the load would end so. None where nothing stands against it.
    """

    sizes: tuple[Sizes, ...] = ()
    error: dict[str, Any] | None = None
