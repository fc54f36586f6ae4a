# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The control client against our routes over real sockets, and against servers that misbehave."""

from __future__ import annotations

import asyncio
import builtins
import copy
import json
import logging
import pickle
import socket
import traceback
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from gym_objstore.control_client import RolloutControlClient
from gym_objstore.control_routes import control_app
from gym_objstore.errors import Conflict, Corrupt, Denied, Invalid, Retired, Unavailable, Unusable
from gym_objstore.ledgers import CaptureLedger
from gym_objstore.testing.staged_rollouts import ledger_row, staged_call
from gym_objstore.wire_ledger import CaptureLedgerCommit, ManifestFailure, RolloutManifest, RolloutRemoval
from tests.places import place_of
from tests.web_servers import answering, serving

TOKEN = "correct-horse"
EMPTY = {"rollout_id": "r1", "records": [], "failures": []}


@pytest.fixture
def ledger(request):
    return CaptureLedger(**place_of("memory", request))


@pytest.fixture
def url(ledger):
    with serving(control_app(ledger, token=TOKEN)) as found:
        yield found


class Scripted:
    """An ASGI application that gives its answers in turn, the last one for ever, and remembers what it was sent.

    An answer is a status, its JSON or bytes, and headers.
    """

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            raise NotImplementedError
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.asked.append((scope["method"], scope["path"], json.loads(body) if body else None))
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        status, said, headers = (*answer, {})[:3]
        raw = said if isinstance(said, bytes) else json.dumps(said).encode()
        sent = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": raw})


class Mirror(Scripted):
    """Reports every second rollout as removed."""

    async def __call__(self, scope, receive, send):
        async def answered(message):
            if "body" in message:
                ids = self.asked[-1][2]["rollout_ids"]
                message = {**message, "body": json.dumps({"removed": ids[::2], "absent": ids[1::2]}).encode()}
            await send(message)

        await super().__call__(scope, receive, answered)


@contextmanager
def client_of(app, **options):
    with serving(app) as url:
        yield RolloutControlClient(url, TOKEN, **{"timeout": 30, "retry_seconds": 30, **options})


async def record(ledger, call):
    row = ledger_row(call)
    await ledger.record(
        CaptureLedgerCommit(rollout_id=call.rollout_id, record=row, request_items=(), response_items=())
    )
    return row


# --- with our own routes -----------------------------------------------------------------------------------


async def test_a_manifest_arrives_as_the_record_it_is(ledger, url):
    row = await record(ledger, staged_call("c1", rollout_id="r1"))
    await ledger.record_failure("r1", "c2", "worker_capture_failed")
    failure = ManifestFailure(model_call_id="c2", reason="worker_capture_failed")
    async with RolloutControlClient(url, TOKEN) as client:
        assert await client.manifest("r1") == RolloutManifest(rollout_id="r1", records=(row,), failures=(failure,))
        assert await client.manifest("r2") == RolloutManifest(rollout_id="r2")


async def test_retired_deleted_and_new_again(ledger, url):
    await ledger.record_failure("r1", "c1", "worker_capture_failed")
    async with RolloutControlClient(url, TOKEN) as client:
        assert await client.retire(["r1", "r2", "r1"]) == RolloutRemoval(removed=("r1",), absent=("r2",))
        with pytest.raises(Retired) as caught:
            await client.manifest("r1")
        assert (caught.value.kind, caught.value.key) == ("retired", "/rollouts/r1/manifest")
        assert await client.retire(["r1"]) == RolloutRemoval(absent=("r1",))
        assert await client.delete(("r1", "r2")) == RolloutRemoval(removed=("r1", "r2"))
        assert (await client.manifest("r1")).failures == ()


async def test_a_wrong_token_is_denied(url):
    async with RolloutControlClient(url, "wrong") as client:
        for ask in (client.manifest("r1"), client.retire(["r1"]), client.delete(["r1"])):
            with pytest.raises(Denied) as caught:
                await ask
            assert caught.value.kind == "bad_token"


