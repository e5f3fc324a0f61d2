"""The codec: what is written is read, what is foreign is kept, what is broken is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.lease.record import (
    PAD_BYTES,
    Ended,
    Identity,
    LeaseRecord,
    Meta,
    PresenceRecord,
    RecordUnreadable,
    Released,
    Worker,
    decode_lease,
    decode_presence,
    encode,
    meta_of,
)

pytestmark = pytest.mark.unit

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
workers = st.builds(Worker, pid=st.integers(0, 2**31), start_token=text, boot_id=text, host=text)
records = st.builds(
    LeaseRecord,
    instance=text,
    epoch=st.integers(1, 10**9),
    pid=st.integers(1, 2**31),
    start_token=text,
    host=text,
    worker=st.none() | workers,
    renewed=st.floats(0, 1e10),
    sequence=st.integers(0, 10**9),
    ttl=st.floats(0.1, 600),
    released=st.none() | st.builds(Released, reason=text, at=st.floats(0, 1e10)),
    meta=st.dictionaries(text, st.none() | st.booleans() | st.integers(-(10**9), 10**9) | text, max_size=4),
    extra=st.dictionaries(st.sampled_from(["future", "zone", "x"]), st.integers(0, 9) | text, max_size=3),
)


@given(records)
def test_a_lease_survives_the_disk(record: LeaseRecord) -> None:
    data = encode(record)
    assert decode_lease(data, record.epoch) == record
    assert len(data) % PAD_BYTES == 0
    json.loads(data)


@given(
    st.builds(
        PresenceRecord,
        instance=text,
        endpoint=text,
        token_file=text,
        pid=st.integers(1, 2**31),
        ended=st.none() | st.builds(Ended, reason=text, at=st.floats(0, 1e10)),
    )
)
def test_a_presence_survives_the_disk(record: PresenceRecord) -> None:
    assert decode_presence(encode(record)) == record


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_and_never_crash(data: bytes) -> None:
    with pytest.raises(RecordUnreadable):
        decode_lease(data, 1)


@given(records, st.integers(0, 2000))
def test_a_cut_record_is_refused_or_whole(record: LeaseRecord, length: int) -> None:
    data = encode(record)
    cut = data[:length]
    if len(cut.rstrip()) < len(data.rstrip()):
        with pytest.raises(RecordUnreadable):
            decode_lease(cut, record.epoch)
    else:
        assert decode_lease(cut, record.epoch) == record


def _lease(**changes: Any) -> bytes:
    fields: dict[str, Any] = {"instance": "i", "epoch": 3, "pid": 5, **changes}
    return json.dumps(fields).encode()


def test_fields_of_a_newer_version_are_kept_and_written_back() -> None:
    record = decode_lease(_lease(format=9, quorum={"a": [1]}), 3)
    assert record.extra == {"quorum": {"a": [1]}}
    written = json.loads(encode(record))
    assert written["quorum"] == {"a": [1]}
    assert written["format"] == 9


def test_an_unknown_release_reason_is_a_release() -> None:
    record = decode_lease(_lease(released={"reason": "moved to another room", "at": 4.0, "to": "x"}), 3)
    assert record.released is not None
    assert record.released.reason == "moved to another room"


def test_the_name_of_the_file_is_the_epoch() -> None:
    assert decode_lease(_lease(epoch=3), 8).epoch == 8


@pytest.mark.parametrize("ttl", [0, -1, 1e9, 1e400, "soon", None])
def test_a_ttl_that_would_lock_others_out_is_not_believed(ttl: Any) -> None:
    with pytest.raises(RecordUnreadable):
        decode_lease(_lease(ttl=ttl), 3)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"null", b'{"instance": 4, "epoch": 1, "pid": 1}', b"\xff\xfe", b"[" * 5000]
)
def test_empty_and_foreign_content_is_refused(data: bytes) -> None:
    with pytest.raises(RecordUnreadable):
        decode_lease(data, 1)


def test_meta_is_opaque_and_read_as_far_as_it_is_known() -> None:
    good = decode_lease(_lease(meta={"endpoint": "unix:/s", "backend": "llama", "colour": "red"}), 3)
    assert meta_of(good) == Meta(endpoint="unix:/s", backend="llama")
    assert good.meta["colour"] == "red"
    assert meta_of(decode_lease(_lease(meta={"endpoint": 7}), 3)) == Meta()


def test_an_unknown_worker_is_still_a_worker() -> None:
    record = decode_lease(_lease(worker={"pid": 9, "start_token": "5", "gpu": 1}), 3)
    assert record.worker == Worker(pid=9, start_token="5")


def test_a_person_can_read_a_record_and_a_longer_one_fits_in_its_place() -> None:
    """On a full disk a renewal, a worker's name and the release are still written."""
    record = LeaseRecord(instance="i", epoch=3, pid=5)
    data = encode(record)
    assert data.startswith(b'{\n "instance": "i",\n "epoch": 3,\n')
    assert data.endswith(b" \n")
    room = len(data) - len(data.rstrip())
    assert PAD_BYTES < room <= 2 * PAD_BYTES
    for length in (0, 1, room - PAD_BYTES - 1, room - PAD_BYTES, PAD_BYTES):
        size = len(encode(LeaseRecord(instance="i" * (length + 1), epoch=3, pid=5)))
        assert size == (len(data) if length < room - PAD_BYTES else len(data) + PAD_BYTES)


@pytest.mark.parametrize(("ttl", "believed"), [(0.05, True), (0.049, False), (600.0, True), (600.1, False)])
def test_the_ttls_that_are_believed_have_ends(ttl: float, believed: bool) -> None:
    if believed:
        assert decode_lease(_lease(ttl=ttl), 3).ttl == ttl
    else:
        with pytest.raises(RecordUnreadable, match=f"^ttl {ttl}$"):
            decode_lease(_lease(ttl=ttl), 3)


def test_why_a_record_is_unreadable_is_said() -> None:
    with pytest.raises(RecordUnreadable, match="missing required field `epoch`"):
        decode_lease(b'{"instance": "i"}', 1)


def test_a_field_of_a_newer_version_may_have_the_name_of_ours() -> None:
    record = decode_lease(_lease(extra=7), 3)
    assert record.extra == {"extra": 7}
    assert decode_lease(encode(record), 3) == record


@pytest.mark.parametrize(
    "record",
    [
        LeaseRecord(instance="i", epoch=1, pid=5, start_token="t", boot_id="b", pid_namespace="n", host="h"),
        PresenceRecord(
            instance="i", endpoint="", token_file="", pid=5, start_token="t", boot_id="b", pid_namespace="n", host="h"
        ),
    ],
)
def test_the_process_of_a_record_is_whole(record: LeaseRecord | PresenceRecord) -> None:
    assert record.identity == Identity(pid=5, start_token="t", boot_id="b", pid_namespace="n", host="h")


def test_instances_are_sorted_from_the_oldest() -> None:
    made = [
        PresenceRecord(instance=name, endpoint="", token_file="", pid=1, started=started)
        for name, started in (("c", 2.0), ("b", 1.0), ("a", 2.0))
    ]
    assert [record.instance for record in sorted(made, key=lambda record: record.age_rank)] == ["b", "a", "c"]
