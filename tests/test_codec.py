# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A body decodes to the record that was encoded, to the last bit, or it is refused as corrupt."""

from __future__ import annotations

import os
import pickle
import struct
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from gym_objstore import codec
from gym_objstore.codec import FORMAT, INTERCHANGE, LIMIT, decode, encode, parse, unpack
from gym_objstore.digests import canonical_json, sha256_hex
from gym_objstore.errors import Corrupt, Invalid

VECTORS = Path(__file__).parent / "vectors"

NUMBERS: dict[str, Any] = {
    "": [],
    "ids": [0, 1, 255, 256, 65535, 65536, 4294967296, 9223372036854775808, 18446744073709551615],
    "log_probs": [
        0.0,
        -0.0,
        5e-324,
        -2.2250738585072014e-308,
        1e308,
        1.7976931348623157e308,
        0.1,
        0.3333333333333333,
        1e16,
        1e-7,
        1.2345678901234568e17,
    ],
    "mixed": [0, 0.0, 1, 1.0, True, False, None],
    "negative": [-1, -9223372036854775808],
    "nested": {"a": [[], {}, [[1.5]]]},
    "z": "",
    "é": "中",
}

TOKEN_IDS = st.integers(0, 151_935) | st.integers(0, 2**64 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LOG_PROBS = st.floats(max_value=0.0, width=32, allow_infinity=False) | FLOATS
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | FLOATS | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
COLUMNS = st.lists(TOKEN_IDS, max_size=30) | st.lists(LOG_PROBS | st.just(0), max_size=30)
RECORDS = st.dictionaries(st.text(max_size=8), VALUES | COLUMNS, max_size=6)


def body_of(record: dict[str, Any]) -> bytes:
    return encode(canonical_json(record))


def frame(content: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(content)


def frame_that_claims(size: int, block: bytes) -> bytes:
    """A zstd frame written by hand: one segment, no checksum, a content size of 8 bytes, one block."""
    return struct.pack("<IBQ", 0xFD2FB528, 0xE0, size) + block


def nested(levels: int) -> bytes:
    """An object whose value is nested so that the whole has this many levels."""
    return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def refusal(body: bytes, extension: str = FORMAT, **options: Any) -> Corrupt:
    with pytest.raises(Corrupt) as caught:
        decode(body, extension, **options)
    return caught.value


@given(RECORDS)
@example(NUMBERS)
@example({})
def test_every_record_comes_back_with_the_same_canonical_json(record: dict[str, Any]) -> None:
    canonical = canonical_json(record)
    body = encode(canonical)
    assert unpack(body, FORMAT) == canonical
    assert canonical_json(decode(body, FORMAT)) == canonical
    assert canonical_json(decode(canonical, INTERCHANGE)) == canonical


@given(st.lists(FLOATS, min_size=1))
@example([-0.0, 0.0, 5e-324, -5e-324, 1e308, 2.0**-149, 1.1754943508222875e-38])
def test_every_bit_of_every_float_survives(values: list[float]) -> None:
    found = decode(body_of({"values": values}), FORMAT)["values"]
    assert struct.pack(f"{len(values)}d", *found) == struct.pack(f"{len(values)}d", *values)


def test_integers_floats_and_booleans_stay_what_they_are() -> None:
    found = decode(body_of({"values": [0, 0.0, -0.0, 1, 1.0, True, False]}), FORMAT)["values"]
    assert repr(found) == "[0, 0.0, -0.0, 1, 1.0, True, False]"


def test_not_a_number_is_null_in_the_body_as_in_the_canonical_json() -> None:
    body = body_of({"log_probs": [float("nan"), float("inf"), -1.5]})
    assert decode(body, FORMAT) == {"log_probs": [None, None, -1.5]}


def test_the_interchange_form_is_the_canonical_json_itself() -> None:
    assert decode(b'{"a":[1,2.5],"b":"\xc3\xa9"}', "json") == {"a": [1, 2.5], "b": "é"}


@pytest.mark.parametrize("name", ["entry", "numbers"])
def test_a_body_of_the_first_release_holds_the_same_text_for_ever(name: str) -> None:
    text = (VECTORS / f"codec-{name}.json").read_bytes()
    assert unpack((VECTORS / f"codec-{name}.bin").read_bytes(), "zst") == text


def test_the_numbers_of_the_vector_are_read_exactly() -> None:
    assert repr(decode((VECTORS / "codec-numbers.bin").read_bytes(), "zst")) == repr(NUMBERS)


def test_the_identity_of_the_vector_is_the_hash_of_its_text() -> None:
    text = unpack((VECTORS / "codec-entry.bin").read_bytes(), "zst")
    assert sha256_hex(text) == "cb154ceaf68b6cf87773568e656cce5aa1db820849baf3844708bd313056f682"


def test_the_entry_of_the_vector_is_read_exactly() -> None:
    entry = decode((VECTORS / "codec-entry.bin").read_bytes(), "zst")
    assert entry["generation_token_ids"] == [151667, 198, 32313, 11, 358, 0, 1, 151668]
    assert repr(entry["generation_log_probs"]) == (
        "[-7.712543447269127e-05, -8.344646857949556e-07, -0.016941353678703308, -1.1920928244535389e-07, "
        "0.0, -0.0, -2.700000047683716, -11.25]"
    )
    assert entry["output_items"][0]["content"][0]["text"] == "café \U0001f600 \u0000 ]}"


def test_token_ids_take_less_than_half_the_room_of_their_text() -> None:
    record = {"prompt_token_ids": [(7919 * step) % 152_000 for step in range(8_192)]}
    assert len(body_of(record)) < len(canonical_json(record)) / 2


def test_threads_may_encode_and_decode_at_once() -> None:
    records = [{"ids": list(range(number, number + 3_000))} for number in range(64)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda one: decode(body_of(one), FORMAT), records)) == records


@pytest.mark.parametrize("name", ["entry", "numbers"])
def test_every_truncation_is_refused(name: str) -> None:
    for extension, suffix in ((FORMAT, "bin"), (INTERCHANGE, "json")):
        body = (VECTORS / f"codec-{name}.{suffix}").read_bytes()
        for size in range(len(body)):
            assert refusal(body[:size], extension).kind == "corrupt"


@pytest.mark.parametrize("name", ["entry", "numbers"])
def test_a_body_with_any_bit_altered_is_refused_or_still_the_same_text(name: str) -> None:
    """The checksum covers the text; a few bits around it mean nothing to zstd."""
    body = (VECTORS / f"codec-{name}.bin").read_bytes()
    text = (VECTORS / f"codec-{name}.json").read_bytes()
    refused = 0
    for position in range(8 * len(body)):
        altered = bytearray(body)
        altered[position // 8] ^= 1 << position % 8
        try:
            assert unpack(bytes(altered), FORMAT) == text
        except Corrupt:
            refused += 1
    assert refused > 0.99 * 8 * len(body)


def test_interchange_text_with_any_bit_altered_is_refused_or_has_another_identity() -> None:
    text = (VECTORS / "codec-numbers.json").read_bytes()
    for position in range(8 * len(text)):
        altered = bytearray(text)
        altered[position // 8] ^= 1 << position % 8
        try:
            decode(bytes(altered), INTERCHANGE)
        except Corrupt:
            continue
        assert sha256_hex(unpack(bytes(altered), INTERCHANGE)) != sha256_hex(text)


@given(st.binary())
@example(b"")
@example(b"\x28\xb5\x2f\xfd")
@example(b'{"a":1,}')
@example(b'{"a":1e999}')
@example(b'{"a":"\xff"}')
@example(b'{"a":"\\ud800"}')
@example(b'{"a":NaN}')
def test_foreign_bytes_are_refused_as_corrupt_in_every_format(body: bytes) -> None:
    for extension in (FORMAT, INTERCHANGE):
        assert refusal(body, extension).kind == "corrupt"


@given(st.binary())
def test_a_sound_frame_of_foreign_bytes_is_refused(content: bytes) -> None:
    assert refusal(frame(content)).kind == "corrupt"


@pytest.mark.parametrize(
    "text", [b"[1]", b"null", b'"{}"', b"1", b' {"a":1}', b'{"a":1}\n', b"{}{}", b"\xef\xbb\xbf{}"]
)
def test_text_that_is_more_or_other_than_one_object_is_refused(text: bytes) -> None:
    assert refusal(text, INTERCHANGE).kind == "corrupt"
    assert refusal(frame(text)).kind == "corrupt"


@pytest.mark.parametrize(
    "tail",
    [b"\0", b"\n", body_of({}), b"\x50\x2a\x4d\x18\x01\x00\x00\x00x"],
    ids=["zero", "newline", "second frame", "skippable frame"],
)
def test_bytes_after_the_frame_are_refused(tail: bytes) -> None:
    assert refusal(body_of({"a": 1}) + tail).kind == "corrupt"


def test_a_skippable_frame_before_the_text_is_refused() -> None:
    assert refusal(b"\x50\x2a\x4d\x18\x01\x00\x00\x00x" + body_of({"a": 1})).kind == "corrupt"


def test_a_frame_that_hides_its_size_is_refused() -> None:
    hidden = frame(b'{"a":1}', write_content_size=False)
    assert "does not say how long" in str(refusal(hidden))
    with pytest.raises(Corrupt, match="does not say how long"):
        unpack(frame_that_claims(0, b"\x01\0\0"), FORMAT)


def test_a_frame_with_less_or_more_than_it_claims_is_refused() -> None:
    raw_block_of_two = struct.pack("<I", 2 << 3 | 1)[:3] + b"{}"
    assert decode(frame_that_claims(2, raw_block_of_two), FORMAT) == {}
    assert refusal(frame_that_claims(3, raw_block_of_two)).kind == "corrupt"
    assert refusal(frame_that_claims(1, raw_block_of_two)).kind == "corrupt"
    run_of_131072 = struct.pack("<I", 131_072 << 3 | 1 << 1 | 1)[:3] + b"{"
    assert refusal(frame_that_claims(64, run_of_131072)).kind == "corrupt"


def test_a_bomb_is_refused_before_it_takes_memory() -> None:
    bomb = frame(b'{"a":"' + bytes(64 * 2**20) + b'"}')
    assert len(bomb) < 10_000
    tracemalloc.start()
    try:
        error = refusal(bomb, limit=2**20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert error.kind == "too_large"
    assert peak < 100_000


def test_no_text_parses_to_more_than_a_hundred_times_its_size() -> None:
    text = b'{"x":[' + b",".join([b"{}"] * 100_000) + b"]}"
    tracemalloc.start()
    try:
        parse(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(text)


def test_a_claim_above_the_limit_is_refused_whatever_follows() -> None:
    assert refusal(frame_that_claims(2**63, b"")).kind == "too_large"


@pytest.mark.parametrize("extension", [FORMAT, INTERCHANGE])
def test_the_limit_is_the_longest_text_that_is_read(extension: str) -> None:
    body = {FORMAT: body_of({"a": 1}), INTERCHANGE: b'{"a":1}'}[extension]
    assert decode(body, extension, limit=7) == {"a": 1}
    error = refusal(body, extension, limit=6)
    assert (error.kind, "bytes=7, limit=6" in str(error)) == ("too_large", True)


def test_what_no_reader_would_take_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LIMIT == 268_435_456
    monkeypatch.setattr(codec, "LIMIT", 7)
    assert encode(b'{"a":1}')
    with pytest.raises(Invalid, match="bytes=8, limit=7") as caught:
        encode(b'{"a":10}')
    assert caught.value.kind == "too_large"


@pytest.mark.parametrize("wrap", [lambda text: (text, INTERCHANGE), lambda text: (frame(text), FORMAT)])
def test_nesting_is_read_as_deep_as_it_can_be_written_and_no_deeper(wrap: Any) -> None:
    assert canonical_json(decode(*wrap(nested(254)))) == nested(254)
    for levels in (255, 1_024, 1_025, 100_000):
        assert "254 levels" in str(refusal(*wrap(nested(levels))))


def test_many_shallow_values_are_not_mistaken_for_deep_ones() -> None:
    record = {"items": [{"a": [number]} for number in range(1_000)]}
    assert decode(body_of(record), FORMAT) == record


@pytest.mark.parametrize("extension", ["", "zst2", "col1", "ZST", "gz"])
def test_a_format_of_another_version_is_told_apart_from_damage(extension: str) -> None:
    error = refusal(b"anything", extension)
    assert (error.kind, error.hint) == ("newer_format", "upgrade gym_objstore")
    assert f"format='{extension}'" in str(error)


def test_a_refusal_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(refusal(b"")))
    assert (type(error), error.kind) == (Corrupt, "corrupt")


def test_incompressible_text_costs_a_few_bytes_only() -> None:
    text = b'{"a":"' + os.urandom(30_000).hex().encode() + b'"}'
    assert len(encode(text)) < len(text) + 32


def test_parse_reads_what_unpack_returns() -> None:
    assert parse(unpack(body_of({"a": [1]}), FORMAT)) == {"a": [1]}


def test_a_damaged_body_spoils_no_later_one() -> None:
    good = body_of({"a": list(range(1_000))})
    for damaged in (good[:-1], good[:20] + bytes([good[20] ^ 1]) + good[21:], good + b"x"):
        refusal(damaged)
        assert decode(good, FORMAT) == {"a": list(range(1_000))}


def test_threads_pack_and_read_at_the_same_time() -> None:
    records = [{"a": [number] * 2_000} for number in range(40)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda record: decode(body_of(record), FORMAT), records)) == records


def test_a_machine_without_memory_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both libraries report it as they report damage; a healthy entry would be masked and then retired."""

    def starved(text: bytes) -> Any:
        raise orjson.JSONDecodeError("Not enough memory to allocate buffer for parsing", "", 0)

    monkeypatch.setattr(codec, "orjson", SimpleNamespace(loads=starved, JSONDecodeError=orjson.JSONDecodeError))
    with pytest.raises(MemoryError):
        parse(b"{}")
    body = body_of({"a": [1]})

    class Starved:
        def decompress(self, body: bytes, **how: Any) -> bytes:
            raise zstandard.ZstdError("decompression error: Allocation error : not enough memory")

    monkeypatch.setattr(codec.contexts, "decompressor", Starved())
    with pytest.raises(MemoryError):
        unpack(body, FORMAT)
