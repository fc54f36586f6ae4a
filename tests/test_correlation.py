# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A call's path names its rollout, and what is sent arrives as it was sent."""

from __future__ import annotations

from typing import Any

import pytest

from gym_objstore.correlation import (
    Route,
    follow,
    openai_base_url,
    parse_path,
    rollout_id_of,
    rollout_prefix,
    rollout_url,
    survives_url,
)
from gym_objstore.errors import Invalid


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/ng-rollout/0-0/v1/responses", Route("0-0", False, "/ng-rollout/0-0", "/v1/responses")),
        (
            "/ng-rollout/0-0-a2/training-token-capture/v1/messages",
            Route("0-0-a2", True, "/ng-rollout/0-0-a2/training-token-capture", "/v1/messages"),
        ),
        ("/ng-rollout/a b é/v1/x", Route("a b é", False, "/ng-rollout/a b é", "/v1/x")),
        ("/ng-rollout/../v1/x", Route("..", False, "/ng-rollout/..", "/v1/x")),
        ("/ng-rollout/r/", Route("r", False, "/ng-rollout/r", "/")),
        (
            "/ng-rollout/training-token-capture/v1/x",
            Route("training-token-capture", False, "/ng-rollout/training-token-capture", "/v1/x"),
        ),
        (
            "/ng-rollout/r/training-token-capture-not/x",
            Route("r", False, "/ng-rollout/r", "/training-token-capture-not/x"),
        ),
    ],
)
def test_a_prefixed_path_is_its_prefix_and_the_api_path(path: str, route: Route) -> None:
    parsed = parse_path(path)
    assert parsed == route
    assert route.prefix + route.path == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/v1/responses",
        "/ng-rollout",
        "/ng-rollout/",
        "/ng-rollout/r",
        "/ng-rollout//v1/x",
        "/x/ng-rollout/r/v1",
    ],
)
def test_a_path_without_prefix_id_or_rest_is_no_rollouts(path: str) -> None:
    assert parse_path(path) is None


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/responses", "responses"),
        ("/v1/chat/completions", "chat"),
        ("/v1/messages", "messages"),
        ("/v1/messages/", None),
        ("/v1/models", None),
    ],
)
def test_exactly_three_api_paths_are_observed(path: str, dialect: str | None) -> None:
    route = parse_path("/ng-rollout/r" + path)
    assert route is not None
    assert route.dialect == dialect


@pytest.mark.parametrize(
    ("raw", "decoded", "rest"),
    [
        (b"/ng-rollout/0-0/v1/a%20b", "/ng-rollout/0-0/v1/a b", b"/v1/a%20b"),
        (b"/ng-rollout/a%20b/training-token-capture/v1/x?q=1", "/ng-rollout/a b/training-token-capture/v1/x", b"/v1/x"),
        (b"/ng-rollout/a%2Fb/v1/x", "/ng-rollout/a/b/v1/x", b"/b/v1/x"),
        (b"", "/ng-rollout/r/v1/x", b"/v1/x"),
    ],
)
def test_the_undecoded_path_loses_the_same_prefix(raw: bytes, decoded: str, rest: bytes) -> None:
    route = parse_path(decoded)
    assert route is not None
    assert route.raw_path(raw) == rest


@pytest.mark.parametrize("rollout_id", ["0-0", "12-3-a4", "A.b_c-d", "0", "a" * 300])
def test_plain_ids_survive_a_url_and_come_back(rollout_id: str) -> None:
    assert survives_url(rollout_id)
    route = parse_path(rollout_prefix(rollout_id, token_capture=True) + "/v1/responses")
    assert route == (rollout_id, True, f"/ng-rollout/{rollout_id}/training-token-capture", "/v1/responses")


HOSTILE: list[Any] = [".r", "-r", "a b", "a/b", "a%2Fb", "é", "a\n", "..", "a?b", "a#b", "\ud800"]


@pytest.mark.parametrize("rollout_id", HOSTILE)
def test_an_id_that_would_arrive_changed_is_refused_before_it_is_sent(rollout_id: Any) -> None:
    assert not survives_url(rollout_id)
    with pytest.raises(Invalid, match="a rollout id in a URL must be letters") as caught:
        rollout_prefix(rollout_id)
    assert caught.value.kind == "bad_rollout_id"


