# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from gym_objstore.errors import Invalid, Unavailable
from gym_objstore.store.description import describe
from gym_objstore.store.options import StoreOptions

CANARY = "canary-in-a-coal-mine"


@pytest.fixture
def aws() -> Path:
    folder = Path.home() / ".aws"
    folder.mkdir()
    return folder


def test_a_description_names_the_source_of_everything_and_no_secret(aws: Path, monkeypatch):
    (aws / "config").write_text("[profile lab]\nregion = r-3\nendpoint_url = http://127.0.0.1:9\n")
    (aws / "credentials").write_text(f"[lab]\naws_access_key_id = lab-key\naws_secret_access_key = {CANARY}\n")
    monkeypatch.setenv("GYM_OBJSTORE_PROFILE", "lab")
    found = describe(StoreOptions.of("s3://bucket"))
    assert [tuple(one) for one in found] == [
        ("endpoint", "http://127.0.0.1:9", "profile lab"),
        ("region", "r-3", "profile lab"),
        ("path_style", "True", "derived from the endpoint and bucket"),
        ("identity", "lab-key", "shared-credentials-file"),
    ]


def test_a_description_of_explicit_settings_repeats_their_sources(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    keys = {"access_key_id": "explicit", "secret_access_key": CANARY}
    found = describe(StoreOptions.of("s3://bucket", region="r", path_style=False, **keys))
    assert [tuple(one) for one in found] == [
        ("endpoint", "http://127.0.0.1:9", "environment variable AWS_ENDPOINT_URL"),
        ("region", "r", "argument"),
        ("path_style", "False", "argument"),
        ("identity", "explicit", "argument"),
    ]
    assert CANARY not in json.dumps(found)


def test_a_description_without_credentials_says_that_there_are_none():
    assert tuple(describe(StoreOptions.of("s3://buck.et"))[-2:]) == (
        ("path_style", "True", "derived from the endpoint and bucket"),
        ("identity", "", "none"),
    )


def test_a_description_that_needs_what_fails_says_so(aws: Path):
    (aws / "config").write_text("[default]\ncredential_process = /no/such/program\n")
    with pytest.raises(Unavailable) as caught:
        describe(StoreOptions.of("s3://bucket"))
    assert caught.value.kind == "credentials_failed"
    with pytest.raises(Invalid):
        describe(StoreOptions.of("s3://bucket", profile="nobody"))