async def test_a_refused_removal_is_a_conflict_and_is_not_repeated(ledger):
    refusals = []

    def refuse():
        refusals.append(1)
        return "a checkpoint is open"

    with client_of(control_app(ledger, token=TOKEN, refuse=refuse)) as client:
        with pytest.raises(Conflict, match="a checkpoint is open") as caught:
            await client.retire(["r1"])
        await client.close()
    assert (caught.value.kind, len(refusals)) == ("removal_refused", 1)


class Failing:
    def __init__(self, error):
        self.error, self.asked = error, 0

    async def manifest(self, rollout_id):
        self.asked += 1
        raise self.error

    retire = delete = manifest


@pytest.mark.parametrize("error", [Corrupt("not JSON", kind="not_json"), Denied("refused", kind="access_denied")])
async def test_what_a_repetition_cannot_change_is_not_repeated(error):
    failing = Failing(error)
    with client_of(control_app(failing, token=TOKEN)) as client:
        with pytest.raises(type(error)) as caught:
            await client.manifest("r1")
        await client.close()
    assert (caught.value.kind, failing.asked) == (error.kind, 1)


async def test_a_storage_that_does_not_answer_is_unavailable_when_the_budget_is_spent():
    with client_of(control_app(Failing(Unavailable("no answer", kind="timeout")), token=TOKEN), retry_seconds=0) as one:
        with pytest.raises(Unavailable, match=r"no answer.*operation=GET, attempts=1") as caught:
            await one.manifest("r1")
        await one.close()
    assert (caught.value.kind, caught.value.key) == ("timeout", "/rollouts/r1/manifest")


def test_one_client_serves_many_loops_and_many_tasks(ledger, url):
    client = RolloutControlClient(url, TOKEN)

    async def read_many():
        found = await asyncio.gather(*(client.manifest(f"r{n}") for n in range(100)))
        return [one.rollout_id for one in found]

    for _ in range(2):
        assert asyncio.run(read_many()) == [f"r{n}" for n in range(100)]


async def test_a_client_may_be_closed_twice_and_used_again(url):
    client = RolloutControlClient(f"{url}/", TOKEN)
    await client.close()
    await client.manifest("r1")
    await client.close()
    await client.close()
    assert (await client.manifest("r1")).rollout_id == "r1"
    await client.close()


# --- what is sent ------------------------------------------------------------------------------------------

BAD_IDS = [
    "",
    ".",
    "..",
    "../rollouts/r1",
    "a/b",
    "a b",
    "ü",
    "a%2fb",
    "a\x00",
    "r1\n",
    "\ud800",
    "a" * 1001,
    None,
    7,
    b"r1",
]


@pytest.mark.parametrize("bad", BAD_IDS)
async def test_a_bad_id_anywhere_is_refused_before_anything_is_sent(bad):
    stub = Mirror((200, EMPTY))
    with client_of(stub) as client:
        for ask in (
            client.manifest(bad),
            client.retire([*(f"r{n}" for n in range(5000)), bad]),
            client.delete(one for one in ["r1", bad]),
        ):
            with pytest.raises(Invalid) as caught:
                await ask
            assert caught.value.kind == "bad_id"
    assert stub.asked == []


@pytest.mark.parametrize("bare", ["r1", b"r1"])
async def test_a_bare_string_is_no_list_of_ids(bare):
    client = RolloutControlClient("http://localhost:1", TOKEN)
    with pytest.raises(TypeError, match="must be a list of ids"):
        await client.retire(bare)
    with pytest.raises(TypeError, match="must be a list of ids"):
        await client.delete(bare)


