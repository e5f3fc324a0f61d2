"""The records on disk as values, and their codec. Pure: no files, no clock.

A lease record is `<root>/owner/<epoch>.lease`, a presence record `<root>/instances/<instance>.json`.
Both are one JSON object that a person can read. Fields of a newer version are kept in `extra` and
written back. The wall-clock times in them are for people and for ages shown to people; they decide
nothing.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

#: Record layout. A newer one is read as far as its fields are known.
FORMAT = 1
#: Records are padded to a multiple of this many bytes, with one more to spare, so that on a full disk a
#: renewal, a worker's name and the release fit in place.
PAD_BYTES = 512
#: A ttl outside this range in a record is not believed: nobody may lock others out for days. Seconds.
LEAST_TTL = 0.05
LONGEST_TTL = 600.0
#: What a record that does not say counts as. Seconds.
USUAL_TTL = 10.0


class RecordUnreadable(ValueError):
    """The bytes are no record: empty, cut, corrupt, or of an unknown shape. Counts as held."""


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """That the owner let go. `reason` is stop, restart, upgrade, shutdown, lost or withdrawn; `at` wall seconds."""

    reason: str
    at: float


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """That an instance ended in order, kept for a while for those who ask what happened."""

    reason: str
    at: float


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """One process as others can check it. An empty string means that the platform could not say."""

    pid: int
    start_token: str = ""
    boot_id: str = ""
    pid_namespace: str = ""
    host: str = ""


class Worker(Identity, frozen=True, kw_only=True, omit_defaults=True):
    """The engine process of an owner, with where its pid means something.

    Pid 0 stands for one that nobody could read: it may exist, and its watchdog is waited out.
    """


class Meta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """What a lease tells clients: where the owner listens and what it serves."""

    endpoint: str = ""
    token_file: str = ""
    backend: str = ""
    protocol_min: int = 0
    protocol_max: int = 0
    version: str = ""


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One ownership. `sequence` rises with each write; `ttl` in seconds; times in wall seconds.

    Sequence 0 is a claim that its author has not confirmed yet.
    `worker` is the owner's own, or one that it took over from the last owner and has not seen gone.
    `meta` is opaque to the lease (see Meta for what modeld puts there). `root` names the folder that it is about
    (see shared.lease.place), "" in records of older versions.
    """

    instance: str
    epoch: int
    pid: int
    start_token: str = ""
    boot_id: str = ""
    pid_namespace: str = ""
    host: str = ""
    worker: Worker | None = None
    acquired: float = 0.0
    renewed: float = 0.0
    expires: float = 0.0
    sequence: int = 0
    ttl: float = USUAL_TTL
    released: Released | None = None
    meta: dict[str, Any] = {}
    root: str = ""
    format: int = FORMAT
    extra: dict[str, Any] = {}

    @property
    def identity(self) -> Identity:
        """The owner's process."""
        return _identity(self)


class PresenceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One running instance, owner or not. Proven by dialling. `started` in wall seconds, `root` as in a lease."""

    instance: str
    endpoint: str
    token_file: str
    pid: int
    start_token: str = ""
    boot_id: str = ""
    pid_namespace: str = ""
    host: str = ""
    backend: str = ""
    protocol_min: int = 0
    protocol_max: int = 0
    version: str = ""
    started: float = 0.0
    root: str = ""
    ended: Ended | None = None
    format: int = FORMAT
    extra: dict[str, Any] = {}

    @property
    def identity(self) -> Identity:
        """The instance's process."""
        return _identity(self)

    @property
    def age_rank(self) -> tuple[float, str]:
        """Sorts instances from the oldest; the same for everybody who reads the records."""
        return (self.started, self.instance)


Record = TypeVar("Record", LeaseRecord, PresenceRecord)


def encode(record: LeaseRecord | PresenceRecord) -> bytes:
    """Readable JSON with the fields of newer versions put back, padded to PAD_BYTES."""
    fields = msgspec.to_builtins(record)
    extra = fields.pop("extra")
    text = msgspec.json.format(msgspec.json.encode({**extra, **fields}), indent=1)
    return text.ljust((len(text) // PAD_BYTES + 2) * PAD_BYTES - 1) + b"\n"


def decode_lease(data: bytes, epoch: int | None) -> LeaseRecord:
    """The record in a file named `epoch`; the name is what counts, where it says one. Raises RecordUnreadable."""
    record = _decode(data, LeaseRecord)
    if not LEAST_TTL <= record.ttl <= LONGEST_TTL:
        raise RecordUnreadable(f"ttl {record.ttl}")
    return record if epoch in (None, record.epoch) else msgspec.structs.replace(record, epoch=epoch)


def decode_presence(data: bytes) -> PresenceRecord:
    """Raises RecordUnreadable."""
    return _decode(data, PresenceRecord)


def meta_of(record: LeaseRecord) -> Meta:
    """The typed part of `meta`; defaults where a foreign or newer record differs."""
    try:
        return msgspec.convert(record.meta, Meta)
    except msgspec.ValidationError:
        return Meta()


def _decode(data: bytes, kind: type[Record]) -> Record:
    try:
        fields = msgspec.json.decode(data, type=dict[str, Any])
        known = {name: value for name, value in fields.items() if name in kind.__struct_fields__ and name != "extra"}
        record = msgspec.convert(known, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # ValidationError is a DecodeError
        raise RecordUnreadable(str(error)) from error
    extra = {name: value for name, value in fields.items() if name not in kind.__struct_fields__ or name == "extra"}
    return msgspec.structs.replace(record, extra=extra) if extra else record


def _identity(record: LeaseRecord | PresenceRecord) -> Identity:
    return Identity(
        pid=record.pid,
        start_token=record.start_token,
        boot_id=record.boot_id,
        pid_namespace=record.pid_namespace,
        host=record.host,
    )
