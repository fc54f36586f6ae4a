# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Which stored form of a token entry costs least. Run ``python -m benchmarks.codec [--json]``; takes some minutes.

Owns the comparison; the columnar rivals are in ``columns``, the entries in ``entries``. Every figure is per entry.
The record's canonical JSON is at hand when an encoder starts, because identity needs it anyway.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import zstandard

from benchmarks.columns import narrow_decode, narrow_encode, planes_decode, planes_encode
from benchmarks.entries import entry
from gym_objstore import codec
from gym_objstore.digests import canonical_json, sha256_hex

if TYPE_CHECKING:
    from collections.abc import Callable

Record = dict[str, Any]
Pack = tuple["Callable[[bytes], bytes]", "Callable[[bytes], bytes]"]
Form = tuple["Callable[[Record, bytes], bytes]", "Callable[[bytes], Record]"]

SIZES = (2_048, 8_192, 32_768, 131_072)
"""Tokens of an entry: seven eighths prompt, one eighth generated."""

BURST = 1_048_576
"""Tokens of the entries that one thread encodes without rest while the event loop ticks."""

PAUSE = 50e-6
"""Seconds the thread sleeps after each entry; without a pause the loop waits for the interpreter's 5 ms switch."""


class Codec(NamedTuple):
    """A stored form.

    ``locked`` is the part of ``encode`` that holds the interpreter lock, ``decode`` gives what validation takes, and
    ``verify`` the digest of the canonical JSON too.
    """

    name: str
    encode: Callable[[Record, bytes], bytes]
    locked: Callable[[Record, bytes], bytes]
    decode: Callable[[bytes], Record]
    verify: Callable[[bytes], tuple[Record, str]]


@dataclass(frozen=True)
class Row:
    """What one codec costs on entries of one size.

    Times are CPU time of the calling thread but for ``stall_ms``. Peaks are Python's own memory beside what the caller
    holds, without a compressor's context.
    """

    tokens: int
    codec: str
    bytes_stored: int
    encode_ms: float
    locked_ms: float
    """The part of encoding that holds the interpreter lock; zlib and zstd let go of it."""
    stall_ms: float
    """The event loop's longest pause while a thread writes, hashes and encodes ``BURST`` tokens of entries."""
    decode_ms: float
    verify_ms: float
    encode_peak_bytes: int
    decode_peak_bytes: int


def zstd(level: int) -> Pack:
    """Return compression and its inverse; one context per call, since threads cannot share one."""
    return (
        lambda raw: zstandard.ZstdCompressor(level=level).compress(raw),
        lambda body: zstandard.ZstdDecompressor().decompress(body),
    )


def text(name: str, pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]) -> Codec:
    """Return a codec that stores the canonical JSON itself: the digest is that of the unpacked bytes."""
    return Codec(name, lambda _, canonical: pack(canonical), _as_it_is, *_reading(unpack, orjson.loads))


def _as_it_is(_record: Record, canonical: bytes) -> bytes:
    return canonical


def _reading(
    unpack: Callable[[bytes], bytes], parse: Callable[[bytes], Record]
) -> tuple[Callable[[bytes], Record], Callable[[bytes], tuple[Record, str]]]:
    def verify(body: bytes) -> tuple[Record, str]:
        raw = unpack(body)
        return parse(raw), sha256_hex(raw)

    return lambda body: parse(unpack(body)), verify


def columns(name: str, form: Form, pack: Pack) -> Codec:
    """Return a codec of columns: the digest needs the canonical JSON written again."""
    encode, decode = form

    def verify(body: bytes) -> tuple[Record, str]:
        record = decode(pack[1](body))
        return record, sha256_hex(canonical_json(record))

    return Codec(
        name,
        lambda record, canonical: pack[0](encode(record, canonical)),
        encode,
        lambda body: decode(pack[1](body)),
        verify,
    )


