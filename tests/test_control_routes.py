# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The control routes over real sockets, in FastAPI, in Starlette, and in and around a bare ASGI application."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from gym_objstore.control_routes import BODY_LIMIT, control_app, install_rollout_control_routes
from gym_objstore.errors import Corrupt, Denied, Invalid, Unavailable
from gym_objstore.ledgers import CaptureLedger
from gym_objstore.testing.staged_rollouts import ledger_row, staged_call
from gym_objstore.wire_ledger import CaptureLedgerCommit
from tests.places import place_of
from tests.web_servers import serving

TOKEN = "correct-horse"
AUTH = {"authorization": f"Bearer {TOKEN}"}
PREFIX = "/training-token-capture/control"
RETIRE, DELETE = f"{PREFIX}/rollouts/retire", f"{PREFIX}/rollouts/delete"
# Making one loads the certificate authorities, and no address here is https.
HTTP = httpx.Client(verify=False, timeout=60)
SHAPES = ("fastapi", "starlette", "bare", "around", "mounted")


async def other(request: Any) -> PlainTextResponse:
    return PlainTextResponse("other")


@pytest.fixture(scope="module", autouse=True)
def _http():
    yield
    HTTP.close()


def application(shape: str, ledger: Any, **options: Any) -> Any:
    options = {"token": TOKEN, **options}
    if shape == "bare":
        return control_app(ledger, **options)
    if shape == "around":
        return control_app(ledger, inner=Starlette(routes=[Route("/{path:path}", other)]), **options)
    if shape == "mounted":
        return Starlette(routes=[Mount(PREFIX, control_app(ledger, **options)), Route("/{path:path}", other)])
    app = FastAPI() if shape == "fastapi" else Starlette()
    app.router.add_route("/{path:path}", other)
    install_rollout_control_routes(app, ledger, **options)
    return app


@pytest.fixture
def ledger(request):
    return CaptureLedger(**place_of("memory", request))


@pytest.fixture(params=SHAPES, scope="module")
def shape(request):
    return request.param


@pytest.fixture(scope="module")
def standing_ledger(tmp_path_factory):
    """A ledger with one rollout, r1, that no test may change."""
    found = CaptureLedger(url="memory://standing", run_id="run-1", spill_dir=str(tmp_path_factory.mktemp("spill")))
    fail(found, "r1")
    return found


@pytest.fixture(scope="module")
def standing(standing_ledger):
    with serving(application("bare", standing_ledger)) as url:
        yield url


@pytest.fixture(scope="module")
def reader(shape, standing_ledger):
    with (
        serving(application(shape, standing_ledger)) as url,
        httpx.Client(base_url=url, headers=AUTH, verify=False) as found,
    ):
        yield found


@pytest.fixture
def client(shape, ledger):
    with serving(application(shape, ledger)) as url, httpx.Client(base_url=url, headers=AUTH, verify=False) as found:
        yield found