def test_without_an_id_nothing_is_prefixed() -> None:
    assert rollout_prefix(None) == ""
    assert rollout_url("http://policy:8000/", "") == "http://policy:8000"


@pytest.mark.parametrize(
    "server", ["http://policy:8000", "http://policy:8000/", "http://policy:8000/v1", "http://policy:8000/v1/"]
)
def test_base_urls_are_right_whatever_form_the_server_url_has(server: str) -> None:
    assert rollout_url(server, "0-0") == "http://policy:8000/ng-rollout/0-0"
    assert openai_base_url(server, "0-0") == "http://policy:8000/ng-rollout/0-0/v1"
    tokens = openai_base_url(server, "0-0", token_capture=True)
    assert tokens == "http://policy:8000/ng-rollout/0-0/training-token-capture/v1"


@pytest.mark.parametrize(
    "server",
    [
        "policy:8000",
        "s3://bucket",
        "http://",
        "http://policy?api-key=hidden",
        "http://policy/#x",
        "http://policy/ng-rollout/0-0",
        "http://policy/ng-rollout/0-0/v1",
        "http://user:hidden@policy/ng-rollout",
        "http://[hidden",
        None,
    ],
)
def test_a_url_that_is_no_servers_root_is_refused_without_its_secrets(server: Any) -> None:
    with pytest.raises(Invalid) as caught:
        openai_base_url(server, "0-0")
    assert caught.value.kind == "bad_url"
    assert "hidden" not in str(caught.value)


def test_a_self_call_keeps_the_prefix_of_the_request_it_serves() -> None:
    inbound = "/ng-rollout/4-1/training-token-capture/v1/responses"
    assert follow(inbound, "/v1/messages") == "/ng-rollout/4-1/training-token-capture/v1/messages"
    assert follow("/v1/responses", "/v1/messages") == "/v1/messages"


@pytest.mark.parametrize(
    ("location", "kept"),
    [
        ("/v1/responses", "/ng-rollout/r/v1/responses"),
        ("http://policy/v1?x=1", "http://policy/ng-rollout/r/v1?x=1"),
        ("/ng-rollout/r/v1", "/ng-rollout/r/v1"),
        ("http://elsewhere/v1", "http://elsewhere/v1"),
        ("relative", "relative"),
        ("http://[broken", "http://[broken"),
    ],
)
def test_redirects_on_the_same_host_keep_the_prefix(location: str, kept: str) -> None:
    route = parse_path("/ng-rollout/r/v1/responses")
    assert route is not None
    assert route.location(location, "policy") == kept


@pytest.mark.parametrize(
    ("rollout_id", "prefix"),
    [
        ("a\r\nSet-Cookie: x=1", "/ng-rollout/a%0D%0ASet-Cookie%3A%20x%3D1"),
        ("\u65e5", "/ng-rollout/%E6%97%A5"),
        ("a%b?c#d", "/ng-rollout/a%25b%3Fc%23d"),
    ],
)
def test_a_redirect_carries_an_id_as_it_can_stand_in_a_header(rollout_id: str, prefix: str) -> None:
    route = parse_path(f"/ng-rollout/{rollout_id}/v1/responses")
    assert route is not None
    assert route.location("/v1/models", "policy") == f"{prefix}/v1/models"
    assert route.location(f"{prefix}/v1/models", "policy") == f"{prefix}/v1/models"


@pytest.mark.parametrize(
    ("row", "rollout_id"),
    [
        ({"_ng_task_index": 3, "_ng_rollout_index": 1}, "3-1"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}, "3-1-a2"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 0}, "3-1"),
        ({"_ng_rollout_id": "mine", "_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 1}, "mine-a1"),
        ({"_ng_task_index": 3}, None),
        ({}, None),
    ],
)
def test_a_row_implies_its_rollout_id(row: dict[str, Any], rollout_id: str | None) -> None:
    assert rollout_id_of(row) == rollout_id


@pytest.mark.parametrize(
    "row", [{"_ng_rollout_id": "a b"}, {"_ng_rollout_id": 7}, {"_ng_rollout_id": "r", "_ng_attempt_index": "x"}]
)
def test_a_row_with_an_id_that_is_none_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        rollout_id_of(row)