PLAIN: Pack = (bytes, bytes)
NARROW: Form = (narrow_encode, narrow_decode)
PLANES: Form = (planes_encode, planes_decode)
SHIPPED = Codec(
    "as shipped (zst)",
    lambda _record, canonical: codec.encode(canonical),
    _as_it_is,
    *_reading(lambda body: codec.unpack(body, codec.FORMAT), codec.parse),
)
CODECS = (
    text("canonical JSON", *PLAIN),
    SHIPPED,
    text("JSON, zlib 1", lambda raw: zlib.compress(raw, 1), zlib.decompress),
    text("JSON, zstd 1", *zstd(1)),
    text("JSON, zstd 3", *zstd(3)),
    columns("narrow columns", NARROW, PLAIN),
    columns("narrow columns, zstd 1", NARROW, zstd(1)),
    columns("byte planes", PLANES, PLAIN),
    columns("byte planes, zstd 1", PLANES, zstd(1)),
)


def measure(form: Codec, record: Record) -> Row:
    """Return the figures of one codec on one record, after checking that it loses nothing."""
    canonical = canonical_json(record)
    body = form.encode(record, canonical)
    if form.verify(body)[1] != sha256_hex(canonical):
        msg = f"the codec changed the record, codec={form.name}"
        raise AssertionError(msg)

    def encode() -> object:
        return form.encode(record, canonical)

    def whole() -> None:
        text = canonical_json(record)
        sha256_hex(text)
        form.encode(record, text)
        time.sleep(PAUSE)

    tokens = len(record["prompt_token_ids"]) + len(record["generation_token_ids"])
    return Row(
        tokens=tokens,
        codec=form.name,
        bytes_stored=len(body),
        encode_ms=least_ms(encode),
        locked_ms=least_ms(lambda: form.locked(record, canonical)),
        stall_ms=min(asyncio.run(stall_ms(whole, BURST // tokens)) for _ in range(5)),
        decode_ms=least_ms(lambda: form.decode(body)),
        verify_ms=least_ms(lambda: form.verify(body)),
        encode_peak_bytes=peak_bytes(encode),
        decode_peak_bytes=peak_bytes(lambda: form.decode(body)),
    )


def least_ms(call: Callable[[], object]) -> float:
    """Return the CPU time of the cheapest of 31 calls in milliseconds: what else the machine does can only add."""
    times = []
    for _ in range(31):
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return min(times) * 1e3


async def stall_ms(call: Callable[[], object], repeats: int) -> float:
    """Return the longest time between two ticks of the loop while one thread makes the calls."""
    loop = asyncio.get_running_loop()
    worst = 0.0
    with ThreadPoolExecutor(1) as pool:
        done = asyncio.gather(*(loop.run_in_executor(pool, call) for _ in range(repeats)))
        last = time.perf_counter()
        while not done.done():
            await asyncio.sleep(0)
            now = time.perf_counter()
            worst, last = max(worst, now - last), now
    return worst * 1e3


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the most memory Python holds at once during a call, beyond what it held before."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def markdown(rows: list[Row]) -> str:
    """Return the rows as a table for the documentation: CPU milliseconds, kilobytes."""
    lines = [
        "| tokens | codec | kB | encode | locked | stall | decode | verified | peaks: encode | decode |",
        "|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row.tokens:,} | {row.codec} | {row.bytes_stored / 1e3:.1f} "
        f"| {row.encode_ms:.2f} | {row.locked_ms:.2f} | {row.stall_ms:.1f} | {row.decode_ms:.2f} | {row.verify_ms:.2f} "
        f"| {row.encode_peak_bytes / 1e3:,.0f} | {row.decode_peak_bytes / 1e3:,.0f} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure every codec on every size and print a Markdown table, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.codec", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON list of rows")
    as_json = parser.parse_args().json
    rows = [measure(form, entry(tokens)) for tokens in SIZES for form in CODECS]
    printed = orjson.dumps([asdict(row) for row in rows]).decode() if as_json else markdown(rows)
    sys.stdout.write(printed + "\n")


if __name__ == "__main__":
    main()