@pytest.mark.parametrize("operation", ["retire", "delete"])
async def test_a_long_list_is_split_and_each_id_is_sent_once(operation):
    ids, stub = [f"r{n}" for n in range(9000)], Mirror((200, b""))
    with client_of(stub) as client:
        found = await getattr(client, operation)([*ids, "r0", "r8999"])
        await client.close()
    path = f"/training-token-capture/control/rollouts/{operation}"
    assert stub.asked == [
        ("POST", path, {"rollout_ids": ids[:4096]}),
        ("POST", path, {"rollout_ids": ids[4096:8192]}),
        ("POST", path, {"rollout_ids": ids[8192:]}),
    ]
    assert (len(found.removed), len(found.absent), len({*found.removed, *found.absent})) == (4500, 4500, 9000)


async def test_an_empty_list_asks_nobody():
    assert await RolloutControlClient("http://localhost:1", TOKEN).retire([]) == RolloutRemoval()


async def test_the_path_of_the_address_is_kept():
    stub = Scripted((200, EMPTY))
    with serving(stub) as url:
        async with RolloutControlClient(f"{url}/models/policy//", TOKEN) as client:
            await client.manifest("r1")
    assert stub.asked == [("GET", "/models/policy/training-token-capture/control/rollouts/r1/manifest", None)]


# --- what is believed --------------------------------------------------------------------------------------

ROW = ledger_row(staged_call("c1", rollout_id="r1")).model_dump(mode="json")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        {**EMPTY, "schema_version": 3},
        {**EMPTY, "schema_version": 1},
        {**EMPTY, "new": 1},
        {**EMPTY, "rollout_id": None},
        {**EMPTY, "records": [{**ROW, "new": 1}]},
        {**EMPTY, "records": [{**ROW, "schema_version": 3}]},
        {**EMPTY, "records": [{**ROW, "cum_len": 5}]},
        {**EMPTY, "records": [{**ROW, "chain_hash": None}]},
        {**EMPTY, "records": [None]},
        {**EMPTY, "failures": [{"model_call_id": "c1"}]},
        b'{"rollout_id":"r1","records":[NaN]}',
    ],
)
async def test_an_answer_that_is_no_manifest_is_corrupt(answer):
    stub = Scripted((200, answer))
    with client_of(stub) as client:
        with pytest.raises(Corrupt) as caught:
            await client.manifest("r1")
        await client.close()
    assert (caught.value.kind, len(stub.asked)) == ("invalid_manifest_row", 1)


@pytest.mark.parametrize("found", ["r2", "R1", "r1-a1", "r10"])
async def test_another_rollouts_manifest_is_corrupt(found):
    with client_of(Scripted((200, {**EMPTY, "rollout_id": found}))) as client:
        with pytest.raises(Corrupt, match=f"asked=r1, found='{found}'") as caught:
            await client.manifest("r1")
        await client.close()
    assert caught.value.kind == "misplaced"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", "bad_removal"),
        ([], "bad_removal"),
        ({"removed": "r1"}, "bad_removal"),
        ({"removed": ["r1"], "absent": ["r2"], "new": 1}, "bad_removal"),
        ({}, "misplaced"),
        ({"removed": ["r1"]}, "misplaced"),
        ({"removed": ["r1", "r2"], "absent": ["r2"]}, "misplaced"),
        ({"removed": ["r1"], "absent": ["r3"]}, "misplaced"),
    ],
)
async def test_an_answer_about_other_rollouts_than_asked_is_corrupt(answer, kind):
    with client_of(Scripted((200, answer))) as client:
        with pytest.raises(Corrupt) as caught:
            await client.retire(["r1", "r2"])
        await client.close()
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("status", "said", "error", "kind"),
    [
        (400, {"detail": "Invalid rollout id"}, Invalid, "refused"),
        (401, {"detail": "missing or invalid"}, Denied, "bad_token"),
        (403, b"<html>", Denied, "access_denied"),
        (404, {"detail": "Not Found"}, Invalid, "no_route"),
        (405, {"detail": "Method Not Allowed"}, Invalid, "no_route"),
        (409, {"detail": "busy"}, Conflict, "removal_refused"),
        (410, {"detail": "retired"}, Retired, "retired"),
        (413, b"", Invalid, "too_large"),
        (422, {"detail": [{"loc": ["body"], "msg": "too short"}]}, Invalid, "refused"),
        (418, {"detail": "teapot", "kind": 7}, Invalid, "no_route"),
        (202, EMPTY, Invalid, "no_route"),
        (204, b"", Invalid, "no_route"),
        (307, b"", Invalid, "no_route"),
        (500, {"detail": "d", "error": "corrupt", "kind": "digest"}, Corrupt, "digest"),
    ],
)
async def test_a_refusal_is_the_error_that_it_means_and_is_not_repeated(status, said, error, kind):
    stub = Scripted((status, said, {"location": "/elsewhere"}))
    with client_of(stub) as client:
        with pytest.raises(error) as caught:
            await client.manifest("r1")
        await client.close()
    assert (type(caught.value), caught.value.kind, len(stub.asked)) == (error, kind, 1)
    assert f"status={status}" in str(caught.value)


