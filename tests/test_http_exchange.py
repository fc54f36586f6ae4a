# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Requests and responses read whole, and an inner application that is asked, hears and may be ended."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest

from gym_objstore.correlation import SCOPE_KEY, parse_path, route_of
from gym_objstore.errors import Invalid
from gym_objstore.http_exchange import (
    Answer,
    Asked,
    header,
    other_body,
    plain_body,
    read_body,
    redirecting,
    with_body,
    without_prefix,
)

START = {"type": "http.response.start", "status": 201, "headers": [(b"X-One", b"1")]}


def receiving(*events: dict[str, Any]) -> Any:
    left = list(events)

    async def receive():
        return left.pop(0)

    return receive


def part(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_is_read_to_its_end():
    assert await read_body(receiving(part(b"ab", more=True), {"type": "http.request"}), 9) == b"ab"


async def test_a_body_without_an_end_is_none():
    assert await read_body(receiving(part(b"ab", more=True), {"type": "http.disconnect"}), 9) is None


async def test_a_body_is_refused_once_it_is_too_large_though_it_never_ends():
    with pytest.raises(Invalid, match="limit=3") as refused:
        await read_body(receiving(part(b"ab", more=True), part(b"cd", more=True)), 3)
    assert refused.value.kind == "too_large"
    assert await read_body(receiving(part(b"abc", more=False)), 3) == b"abc"


def test_headers_are_found_in_any_case():
    assert header([(b"X-One", b"1"), (b"x-one", b"2")], b"x-one") == "1"
    assert header([], b"x-one") == ""


def test_a_compressed_body_is_undone_or_nothing():
    encoded = [(b"Content-Encoding", b"gzip")]
    assert plain_body(encoded, gzip.compress(b"text")) == b"text"
    assert plain_body(encoded, b"text") is None
    assert plain_body(encoded, gzip.compress(b"text"), 3) is None
    assert plain_body([], b"text") == b"text"


def test_a_path_loses_its_prefix_in_both_forms():
    path = "/ng-rollout/a b/v1/x"
    raw = b"/ng-rollout/a%20b/v1/x"
    route = parse_path(path)
    assert route is not None
    scope = without_prefix({"path": path, "raw_path": raw, "other": 1}, route)
    assert scope == {"path": "/v1/x", "raw_path": b"/v1/x", "other": 1, SCOPE_KEY: route}
    assert route_of(scope) == route
    assert without_prefix(scope, route) == scope
    assert without_prefix({"path": path, "raw_path": None}, route)["raw_path"] == b"/v1/x"


def test_another_body_brings_its_own_headers():
    headers = [(b"Content-Length", b"9"), (b"content-encoding", b"gzip"), (b"accept-encoding", b"br"), (b"x", b"1")]
    assert with_body({"headers": headers, "extensions": {"http.response.pathsend": {}}}, b"ab") == {
        "headers": [(b"x", b"1"), (b"content-length", b"2")],
        "extensions": {},
    }
    answered = [(b"content-type", b"text/plain"), (b"transfer-encoding", b"chunked"), (b"x", b"1")]
    assert other_body(answered, b"abc", (b"content-type", b"a/b")) == [
        (b"x", b"1"),
        (b"content-type", b"a/b"),
        (b"content-length", b"3"),
    ]


async def test_an_application_gets_the_body_once_and_then_hears_the_client():
    heard = []

    async def app(scope, receive, send):
        heard.extend([scope, await receive(), await receive()])
        await send(START)
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await send({"type": "http.response.body", "body": b"b"})

    asked = Asked(app, {"n": 1}, b"body", receiving({"type": "http.disconnect"}))
    assert await asked.answered(10)
    assert asked.answer() == Answer(201, [(b"x-one", b"1")], b"ab")
    await asked.close()
    assert heard == [{"n": 1}, part(b"body", more=False), {"type": "http.disconnect"}]


async def test_an_answer_does_not_wait_for_what_the_application_does_later():
    gate, finished = asyncio.Event(), []

    async def app(scope, receive, send):
        await send(START)
        await send({"type": "http.response.body"})
        await gate.wait()
        finished.append(True)

    asked = Asked(app, {}, b"", receiving())
    assert await asked.answered(10)
    gate.set()
    await asked.close()
    assert finished == [True]


async def test_an_application_that_ends_without_an_answer_gives_none():
    async def app(scope, receive, send):
        await send(START)

    asked = Asked(app, {}, b"", receiving())
    assert await asked.answered(10)
    assert asked.answer() is None
    await asked.close()


async def test_what_an_application_raises_is_raised_once():
    async def app(scope, receive, send):
        raise ZeroDivisionError

    asked = Asked(app, {}, b"", receiving())
    assert await asked.answered(10)
    with pytest.raises(ZeroDivisionError):
        asked.answer()
    await asked.close()


async def test_what_an_application_raises_behind_its_answer_is_raised_at_the_close():
    async def app(scope, receive, send):
        await send(START)
        await send({"type": "http.response.body"})
        raise ZeroDivisionError

    asked = Asked(app, {}, b"", receiving())
    assert await asked.answered(10)
    assert asked.answer().status == 201
    with pytest.raises(ZeroDivisionError):
        await asked.close()


async def test_an_application_that_did_not_answer_is_cancelled():
    ended = []

    async def app(scope, receive, send):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    asked = Asked(app, {}, b"", receiving())
    assert not await asked.answered(0.001)
    await asked.close()
    assert ended == [True]


@pytest.mark.parametrize(("status", "succeeded"), [(199, False), (200, True), (299, True), (300, False), (503, False)])
def test_only_a_2xx_is_success(status, succeeded):
    assert Answer(status, [], b"").succeeded is succeeded


async def test_redirects_get_the_prefix_back_and_other_messages_pass():
    sent = []

    async def send(message):
        sent.append(message)

    route = parse_path("/ng-rollout/r1/v1/models")
    assert route is not None
    back = redirecting(send, route, {"headers": [(b"Host", b"model")]})
    await back({**START, "headers": [(b"Location", b"http://model/v1/models/"), (b"x", b"1")]})
    await back({"type": "http.response.body"})
    assert sent[0]["headers"] == [(b"Location", b"http://model/ng-rollout/r1/v1/models/"), (b"x", b"1")]
    assert sent[1] == {"type": "http.response.body"}
