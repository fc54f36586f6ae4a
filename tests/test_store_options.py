# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import pickle
import traceback
from dataclasses import FrozenInstanceError, replace

import pytest

from gym_objstore.errors import Invalid, Unusable
from gym_objstore.store.options import Masked, StoreOptions

CANARY = "canary-in-a-coal-mine"
KEYS = {"access_key_id": "AKIAEXAMPLE", "secret_access_key": CANARY, "session_token": f"{CANARY}-token"}


def sources(options: StoreOptions) -> dict[str, str]:
    return {one.name: one.source for one in options.describe()}


def test_defaults_are_plain_values():
    assert StoreOptions.of("s3://bucket/runs/") == StoreOptions(
        url="s3://bucket/runs",
        backend="auto",
        endpoint=None,
        region=None,
        path_style=None,
        profile=None,
        ca_bundle=None,
        proxy=None,
        concurrency=128,
        connect_timeout=5.0,
        timeout=30.0,
        retry_seconds=60.0,
        access_key_id=None,
        secret_access_key=None,
        session_token=None,
    )


def test_an_argument_beats_our_variable_beats_the_one_of_aws(monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "from-aws-default")
    assert StoreOptions.of("s3://bucket").region == "from-aws-default"
    monkeypatch.setenv("AWS_REGION", "from-aws")
    assert StoreOptions.of("s3://bucket").region == "from-aws"
    monkeypatch.setenv("GYM_OBJSTORE_REGION", "from-us")
    assert StoreOptions.of("s3://bucket").region == "from-us"
    assert StoreOptions.of("s3://bucket", region="argument").region == "argument"
    assert StoreOptions.of("s3://bucket", region=None).region == "from-us"


def test_every_setting_says_where_it_came_from(monkeypatch):
    monkeypatch.setenv("GYM_OBJSTORE_URL", "s3://bucket/runs")
    monkeypatch.setenv("GYM_OBJSTORE_PATH_STYLE", "false")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000/")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1/")
    monkeypatch.setenv("GYM_OBJSTORE_REGION", "")
    options = StoreOptions.of(timeout="12")
    assert (options.endpoint, options.path_style, options.timeout) == ("http://127.0.0.1:9000", False, 12.0)
    found = sources(options)
    assert found["url"] == "environment variable GYM_OBJSTORE_URL"
    assert found["endpoint"] == "environment variable AWS_ENDPOINT_URL_S3"
    assert found["path_style"] == "environment variable GYM_OBJSTORE_PATH_STYLE"
    assert found["timeout"] == "argument"
    assert found["region"] == "default"


def test_the_variables_of_aws_say_nothing_about_other_clouds(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    options = StoreOptions.of("gs://bucket")
    assert (options.endpoint, options.region) == (None, None)


def test_a_missing_url_says_how_to_give_one():
    with pytest.raises(Invalid, match="GYM_OBJSTORE_URL") as caught:
        StoreOptions.of()
    assert caught.value.kind == "no_url"


def test_an_unknown_option_is_refused_and_the_known_ones_are_named():
    with pytest.raises(Invalid, match="unknown store option, option=endpoint_url, regoin") as caught:
        StoreOptions.of("s3://bucket", endpoint_url="http://x", regoin="y", region="z")
    assert "backend, endpoint, region, path_style, profile, ca_bundle, proxy, concurrency" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backend", "rust"),
        ("backend", ""),
        ("endpoint", "127.0.0.1:9000"),
        ("endpoint", "s3://bucket"),
        ("endpoint", "https://"),
        ("endpoint", "https://host:port"),
        ("endpoint", "https://host/?x=1"),
        ("endpoint", 9000),
        ("region", ""),
        ("region", " "),
        ("region", 1),
        ("path_style", "maybe"),
        ("path_style", 2),
        ("concurrency", 0),
        ("concurrency", -1),
        ("concurrency", 1.5),
        ("concurrency", 4097),
        ("concurrency", True),
        ("concurrency", "many"),
        ("concurrency", 10**400),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", "nan"),
        ("timeout", float("inf")),
        ("connect_timeout", 0),
        ("retry_seconds", -0.1),
        ("access_key_id", ""),
        ("secret_access_key", 5),
        ("secret_access_key", ""),
    ],
)
def test_an_unusable_value_is_refused_by_name(name, value):
    with pytest.raises(Invalid, match=f"option={name}") as caught:
        StoreOptions.of("s3://bucket", **{name: value})
    assert caught.value.kind == "bad_option"