# --- servers that are not well -----------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 529])
async def test_a_failing_server_is_asked_again(status):
    stub = Scripted((status, b"busy"), (status, {"detail": "busy"}), (200, EMPTY))
    with client_of(stub) as client:
        assert await client.manifest("r1") == RolloutManifest(rollout_id="r1")
        await client.close()
    assert len(stub.asked) == 3


async def test_a_removal_is_repeated_with_the_same_ids():
    stub = Scripted((500, b"Internal Server Error"), (200, {"removed": [], "absent": ["r1"]}))
    with client_of(stub) as client:
        assert await client.retire(["r1"]) == RolloutRemoval(absent=("r1",))
        await client.close()
    assert [ids for _, _, ids in stub.asked] == [{"rollout_ids": ["r1"]}] * 2


async def test_a_server_that_asks_for_more_time_than_there_is_is_given_up_at_once():
    stub = Scripted((429, b"", {"retry-after": "3600"}))
    with client_of(stub) as client:
        with pytest.raises(Unavailable, match="attempts=1") as caught:
            await client.manifest("r1")
        await client.close()
    assert (caught.value.kind, len(stub.asked)) == ("throttled", 1)


async def test_the_pause_that_a_server_asks_for_is_made(monkeypatch):
    pauses, sleep = [], asyncio.sleep

    async def noted(seconds):
        pauses.append(seconds)
        await sleep(0)

    with client_of(Scripted((503, b"", {"retry-after": "7"}), (200, EMPTY))) as client:
        # The server's own loop, in another thread, goes on sleeping.
        monkeypatch.setattr("gym_objstore.control_client.asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": noted}))
        await client.manifest("r1")
        await client.close()
    assert pauses == [7.0]


def close_at_once(number: int, connection: socket.socket) -> None:
    """Say nothing."""


def reset(number: int, connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")


def stop_in_the_middle(number: int, connection: socket.socket) -> None:
    connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\n{"rollout_id":')


def speak_something_else(number: int, connection: socket.socket) -> None:
    connection.sendall(b"220 mail.example.org ESMTP\r\n")


@pytest.mark.parametrize("misbehave", [close_at_once, reset, stop_in_the_middle, speak_something_else])
async def test_a_connection_that_breaks_is_made_again(misbehave):
    said = json.dumps(EMPTY).encode()

    def answer(number: int, connection: socket.socket) -> None:
        if number < 2:
            misbehave(number, connection)
        else:
            connection.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(said), said)
            )

    with answering(answer) as url:
        async with RolloutControlClient(url, TOKEN, retry_seconds=30) as client:
            assert await client.manifest("r1") == RolloutManifest(rollout_id="r1")


async def test_a_server_that_is_not_there_is_unavailable():
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    async with RolloutControlClient(f"http://127.0.0.1:{port}", TOKEN, retry_seconds=0.2) as client:
        with pytest.raises(Unavailable, match="cannot be reached") as caught:
            await client.retire(["r1"])
    assert (caught.value.kind, caught.value.key) == ("unreachable", "/rollouts/retire")


