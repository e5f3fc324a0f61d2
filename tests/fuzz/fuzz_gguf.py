"""Throws damaged and hostile headers at the GGUF reader.

    python tests/fuzz/fuzz_gguf.py [--count 10000] [--seed 1 | --record]

Every case must be read or be rejected with HeaderRejected, within two seconds and 64 MiB, and what was
read must go through facts, the fit estimate, grouping and the cache. A case that does not is written to
`tests/fuzz/gguf/`, where the tests try it again for ever.

`tests/fuzz/gguf/cases.txt` is the regression corpus: 10,000 cases by the seed in it, each with the digest of its
content and the first letter of its outcome. They are recreated when they are tried (they would be a gigabyte), and
neither a content nor an outcome may change; `--record` writes the file after a change that was meant.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import random
import struct
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

import msgspec  # noqa: E402 - after the path

from gguf_bytes import ARRAY, STRING, build, model  # noqa: E402
from shared.catalog.advertised.fit import estimate  # noqa: E402
from shared.catalog.cachefile import CacheContent  # noqa: E402
from shared.catalog.formats.facts import facts_of  # noqa: E402
from shared.catalog.formats.gguf import read_header  # noqa: E402
from shared.catalog.formats.window import HeaderRejected  # noqa: E402
from shared.catalog.group import FileRecord, Found, entries  # noqa: E402
from shared.catalog.scan import Candidate  # noqa: E402

CORPUS = HERE / "gguf"
CASES = CORPUS / "cases.txt"
CORPUS_SEED = 20261129
CORPUS_COUNT = 10_000
#: So many cases stand on a line of the file.
LINE = 10
MOST_BYTES = 64 << 20
MOST_SECONDS = 2.0
EXTREMES = (
    0,
    1,
    2,
    31,
    0x7F,
    0xFF,
    0xFFFF,
    1 << 20,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    1 << 62,
    (1 << 63) - 1,
    (1 << 64) - 1,
)

Mutation = Callable[[random.Random, bytearray], bytearray]


class Crashed(Exception):
    """A case that was neither read nor rejected in time and memory."""


def try_case(content: bytes) -> str:
    """The outcome: `read`, or the fault. Raises Crashed."""
    started = time.process_time()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    outcome = "read"
    for first in (True, False):
        try:
            header = read_header(io.BytesIO(content), len(content), first=first)
            _use(header, content)
        except HeaderRejected as rejected:
            outcome = rejected.fault
            if not rejected.reason:
                raise Crashed("rejected without a reason") from rejected
        except Exception as error:
            raise Crashed(f"{type(error).__name__}: {error}") from error
    if tracemalloc.get_traced_memory()[1] - before > MOST_BYTES:
        raise Crashed("more than 64 MiB")
    if time.process_time() - started > MOST_SECONDS:
        raise Crashed("more than two seconds")
    return outcome


def _use(header: object, content: bytes) -> None:
    facts = facts_of(header)  # type: ignore[arg-type]
    estimate(facts, free=1 << 34, reserve=1 << 29, least=4096)
    candidate = Candidate(path="/m/x.gguf", source="folder", format="gguf", signature="", size=len(content), group="/m")
    record = FileRecord(path="/m/x.gguf", signature="", facts=facts, digest="fp1-0")
    rows = entries([Found(candidate, record)], {})
    msgspec.msgpack.encode(CacheContent(files={"x": record}, last=[candidate]))
    for row in rows:
        msgspec.json.encode(row.facts())


# --- cases --------------------------------------------------------------------------------------


def bases() -> list[bytes]:
    """Sound files to damage."""
    long = [f"token{index}" for index in range(5000)]
    arrays = [
        ("general.tags", ARRAY, (STRING, ["a", "b"])),
        ("llama.attention.head_count_kv", ARRAY, (4, [2, 1])),
        ("tokenizer.ggml.scores", ARRAY, (6, [0.5] * 3000)),
        ("tokenizer.ggml.merges", ARRAY, (STRING, ["a b"] * 3000)),
        ("llama.rope.scaling", 12, 1.5),
        ("general.alignment", 4, 64),
    ]
    return [
        model(),
        model("gemma3", layers=8, extra=[("gemma3.attention.sliding_window", 4, 512)]),
        model(tokens=long),
        model(extra=arrays[:2]),
        build([("general.architecture", STRING, "llama"), *arrays], version=2),
        build([("general.architecture", STRING, "clip"), ("general.type", STRING, "mmproj")]),
    ]


def cut(chooser: random.Random, data: bytearray) -> bytearray:
    return data[: chooser.randrange(len(data) + 1)]


def flip(chooser: random.Random, data: bytearray) -> bytearray:
    for _ in range(chooser.choice((1, 1, 2, 8, 64))):
        at = chooser.randrange(min(len(data), chooser.choice((64, 1024, len(data)))))
        data[at] ^= 1 << chooser.randrange(8)
    return data


def extreme(chooser: random.Random, data: bytearray) -> bytearray:
    size = chooser.choice((4, 8))
    at = chooser.randrange(max(1, min(len(data), chooser.choice((64, 1024, len(data)))) - size))
    value = chooser.choice(EXTREMES) & ((1 << 8 * size) - 1)
    data[at : at + size] = value.to_bytes(size, "little")
    return data


def splice(chooser: random.Random, data: bytearray) -> bytearray:
    start, stop = sorted(chooser.randrange(len(data) + 1) for _ in range(2))
    at = chooser.randrange(len(data) + 1)
    return data[:at] + data[start : min(stop, start + 4096)] + data[at:]


def drop(chooser: random.Random, data: bytearray) -> bytearray:
    at = chooser.randrange(len(data))
    return data[:at] + data[at + chooser.choice((1, 4, 8, 100)) :]


def noise(chooser: random.Random, data: bytearray) -> bytearray:
    return data[:24] + chooser.randbytes(chooser.randrange(4096))


def hostile(chooser: random.Random, _: bytearray) -> bytearray:
    """Built to look sound for a while: random counts, types, lengths and shapes."""
    out = bytearray(b"GGUF" + struct.pack("<IQQ", chooser.choice((2, 3)), chooser.randrange(40), chooser.randrange(40)))
    for _number in range(chooser.randrange(40)):
        key = chooser.choice(
            (b"general.architecture", b"tokenizer.ggml.tokens", chooser.randbytes(chooser.randrange(9)))
        )
        kind = chooser.choice((*range(13), 8, 9, 9, 200))
        out += struct.pack("<Q", len(key)) + key + struct.pack("<I", kind)
        if kind == ARRAY:
            out += struct.pack("<IQ", chooser.choice((*range(13), 8, 8)), chooser.choice((*EXTREMES, 3, 2000)))
        elif kind == STRING:
            out += struct.pack("<Q", chooser.choice((*EXTREMES, 3)))
        out += chooser.randbytes(chooser.choice((1, 2, 4, 8, 24)))
    return out + bytes(chooser.randrange(64))


MUTATIONS: tuple[Mutation, ...] = (cut, flip, flip, extreme, extreme, splice, drop, noise, hostile)


def cases(count: int, seed: int) -> Iterator[bytes]:
    """`count` cases, the same for the same seed."""
    chooser = random.Random(seed)
    sound = bases()
    for _ in range(count):
        data = bytearray(chooser.choice(sound))
        for _round in range(chooser.choice((1, 1, 1, 2, 3))):
            data = chooser.choice(MUTATIONS)(chooser, data) if data else data
        yield bytes(data)


def corpus() -> list[str]:
    """Digest and outcome of each case of the regression corpus."""
    seed, *lines = CASES.read_text(encoding="ascii").splitlines()
    assert seed == f"seed {CORPUS_SEED}", seed
    return " ".join(lines).split()


def record(reported: list[str]) -> None:
    """Write the regression corpus."""
    lines = [" ".join(reported[at : at + LINE]) for at in range(0, len(reported), LINE)]
    CASES.write_text("\n".join([f"seed {CORPUS_SEED}", *lines]) + "\n", encoding="ascii")


def run(
    count: int, seed: int, *, keep: bool, known: Sequence[str] = (), reported: list[str] | None = None
) -> tuple[Counter[str], list[str]]:
    """Outcomes by fault, and one line for each crash and each case that is not as `known`.

    With `keep`, crashing cases go to the corpus; what every case is goes to `reported`.
    """
    outcomes: Counter[str] = Counter()
    crashes: list[str] = []
    tracemalloc.start()
    try:
        for number, content in enumerate(cases(count, seed)):
            try:
                outcome = try_case(content)
                outcomes[outcome] += 1
                now = hashlib.blake2b(content, digest_size=4).hexdigest() + outcome[0]
                if number < len(known) and known[number] != now:
                    crashes.append(f"case {number}: {known[number]} became {now}")
                if reported is not None:
                    reported.append(now)
            except Crashed as crash:
                name = f"{hashlib.sha256(content).hexdigest()[:16]}.bin"
                crashes.append(f"{name}: {crash}")
                if keep:
                    (CORPUS / name).write_bytes(content)
    finally:
        tracemalloc.stop()
    return outcomes, crashes


def main(arguments: list[str] | None = None) -> int:
    """Exit 1 when a case crashed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    found: list[str] = []
    if options.record:
        options.count, options.seed = CORPUS_COUNT, CORPUS_SEED
    outcomes, crashes = run(options.count, options.seed, keep=True, reported=found)
    if options.record and not crashes:
        record(found)
    reported = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
    print(f"{options.count} headers (seed {options.seed}) in {time.monotonic() - started:.0f} s: {reported}")
    for line in crashes:
        print(f"CRASH {line}")
    return 1 if crashes else 0


if __name__ == "__main__":
    sys.exit(main())
