# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What waits of a plain stream, of a compressed one, and of no stream; ``test_sse_fuzz`` has it for any bytes."""

from __future__ import annotations

import gzip

import pytest

from gym_objstore.middleware_watch import Watch
from tests.asgi_calls import DONE, HELLO


def test_a_plain_stream_waits_to_the_byte():
    watch = Watch("chat", streamed=True)
    assert watch.push(HELLO + DONE) == HELLO
    assert (watch.holding, watch.terminal, watch.waiting) == (True, "complete", len(DONE))
    assert watch.release() == DONE
    assert (watch.holding, watch.waiting) == (False, 0)


def test_a_compressed_stream_waits_from_the_chunk_of_its_end_on():
    first, last, after = gzip.compress(HELLO), gzip.compress(HELLO + DONE), b"anything"
    watch = Watch("chat", "gzip", streamed=True)
    assert [watch.push(first), watch.push(last), watch.push(after)] == [first, b"", b""]
    assert (watch.terminal, watch.waiting) == ("complete", len(last + after))
    assert watch.release() == last + after


def test_of_what_is_no_stream_nothing_waits():
    watch = Watch("chat")
    assert watch.push(DONE) is DONE
    assert (watch.holding, watch.terminal, watch.release()) == (False, None, b"")


@pytest.mark.parametrize(
    ("encoding", "chunk", "speaking"),
    [
        ("", b": keep-alive\n\n", False),
        ("", HELLO, True),
        ("gzip", gzip.compress(b": keep-alive\n\n", mtime=0), False),
        ("gzip", gzip.compress(HELLO, mtime=0)[:10], False),
        ("gzip", gzip.compress(HELLO, mtime=0), True),
        ("br", b"\x8b", True),
    ],
)
def test_speaking_begins_with_more_than_a_comment(encoding, chunk, speaking):
    watch = Watch("chat", encoding, streamed=True)
    watch.push(chunk)
    assert watch.speaking is speaking
