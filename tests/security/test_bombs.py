# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever an object, a body or a request claims, reading it takes bounded memory.

Each reader plays in a process that may take ``ROOM`` more than it had, C libraries' memory included. What a process
must hold of a text below the limit is in ``test_codec``; of a run of any size in ``test_usage`` and ``test_sweeping``.
"""

from __future__ import annotations

import resource
import struct
import subprocess
import sys
import threading
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import orjson
import pytest
import zstandard

from gym_objstore import captures, codec, objects, packs, staged_attachments, staged_rows
from gym_objstore.bodies import inflate
from gym_objstore.control_routes import BODY_LIMIT, control_app
from gym_objstore.digests import sha256_hex
from gym_objstore.errors import Corrupt, Invalid
from gym_objstore.flow import run
from gym_objstore.keys import StagingKey, capture_key, pack_key
from gym_objstore.names import CaptureName, EntryName, PackName, StagedName
from gym_objstore.receipts import unpack_receipt
from gym_objstore.sse import EventStream
from gym_objstore.store.memory import MemoryStore
from gym_objstore.tokens import freeze, put_entry
from tests.entries import make_chain

ROOM = 160 * 2**20
DIGEST = "0" * 64
NAME = EntryName("c", "full", "none", DIGEST, "zst")
TOKEN = "a-token"


@cache
def bomb() -> bytes:
    """A sound frame of some 25 kB that unpacks to a byte more than any reader takes."""
    size = codec.LIMIT + 1
    packing = zstandard.ZstdCompressor(level=1).compressobj(size=size)
    block = bytes(2**20)
    return b"".join(
        [*(packing.compress(block) for _ in range(size // len(block))), packing.compress(b"\x00"), packing.flush()]
    )


def wide(window: int, text: bytes = b"{}") -> bytes:
    """A frame that asks for a window of two to the power of ``window`` bytes, for a text of two."""
    block = struct.pack("<I", len(text) << 3 | 1)[:3] + text
    return b"\x28\xb5\x2f\xfd" + bytes([0x80, (window - 10) << 3]) + struct.pack("<I", len(text)) + block


@cache
def gzip_bomb() -> bytes:
    packing = zlib.compressobj(1, wbits=31)
    return b"".join([*(packing.compress(bytes(2**20)) for _ in range(200)), packing.flush()])


def read_entry(body):
    return codec.unpack(body, codec.FORMAT)


def read_row(body):
    key = StagingKey("r", StagedName("c", sha256_hex(body), len(body), 0, "r1"))
    return staged_rows.unpack_snapshot(key, body)


def read_extras(body):
    record = codec.encode(struct.pack("<I", 2) + b"{}")
    key = StagingKey("r", StagedName("c", sha256_hex(record), len(record), len(body), "r1"))
    return staged_rows.unpack_extras(key, record + body, DIGEST)


def read_capture(body):
    store, name = MemoryStore(), CaptureName("0" * 16, "c", DIGEST, "zst")
    store.put(capture_key("captures/run/r/", name), body)
    (stored,) = run(captures.read_some("run", "r", [name]), store)
    return captures.record_of(stored)


def read_pack(body):
    """Read a rollout whose pack is a bomb: the entries themselves are taken."""
    store = MemoryStore()
    for entry in make_chain("r", 2):
        run(put_entry("run", entry), store)
    frozen = run(freeze("run", "r"), store)
    store.put(pack_key("tokens/run/r/", PackName(frozen.snapshot_id, DIGEST, "zst")), body)
    assert run(freeze("run", "r"), store).entries == frozen.entries
    assert packs._unpack(PackName(frozen.snapshot_id, DIGEST, "zst"), [NAME], lambda name, text: text, body) is None
    raise Corrupt("the pack was not believed")


READERS = {
    "an entry": read_entry,
    "a staged row": read_row,
    "its extras": read_extras,
    "a capture": read_capture,
    "a pack": read_pack,
}


def refuse_bombs() -> None:
    """Have every reader refuse every bomb; anything else ends the process."""
    for read in READERS.values():
        for body in (bomb(), b"\x28\xb5\x2f\xfd\xff" * 9):
            with pytest.raises(Corrupt):
                read(body)
    for window in (27, 31):
        assert read_entry(wide(window)) == b"{}"  # a window that nobody needs costs nothing


def inflate_bomb() -> None:
    assert inflate(gzip_bomb(), "gzip", limit=2**20) is None


def follow_endless_line() -> None:
    """Follow a stream whose line never ends, as the proxy does, which keeps no response."""
    stream = EventStream("chat", limit=0)
    for _ in range(200):
        assert len(stream.push(b"data: " + b"x" * 2**20)) > 0
    assert stream.finish().response is None


CASES = {"objects": refuse_bombs, "gzip": inflate_bomb, "an event stream": follow_endless_line}


PREPARED = {"objects": bomb, "gzip": gzip_bomb}


def main() -> None:
    """Run one case with little memory left."""
    what = sys.argv[1]
    PREPARED.get(what, int)()
    threading.Thread(target=int).start()  # the stacks of threads are no news later
    taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, taken + ROOM))
    CASES[what]()


@pytest.mark.parametrize("what", CASES)
def test_a_bomb_is_refused_in_little_memory(what):
    command = [sys.executable, "-m", "tests.security.test_bombs", what]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr[-2000:]) == (0, "")


@pytest.mark.parametrize("text", [b"[" * 2_000_000, b'{"a":' * 500_000, b"[" * 500_000 + b"]" * 500_000])
def test_deep_nesting_is_refused_by_every_reader_of_json(text):
    wrapped = b'{"format":1,"x":' + text + b"}"
    for read in (codec.parse, objects.read_object, lambda body: unpack_receipt("r", sha256_hex(body), body)):
        for body in (text, wrapped):
            with pytest.raises(Corrupt):
                read(body)


class NoLedger:
    async def manifest(self, rollout_id):
        raise AssertionError

    retire = delete = manifest


async def answer_to(body: bytes, *, authorized: bool = True, chunk: int = 2**16):
    """Return the status of a removal with this body, and how much of it was taken."""
    sent, taken = [], 0

    async def receive():
        nonlocal taken
        part = body[taken : taken + chunk]
        taken += len(part)
        return {"type": "http.request", "body": part, "more_body": taken < len(body)}

    async def send(message):
        sent.append(message)

    headers = [(b"authorization", f"Bearer {TOKEN}".encode())] if authorized else []
    path = "/training-token-capture/control/rollouts/retire"
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    await control_app(NoLedger(), token=TOKEN)(scope, receive, send)
    return sent[0]["status"], taken


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * BODY_LIMIT, 422),
        (b'{"rollout_ids":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", 422),
        (b'{"rollout_ids":[' + b",".join([b"[]"] * 1_000_000) + b"]}", 422),
        (b'{"rollout_ids":[' + b",".join([b'"r"'] * 4_097) + b"]}", 422),
        (b'{"rollout_ids":["' + b"r" * 1_001 + b'"]}', 400),
        (b" " * (BODY_LIMIT + 1), 413),
    ],
)
async def test_a_control_request_is_bounded_in_bytes_depth_count_and_length(body, status):
    assert (await answer_to(body))[0] == status


async def test_nothing_of_a_body_is_taken_from_who_has_no_token():
    assert await answer_to(b" " * 10_000_000, authorized=False) == (401, 0)


async def test_no_more_than_the_limit_is_taken_of_an_endless_body():
    status, taken = await answer_to(b" " * (4 * BODY_LIMIT))
    assert (status, taken) == (413, BODY_LIMIT + 2**16)


@pytest.mark.parametrize("shape", [["x", 2**33], [[0], 2**33], [-1], [1.0], "x"])
def test_a_shape_that_is_none_is_refused_before_it_is_multiplied(shape):
    container = staged_attachments.pack({"x": np.zeros(1, dtype=np.float32)})
    header = orjson.loads(container.header[8:])
    (origin,) = orjson.loads(header["__metadata__"]["gym_objstore"])
    header["__metadata__"]["gym_objstore"] = orjson.dumps([{**origin, "shape": shape}]).decode()
    text = orjson.dumps(header)
    whole = struct.pack("<Q", len(text)) + text
    with pytest.raises(Corrupt, match="has no shape"):
        staged_attachments.unpack(whole + b"".join(container.buffers), len(whole), sha256_hex(whole))


def test_a_record_too_long_to_be_read_is_never_written():
    with pytest.raises(Invalid) as refused:
        codec.encode(bytes(codec.LIMIT + 1))
    assert refused.value.kind == "too_large"


if __name__ == "__main__":
    main()
