"""What a dry run of a load is asked, and what it tells: values between the daemon and a process to throw away. Pure."""

from __future__ import annotations

import msgspec

from shared.catalog.identity import RequestedIdentity


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Loads that are only thought of: one model with each of these contexts, in tokens."""

    identity: RequestedIdentity
    contexts: tuple[int, ...]


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes: weights, KV memory for `num_ctx` (windows capped, lanes included), working buffers."""

    weights: int
    kv: int
    compute: int
