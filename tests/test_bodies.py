# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Compressed bodies are read, in pieces or whole, and cannot exhaust memory."""

from __future__ import annotations

import gzip
import zlib
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_objstore.bodies import Inflater, inflate
from tests import model_traffic as traffic

TEXT = b'{"answer": "' + b"yes " * 50 + b'"}'
zipped = partial(gzip.compress, mtime=0)  # a time in the bytes would give each test run other test names
BARE = zlib.compress(TEXT)[2:-4]


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (TEXT, ""),
        (TEXT, "identity"),
        (zipped(TEXT), "gzip"),
        (zipped(TEXT), " X-GZip "),
        (zipped(TEXT[:20]) + zipped(TEXT[20:]), "gzip"),
        (zlib.compress(TEXT), "deflate"),
        (BARE, "deflate"),
    ],
)
def test_a_body_is_undone(body: bytes, encoding: str) -> None:
    assert inflate(body, encoding) == TEXT


@pytest.mark.parametrize("encoding", ["", "gzip", "deflate"])
def test_an_empty_body_stays_empty(encoding: str) -> None:
    assert inflate(b"", encoding) == b""


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (TEXT, "br"),
        (TEXT, "gzip, gzip"),
        (TEXT, "gzip"),
        (zipped(TEXT)[:-3], "gzip"),
        (zipped(TEXT) + b"trailing", "gzip"),
        (zipped(TEXT)[:40] + b"\x00" * 40, "gzip"),
    ],
)
def test_a_body_that_cannot_be_undone_completely_is_none(body: bytes, encoding: str) -> None:
    assert inflate(body, encoding) is None


def test_a_body_may_unpack_to_its_limit_and_not_to_more() -> None:
    bomb = zipped(bytes(1000))
    assert inflate(bomb, "gzip", limit=1000) == bytes(1000)
    assert inflate(bomb, "gzip", limit=999) is None
    assert inflate(zipped(bytes(600)) * 2, "gzip", limit=1000) is None


def test_a_broken_body_gives_nothing_more() -> None:
    inflater = Inflater("gzip")
    assert inflater.push(b"no gzip") == b""
    assert inflater.broken
    assert inflater.push(zipped(TEXT)) == b""
    assert not inflater.complete


@given(st.data(), st.sampled_from(["gzip", "deflate", ""]))
def test_pieces_give_what_the_whole_gives(data: st.DataObject, encoding: str) -> None:
    body = {"gzip": zipped(TEXT) * 2, "deflate": zlib.compress(TEXT), "": TEXT}[encoding]
    inflater = Inflater(encoding)
    plain = b"".join(inflater.push(chunk) for chunk in data.draw(traffic.cut(body)))
    assert inflater.complete
    assert plain == inflate(body, encoding)


@given(st.binary(max_size=40), st.sampled_from(["gzip", "deflate"]))
def test_no_bytes_raise(body: bytes, encoding: str) -> None:
    assert inflate(body, encoding) is None or body == b"" or Inflater(encoding).push(body) is not None