def hang(number: int, connection: socket.socket) -> None:
    connection.recv(1)


def drip(number: int, connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    connection.settimeout(0.02)
    while True:
        try:
            connection.sendall(b" ")
            if not connection.recv(1):
                return
        except TimeoutError:
            continue
        except OSError:
            return


@pytest.mark.parametrize("slow", [hang, drip])
async def test_a_server_that_does_not_finish_is_left_in_time(slow):
    with answering(slow) as url:
        async with RolloutControlClient(url, TOKEN, timeout=0.3, retry_seconds=0) as client:
            with pytest.raises(Unavailable, match=r"did not answer in time, timeout=0\.3") as caught:
                await client.manifest("r1")
    assert caught.value.kind == "timeout"


async def test_an_answer_without_end_is_left(monkeypatch):
    monkeypatch.setattr("gym_objstore.control_client.ANSWER_LIMIT", 1000)
    with client_of(Scripted((200, b" " * 1001))) as client:
        with pytest.raises(Corrupt) as caught:
            await client.manifest("r1")
        await client.close()
    assert caught.value.kind == "too_large"


async def test_a_cancelled_request_leaves_the_client_usable(url):
    with answering(hang) as dead:
        async with RolloutControlClient(dead, TOKEN) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.manifest("r1"), 0.1)
    async with RolloutControlClient(url, TOKEN) as client:
        task = asyncio.ensure_future(client.manifest("r1"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.manifest("r1")).rollout_id == "r1"


# --- construction and secrets ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("", "bad_url"),
        ("localhost:8000", "bad_url"),
        ("ftp://host", "bad_url"),
        ("http://", "bad_url"),
        ("http://host:port", "bad_url"),
        ("http://host/?a=1", "bad_url"),
        ("http://host/#a", "bad_url"),
        (None, "bad_url"),
        ("http://user:hunter2@host", "secret_in_url"),
    ],
)
def test_a_bad_address_is_refused(address, kind):
    with pytest.raises(Invalid) as caught:
        RolloutControlClient(address, TOKEN)
    assert caught.value.kind == kind
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "line\n", None])
def test_a_bad_token_is_refused(token):
    with pytest.raises(Invalid) as caught:
        RolloutControlClient("http://host", token)
    assert caught.value.kind == "bad_token"


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("inf")},
        {"timeout": float("nan")},
        {"timeout": "1"},
        {"timeout": True},
        {"retry_seconds": -1},
        {"retry_seconds": None},
    ],
)
def test_a_bad_number_of_seconds_is_refused(options):
    with pytest.raises(Invalid) as caught:
        RolloutControlClient("http://host", TOKEN, **options)
    assert caught.value.kind == "bad_option"


def test_without_httpx_it_says_what_to_install(monkeypatch):
    imported = builtins.__import__

    def without(name, *rest):
        if name == "httpx":
            raise ModuleNotFoundError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Unusable, match=r"pip install 'gym-objstore\[control\]'") as caught:
        RolloutControlClient("http://host", TOKEN)
    assert caught.value.kind == "missing_extra"


async def test_the_token_is_shown_nowhere(caplog):
    echo = Scripted((400, {"detail": f"bad header: Bearer {TOKEN}", "kind": TOKEN}))
    with caplog.at_level(logging.DEBUG), client_of(echo) as client:
        with pytest.raises(Invalid, match=r"Bearer \*\*\*") as caught:
            await client.manifest("r1")
        await client.close()
    shown = "".join(traceback.format_exception(caught.value))
    for text in (repr(client), shown, repr(caught.value), caplog.text, caught.value.kind):
        assert TOKEN not in text


def test_a_client_shows_its_address_and_is_not_pickled_or_copied():
    client = RolloutControlClient("https://policy.example:8000/", TOKEN, timeout=5)
    assert repr(client) == "RolloutControlClient('https://policy.example:8000', timeout=5)"
    for travel in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(Unusable) as caught:
            travel(client)
        assert caught.value.kind == "secret"
