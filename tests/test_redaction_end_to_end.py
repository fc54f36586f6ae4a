# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a redaction removes reaches neither the bucket nor the spill nor any log, wherever in a record it was."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import random
from collections.abc import Iterator

import pytest

from gym_objstore import CaptureStore
from gym_objstore.codec import FORMAT, unpack
from gym_objstore.errors import Invalid, ObjstoreError, Unavailable
from gym_objstore.middleware import CaptureMiddleware
from gym_objstore.redaction import redaction
from gym_objstore.testing.wrapping import WrappedStore
from tests.asgi_calls import DONE, EVENTS, Played, body, start
from tests.places import place_of

KEY, NAMED, ADDRESS = "sk-proj-abcdefghijklmnop", "hunter2-is-my-secret", "ada.lovelace@example.org"
MEDIA = base64.b64encode(random.Random(3).randbytes(600)).decode()
SECRETS = (KEY, NAMED, ADDRESS, MEDIA)
TEXT = f"use {KEY}, password: {NAMED}, write to {ADDRESS}, see data:image/png;base64,{MEDIA} end"
OBJECT = {"note": [TEXT, {"deep": TEXT}], "api_key": NAMED, f"name {ADDRESS}": 1, "json": json.dumps({"x": TEXT})}

PLACES = {
    "a message of the request": {"request": {"messages": [{"role": "user", "content": TEXT}]}},
    "a tool call's arguments": {
        "response": {"choices": [{"message": {"tool_calls": [{"function": {"arguments": json.dumps(OBJECT)}}]}}]}
    },
    "names and values at any depth": {"request": {"metadata": OBJECT}, "response": {"output": [OBJECT]}},
    "reasoning": {"response": {"output": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": TEXT}]}]}},
    "a request that is no JSON": {"request": None, "request_raw": TEXT},
    "a response that is no JSON": {"response": None, "response_raw": json.dumps(OBJECT)[:-1]},
    "escaped text that is no JSON": {"request_raw": "".join(f"\\u{ord(one):04x}" for one in f"{KEY} {ADDRESS}")},
    "a stream": {"response": {"x": 1}, "response_raw": f"data: {json.dumps({'delta': TEXT})}\n\n"},
    "a stream that was not reassembled": {
        "response": None,
        "response_raw": f"data: {TEXT[:30]}\n\ndata: {TEXT[30:]}\n",
    },
    "bytes that are no text": {"request_base64": base64.b64encode(TEXT.encode()).decode()},
    "the client's session": {"client_session_id": TEXT},
    "what the model server noted": {"local_response_reason": TEXT, "error_category": TEXT},
    "a field of a later version": {"added_later": OBJECT, f"named after {ADDRESS}": True},
}


class Down(WrappedStore):
    """A store that takes nothing, and says so in words of its own."""

    def put(self, key, body):
        raise Unavailable("the store is gone", key=key)

    async def put_async(self, key, body):
        self.put(key, body)


class Slow(WrappedStore):
    """A store that never answers."""

    async def put_async(self, key, body):
        await asyncio.sleep(3_600)


@pytest.fixture
def place(request):
    return place_of("file", request)


@pytest.fixture
def store(place) -> CaptureStore:
    return CaptureStore(**place, redact=redaction("keys", "emails", "media"))


@pytest.fixture(autouse=True)
def every_log(caplog) -> None:
    caplog.set_level(logging.DEBUG)


def texts(folder) -> Iterator[str]:
    """Yield all that is stored below a folder, names too, decoded as far as it is encoded."""
    for path in sorted(folder.rglob("*")):
        yield path.name
        if path.is_file():
            body = path.read_bytes()
            head, _, rest = body.partition(b"\n")
            yield body.decode("utf-8", "replace")
            for one in (body, rest) if b".zst" in head or path.name.endswith(FORMAT) else ():
                if one.startswith(b"\x28\xb5\x2f\xfd"):
                    yield unpack(one, FORMAT).decode()


def logged(caplog) -> Iterator[str]:
    for record in caplog.records:
        yield record.getMessage()
        yield repr(vars(record))


def require_clean(*found: str) -> None:
    for text in found:
        for secret in SECRETS:
            assert secret not in text
            assert base64.b64encode(secret.encode()).decode()[:-4] not in text


def record_of(where: str) -> dict:
    return {"model_call_id": "c1", "dialect": "chat", "completed_at": 5.0, "marker": "kept", **PLACES[where]}


@pytest.mark.parametrize("where", PLACES)
def test_it_reaches_neither_bucket_nor_log(store, where, tmp_path, caplog):
    store.record("0-0", record_of(where))
    found = list(texts(tmp_path))
    assert any('"marker":"kept"' in text for text in found)
    require_clean(*found, *logged(caplog), repr(store.read("0-0")))


@pytest.mark.parametrize("where", PLACES)
def test_it_reaches_no_spill_when_the_store_is_down(store, where, tmp_path, caplog):
    store.connection.store = Down(store.connection.store)
    with pytest.raises(Unavailable) as raised:
        store.record("0-0", record_of(where))
    found = list(texts(tmp_path / "spill"))
    assert any('"marker":"kept"' in text for text in found)
    require_clean(*found, *logged(caplog), repr(raised.value), str(raised.value))


@pytest.mark.parametrize("broken", [Down, Slow])
async def test_it_reaches_no_spill_from_an_event_loop_either(store, broken, tmp_path, caplog):
    working = store.connection.store
    store.connection.store = broken(working)
    for where in PLACES:
        with pytest.raises(ObjstoreError) as raised:
            await store.record_async("0-0", record_of(where), within=0.05)
        require_clean(repr(raised.value))
    found = list(texts(tmp_path / "spill"))
    assert sum('"marker":"kept"' in text for text in found) == len(PLACES)
    require_clean(*found, *logged(caplog))
    store.connection.store = working
    await store.close()


async def test_a_cancelled_call_whose_write_fails_says_nothing_of_it(store, tmp_path, caplog):
    working = store.connection.store
    store.connection.store = Down(working)
    task = asyncio.create_task(store.record_async("0-0", record_of("reasoning")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.drain("0-0")
    require_clean(*texts(tmp_path), *logged(caplog))
    store.connection.store = working
    await store.close()


HEADERS = [(b"authorization", f"Bearer {KEY}".encode()), (b"x-session-id", TEXT.encode()), (b"cookie", NAMED.encode())]
SAID = json.dumps({"choices": [{"message": {"role": "assistant", "content": TEXT}}]}).encode()
CHUNKS = [
    b"data: " + json.dumps({"choices": [{"delta": {"content": TEXT[at : at + 9]}}]}).encode() + b"\n\n"
    for at in range(0, 900, 9)
]
ANSWERS = {
    "JSON": [start(), body(SAID, more=False)],
    "text": [start(status=500), body(TEXT.encode(), more=False)],
    "a stream": [start(EVENTS), *map(body, CHUNKS), body(DONE, more=False)],
    "a stream that ends early": [start(EVENTS), *map(body, CHUNKS), body(b"", more=False)],
    "an exception": [ValueError(TEXT)],
}


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("answer", ANSWERS)
async def test_it_gets_through_no_model_server_whose_calls_are_captured(store, answer, down, tmp_path, caplog):
    working = store.connection.store
    if down:
        store.connection.store = Down(working)
    request = {"type": "http.request", "body": json.dumps({"messages": [{"role": "user", "content": TEXT}]}).encode()}
    played = Played(*ANSWERS[answer], client=[request])
    played.middleware = CaptureMiddleware(played.app, store)
    with contextlib.suppress(ValueError):
        await played.run(headers=HEADERS)
    await store.drain("0-0")
    found = list(texts(tmp_path))
    assert any('"dialect":"chat"' in text for text in found)
    require_clean(*found, *logged(caplog))
    store.connection.store = working
    await store.close()


def test_a_hook_that_fails_stores_nothing_and_its_words_are_not_repeated(place, tmp_path, caplog):
    def hook(record):
        raise ValueError(f"cannot look into {TEXT}")

    store = CaptureStore(**place, redact=hook)
    with pytest.raises(Invalid, match="the redaction failed") as raised:
        store.record("0-0", record_of("reasoning"))
    assert raised.value.__cause__ is None
    assert not list((tmp_path / "store").rglob("*/records/*"))
    require_clean(*texts(tmp_path), *logged(caplog), repr(raised.value))


def test_without_a_redaction_everything_is_stored_as_it_is(place, tmp_path):
    """The search above would find what it looks for."""
    CaptureStore(**place).record("0-0", record_of("a message of the request"))
    found = "".join(texts(tmp_path))
    assert all(secret in found for secret in SECRETS)