class Broken:
    """A ledger whose every operation ends in one error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def manifest(self, rollout_id):
        raise self.error

    async def retire(self, rollout_ids):
        raise self.error

    delete = retire


def fail(ledger, *rollout_ids: str) -> None:
    """Give rollouts a ledger."""
    for one in rollout_ids:
        asyncio.run(ledger.record_failure(one, "c1", "worker_capture_failed"))


def manifest_url(rollout_id: str) -> str:
    return f"{PREFIX}/rollouts/{rollout_id}/manifest"


def test_a_manifest_is_what_the_ledger_says(client, ledger):
    call = staged_call("c1", rollout_id="r1")
    commit = CaptureLedgerCommit(rollout_id="r1", record=ledger_row(call), request_items=(), response_items=())
    asyncio.run(ledger.record(commit))
    answer = client.get(manifest_url("r1"))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "schema_version": 2,
        "rollout_id": "r1",
        "records": [ledger_row(call).model_dump(mode="json")],
        "failures": [],
    }


def test_a_manifest_of_an_unknown_rollout_is_empty(client):
    assert client.get(manifest_url("r1")).json() == {
        "schema_version": 2,
        "rollout_id": "r1",
        "records": [],
        "failures": [],
    }


def test_retired_is_gone_and_deleted_is_new_again(client, ledger):
    fail(ledger, "r1")
    answer = client.post(RETIRE, json={"rollout_ids": ["r1", "r2", "r1"]})
    assert (answer.status_code, answer.json()) == (200, {"removed": ["r1"], "absent": ["r2"]})
    gone = client.get(manifest_url("r1"))
    assert (gone.status_code, gone.json()["error"], gone.json()["kind"]) == (410, "retired", "retired")
    assert client.get(manifest_url("r2")).status_code == 410
    assert client.post(RETIRE, json={"rollout_ids": ["r1"]}).json() == {"removed": [], "absent": ["r1"]}
    assert client.post(DELETE, json={"rollout_ids": ["r1"]}).json() == {"removed": ["r1"], "absent": []}
    fail(ledger, "r1")
    assert client.get(manifest_url("r1")).json()["failures"] == [
        {"schema_version": 2, "model_call_id": "c1", "reason": "worker_capture_failed"}
    ]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer x"},
        {"authorization": TOKEN},
        {"authorization": "Bearer correct-horsf"},
        {"authorization": "Bearer correct-hors"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer sch\u00f6n".encode()},
        [("authorization", f"Bearer {TOKEN}"), ("authorization", "Bearer wrong")],
    ],
)
@pytest.mark.parametrize("route", [("GET", manifest_url("r1")), ("POST", RETIRE), ("POST", DELETE)])
def test_without_the_token_nothing_is_answered_or_changed(standing, standing_ledger, route, headers):
    answer = HTTP.request(route[0], standing + route[1], content=b'{"rollout_ids":["r1"]}', headers=headers)
    assert (answer.status_code, answer.json()["kind"]) == (401, "bad_token")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert asyncio.run(standing_ledger.has_rows("r1"))


@pytest.mark.parametrize("token", ["schön-€", "x" * 4000, "a+/=._~-"])
def test_any_printable_token_works(ledger, token):
    headers = {"authorization": b"bearer " + token.encode()}
    with serving(application("bare", ledger, token=token)) as url:
        assert HTTP.get(url + manifest_url("r1"), headers=headers).status_code == 200


@pytest.mark.parametrize("token", ["", None, b"bytes", "two words", "line\n", "\ud800", "tab\t"])
def test_a_token_that_no_header_carries_is_refused_at_once(ledger, token):
    with pytest.raises(Invalid) as caught:
        control_app(ledger, token=token)
    assert caught.value.kind == "bad_token"


@pytest.mark.parametrize(
    "encoded",
    ["%2e", "%2E%2E", "a%2Fb", "%2e%2e%2frollouts%2fr1", "a%20b", "%00", "r%2531", "%C3%BC", "%FF", "a" * 1001, ""],
)
def test_an_id_that_the_wire_does_not_carry_is_400(reader, encoded):
    answer = reader.get(manifest_url(encoded))
    assert (answer.status_code, answer.json()["kind"]) == (400, "bad_id")


@pytest.mark.parametrize("rollout_id", ["r1", "R1", "7-0-a1", "_x", "-", ".hidden", "...", "retire", "a" * 1000])
def test_an_id_that_the_wire_carries_is_itself(reader, rollout_id):
    assert reader.get(manifest_url(rollout_id)).json()["rollout_id"] == rollout_id


def test_an_encoded_id_is_decoded_once(reader):
    assert reader.get(manifest_url("r%31")).json()["rollout_id"] == "r1"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"null",
        b"[]",
        b'"r1"',
        b'["r1"]',
        b"{}",
        b'{"rollout_ids":[]}',
        b'{"rollout_ids":null}',
        b'{"rollout_ids":"r1"}',
        b'{"rollout_ids":{"r1":1}}',
        b'{"rollout_ids":["r1",1]}',
        b'{"rollout_ids":["r1",null]}',
        b'{"rollout_ids":["r1"],"force":true}',
        b'{"rollout_ids":["\\ud800"]}',
        b'{"rollout_ids":[NaN]}',
        b'{"rollout_ids":[' + b",".join(b'"%d"' % n for n in range(4097)) + b"]}",
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("route", [RETIRE, DELETE])
def test_a_malformed_body_is_422_and_changes_nothing(standing, standing_ledger, route, body):
    answer = HTTP.post(standing + route, content=body, headers=AUTH)
    assert (answer.status_code, answer.json()["error"], answer.json()["kind"]) == (422, "invalid", "bad_body")
    assert asyncio.run(standing_ledger.has_rows("r1"))


@pytest.mark.parametrize("bad", ["", "a/b", "..", ".", "a b", "ü", "a\x00", "a" * 1001, "r1\n"])
@pytest.mark.parametrize("route", [RETIRE, DELETE])
def test_one_bad_id_refuses_the_whole_list_before_anything_changes(standing, standing_ledger, route, bad):
    answer = HTTP.post(standing + route, json={"rollout_ids": ["r1", bad]}, headers=AUTH)
    assert (answer.status_code, answer.json()["kind"]) == (400, "bad_id")
    assert asyncio.run(standing_ledger.has_rows("r1"))


def test_a_full_batch_is_taken(ledger):
    ids = [f"r{number}" for number in range(4096)]
    fail(ledger, "r7")
    with serving(application("starlette", ledger)) as url:
        answer = HTTP.post(url + RETIRE, json={"rollout_ids": ids}, headers=AUTH)
    assert answer.json() == {"removed": ["r7"], "absent": [one for one in ids if one != "r7"]}


def test_a_body_that_announces_too_much_is_refused(client):
    answer = client.post(RETIRE, content=b" " * (BODY_LIMIT + 1))
    assert (answer.status_code, answer.json()["kind"]) == (413, "too_large")


def test_a_body_that_never_ends_is_refused(ledger):
    def endless():
        for _ in range(BODY_LIMIT // 65536 + 1):
            yield b" " * 65536

    with serving(application("bare", ledger)) as url:
        answer = HTTP.post(url + RETIRE, content=endless(), headers=AUTH)
    assert (answer.status_code, answer.json()["kind"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("HEAD", manifest_url("r1"), "GET"),
        ("POST", manifest_url("r1"), "GET"),
        ("DELETE", manifest_url("r1"), "GET"),
        ("OPTIONS", manifest_url("r1"), "GET"),
        ("GET", RETIRE, "POST"),
        ("PUT", DELETE, "POST"),
    ],
)
def test_other_methods_are_refused(reader, method, path, allowed):
    answer = reader.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


def test_other_paths_are_the_applications_own(shape, reader):
    nowhere = {"bare": 404, "mounted": 404}.get(shape, 200)
    assert reader.get(f"{PREFIX}/rollouts/r1/other").status_code == nowhere
    assert reader.get(f"{PREFIX}x/rollouts/r1/manifest").status_code == (404 if shape == "bare" else 200)
    assert reader.get("/rollouts/r1/manifest").status_code == (404 if shape == "bare" else 200)


@pytest.mark.parametrize("root", ["/proxy", "/training-token-capture", "/t"])
def test_a_proxys_root_path_does_not_hide_the_routes(ledger, root):
    app = Starlette(routes=[Mount(root, application("bare", ledger))])
    with serving(app) as url:
        assert HTTP.get(f"{url}{root}{manifest_url('r1')}", headers=AUTH).json()["rollout_id"] == "r1"


async def test_a_root_path_that_the_server_cut_off_does_not_hide_the_routes(ledger):
    transport = httpx.ASGITransport(application("bare", ledger), root_path="/t")
    async with httpx.AsyncClient(transport=transport, base_url="http://m", headers=AUTH) as client:
        assert (await client.get(manifest_url("r1"))).status_code == 200


def refuse_now() -> str | None:
    return "a checkpoint is open"


async def refuse_now_slowly() -> str | None:
    await asyncio.sleep(0)
    return "a checkpoint is open"


@pytest.mark.parametrize("refuse", [refuse_now, refuse_now_slowly])
@pytest.mark.parametrize("route", [RETIRE, DELETE])
def test_a_refused_removal_is_409_with_its_reason(ledger, route, refuse):
    fail(ledger, "r1")
    with serving(application("fastapi", ledger, refuse=refuse)) as url:
        answer = HTTP.post(url + route, json={"rollout_ids": ["r1"]}, headers=AUTH)
        assert HTTP.get(url + manifest_url("r1"), headers=AUTH).status_code == 200
    assert answer.status_code == 409
    assert answer.json() == {"detail": "a checkpoint is open", "error": "conflict", "kind": "removal_refused"}
    assert asyncio.run(ledger.has_rows("r1"))


async def allow_slowly() -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("refuse", [lambda: None, allow_slowly])
def test_a_removal_that_nobody_refuses_is_done(ledger, refuse):
    with serving(application("fastapi", ledger, refuse=refuse)) as url:
        answer = HTTP.post(url + RETIRE, json={"rollout_ids": ["r1"]}, headers=AUTH)
    assert answer.json() == {"removed": [], "absent": ["r1"]}


@pytest.mark.parametrize(
    ("error", "status", "name", "kind"),
    [
        (Unavailable("no answer", kind="timeout", key="ledger/x"), 503, "unavailable", "timeout"),
        (Corrupt("not JSON", kind="not_json"), 500, "corrupt", "not_json"),
        (Denied("the storage refused", kind="access_denied"), 500, "denied", "access_denied"),
    ],
)
def test_a_storage_that_fails_is_no_answer_and_is_logged_without_the_token(caplog, error, status, name, kind):
    with caplog.at_level(logging.DEBUG), serving(application("starlette", Broken(error))) as url:
        read = HTTP.get(url + manifest_url("r1"), headers=AUTH)
        removed = HTTP.post(url + RETIRE, json={"rollout_ids": ["r1"]}, headers=AUTH)
    for answer in (read, removed):
        assert (answer.status_code, answer.json()["error"], answer.json()["kind"]) == (status, name, kind)
        assert answer.headers.get("retry-after") == ("1" if status == 503 else None)
    assert f"a control request failed, operation=retire, error={error}" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("app", [object(), lambda scope, receive, send: None])
def test_another_kind_of_application_is_refused_with_the_way_to_do_it(ledger, app):
    with pytest.raises(Invalid, match=r"control_app\(ledger, token=\.\.\., inner=app\)"):
        install_rollout_control_routes(app, ledger, token=TOKEN)


def test_an_object_that_is_no_ledger_is_refused():
    with pytest.raises(Invalid, match="absent=manifest, retire, delete"):
        control_app(object(), token=TOKEN)


def test_the_application_starts_and_stops_alone(ledger):
    said = []

    async def live() -> None:
        events = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

        async def receive():
            return next(events)

        async def send(message):
            said.append(message["type"])

        await control_app(ledger, token=TOKEN)({"type": "lifespan"}, receive, send)

    asyncio.run(live())
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_a_websocket_is_closed(ledger):
    said = []

    async def send(message):
        said.append(message["type"])

    asyncio.run(control_app(ledger, token=TOKEN)({"type": "websocket"}, None, send))
    assert said == ["websocket.close"]


async def test_a_client_that_leaves_before_its_body_ended_changes_nothing(ledger):
    await ledger.record_failure("r1", "c1", "worker_capture_failed")
    events = iter([{"type": "http.request", "body": b'{"rollout_ids":["r1"]}', "more_body": True}])

    async def receive():
        return next(events, {"type": "http.disconnect"})

    async def send(message):
        pass

    headers = [(b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": "POST", "path": RETIRE, "headers": headers}
    await control_app(ledger, token=TOKEN)(scope, receive, send)
    assert await ledger.has_rows("r1")


def test_many_clients_at_once_each_get_their_own_answer(ledger):
    ids = [f"r{number}" for number in range(24)]
    fail(ledger, *ids)
    answers: dict[str, Any] = {}
    with serving(application("fastapi", ledger)) as url:

        def ask(one: str) -> None:
            answers[one] = HTTP.get(url + manifest_url(one), headers=AUTH).json()["rollout_id"]

        threads = [threading.Thread(target=ask, args=(one,)) for one in ids]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {one: one for one in ids}


def test_importing_the_routes_loads_no_web_framework():
    program = """
import sys, gym_objstore
gym_objstore.install_rollout_control_routes, gym_objstore.control_app
print(*sorted({"fastapi", "starlette", "httpx", "uvicorn"} & set(sys.modules)))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == ""