def test_a_bad_variable_is_named_itself(monkeypatch):
    monkeypatch.setenv("GYM_OBJSTORE_CONCURRENCY", "lots")
    with pytest.raises(Invalid, match="option=GYM_OBJSTORE_CONCURRENCY, value='lots'"):
        StoreOptions.of("s3://bucket")


def test_no_retries_at_all_is_a_choice():
    assert StoreOptions.of("s3://bucket", retry_seconds=0).retry_seconds == 0.0


@pytest.mark.parametrize(
    "given",
    [
        {"access_key_id": "a"},
        {"secret_access_key": "b"},
        {"session_token": "c"},
        {"access_key_id": "a", "session_token": "c"},
    ],
)
def test_half_of_the_credentials_is_refused(given):
    with pytest.raises(Invalid):
        StoreOptions.of("s3://bucket", **given)


@pytest.mark.parametrize("name", ["endpoint", "proxy"])
def test_an_address_with_a_password_is_refused_and_not_repeated(name):
    with pytest.raises(Invalid) as caught:
        StoreOptions.of("s3://bucket", **{name: f"http://user:{CANARY}@host:9000"})
    assert caught.value.kind == "secret_in_url"
    assert CANARY not in str(caught.value)


def test_a_secret_is_in_no_text():
    options = StoreOptions.of("s3://bucket", **KEYS)
    texts = [repr(options), str(options), str(options.describe()), repr([options.secret_access_key])]
    assert [text for text in texts if CANARY in text] == []
    assert "secret_access_key=***" in repr(options)
    assert options.secret_access_key.reveal() == CANARY


def test_a_secret_is_in_no_traceback_that_shows_variables():
    with pytest.raises(Invalid) as caught:
        StoreOptions.of("s3://bucket", nonsense=1, **KEYS)
    ours = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    del ours.stack[0]  # this test's own variables
    assert CANARY not in "".join(ours.format())


def test_a_secret_that_is_not_masked_is_refused():
    with pytest.raises(Invalid, match="masked") as caught:
        StoreOptions("s3://bucket", access_key_id="a", secret_access_key=CANARY)  # type: ignore[arg-type]
    assert CANARY not in str(caught.value)


def test_a_pickle_leaves_explicit_credentials_out_and_keeps_the_rest():
    options = StoreOptions.of("s3://bucket", region="r", concurrency=7, **KEYS)
    pickled = pickle.dumps(options)
    assert CANARY.encode() not in pickled
    revived = pickle.loads(pickled)
    assert revived == replace(options, access_key_id=None, secret_access_key=None, session_token=None)
    assert sources(revived)["secret_access_key"] == "left out of the pickle"
    assert sources(revived)["region"] == "argument"


def test_a_pickle_without_secrets_is_the_same_options():
    options = StoreOptions.of("s3://bucket", region="r")
    assert pickle.loads(pickle.dumps(options)) == options
    assert sources(pickle.loads(pickle.dumps(options))) == sources(options)


def test_a_secret_by_itself_is_neither_pickled_nor_copied():
    for attempt in (pickle.dumps, copy.deepcopy):
        with pytest.raises(Unusable):
            attempt(Masked(CANARY))


def test_options_are_frozen_and_equal_ones_are_one_key():
    options = StoreOptions.of("s3://bucket/x", **KEYS)
    with pytest.raises(FrozenInstanceError):
        options.url = "s3://other"  # type: ignore[misc]
    assert len({options, StoreOptions.of("s3://bucket/x/", **KEYS)}) == 1
    assert options != StoreOptions.of("s3://bucket/x", **{**KEYS, "secret_access_key": "other"})
