# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a rule removes is nowhere in the record that is stored, and the rest of it is unchanged."""

from __future__ import annotations

import base64
import json
import pickle
import random
from typing import Any

import orjson
import pytest

from gym_objstore.errors import Invalid
from gym_objstore.redaction import emails, keys, media, redaction

PIXELS = random.Random(7).randbytes(600)
BASE64 = base64.b64encode(PIXELS).decode()
WRAPPED = base64.encodebytes(PIXELS).decode()
URLSAFE = base64.urlsafe_b64encode(PIXELS).decode()
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{WRAPPED}-----END RSA PRIVATE KEY-----"

SECRETS = [
    "sk-proj-abcdefghijklmnop",
    "sk-ant-api03-abcdefgh_ijklmnop",
    "AKIAABCDEFGHIJKLMNOP",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_abcdefghijklmnopqrstuv",
    "glpat-abcdefghijklmnopqrst",
    "hf_abcdefghijklmnopqrstuvwxyzabcdef",
    "nvapi-abcdefghijklmnopqrstuvwx",
    "AIzaabcdefghijklmnopqrstuvwxyz012345678",
    "xoxb-1234567890-abc",
    "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
    PEM,
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_credential_is_known_by_its_shape(secret: str) -> None:
    assert keys("content", f"use {secret} now") == "use [redacted key] now"


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("API_KEY=abcd1234 next", "API_KEY=[redacted key] next"),
        ('{"api_key": "a b\\"c", "x": 1}', '{"api_key": "[redacted key]", "x": 1}'),
        ('{\\"password\\": \\"hunter2\\", \\"x\\": 1}', '{\\"password\\": \\"[redacted key]\\", \\"x\\": 1}'),
        ("Authorization: Bearer abcdefghijklmnop.qr==", "Authorization: [redacted key]"),
        ("curl -H 'X-Auth: bearer abcdefghijklmnopq'", "curl -H 'X-Auth: bearer [redacted key]'"),
        ("postgres://bob:hunter2@db/x", "postgres://[redacted key]@db/x"),
        ('{"client_secret":"cut off', '{"client_secret":"[redacted key]'),
        ("-----BEGIN PRIVATE KEY-----\ncut off", "[redacted key]"),
    ],
)
def test_a_credential_is_known_by_the_name_in_front_of_it(text: str, safe: str) -> None:
    assert keys("content", text) == safe


@pytest.mark.parametrize(
    "field", ["api_key", "apiKey", "openaiApiKey", "X-Api-Key", "Authorization", "password", "client_secret"]
)
def test_a_field_that_is_named_after_a_credential_is_one(field: str) -> None:
    assert redaction("keys")({"request": {field: "hunter2", "n": 1}}) == {"request": {field: "[redacted key]", "n": 1}}
    assert redaction("keys")({"request": {field: 1234}}) == {"request": {field: "[redacted key]"}}


@pytest.mark.parametrize(
    "text", ["the task-force asked", "max_tokens: 100", "a password is needed", "keys and tokens", "risk-averse"]
)
def test_ordinary_text_is_no_credential(text: str) -> None:
    assert keys("content", text) == text


def test_a_tool_that_takes_a_password_keeps_its_schema() -> None:
    record = {"request": {"tools": [{"parameters": {"properties": {"password": {"type": "string"}}}}]}}
    assert redaction("keys")(record) == record


@pytest.mark.parametrize(
    "address", ["bob@example.com", "bob.o'neil+x@mail.example.co.uk", "bob%40example.com", "jörg@müller.de"]
)
def test_an_address_is_replaced(address: str) -> None:
    assert "@" not in emails("content", f"write to {address}, please").replace("[redacted e-mail]", "")
    assert emails("content", "write to bob@example.com, please") == "write to [redacted e-mail], please"


@pytest.mark.parametrize("text", ["@decorator", "a @ b.c", "user@localhost", "3.5@x"])
def test_ordinary_text_is_no_address(text: str) -> None:
    assert emails("content", text) == text


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        (f"data:image/png;base64,{BASE64}", "data:image/png;base64,[redacted media, 800 characters]"),
        (
            "data:text/plain;charset=utf-8;base64,SGk=",
            "data:text/plain;charset=utf-8;base64,[redacted media, 4 characters]",
        ),
        (f"see {BASE64} there", "see [redacted media, 800 characters] there"),
        (URLSAFE, "[redacted media, 800 characters]"),
        (BASE64[:255], BASE64[:255]),
    ],
)
def test_media_are_replaced(text: str, safe: str) -> None:
    assert media("data", text) == safe


def test_media_in_lines_are_replaced_whole() -> None:
    assert (
        media("data", f"see:\n{WRAPPED}\nThanks for that")
        == "see:\n[redacted media, 810 characters]\n\nThanks for that"
    )
    assert media("arguments", json.dumps({"png": WRAPPED})) == '{"png": "[redacted media, 820 characters]\\n"}'
    assert media("data", "\n".join([BASE64[:70]] * 3)) == "\n".join([BASE64[:70]] * 3)


@pytest.mark.parametrize("field", ["signature", "encrypted_content"])
def test_signatures_and_encrypted_reasoning_are_no_media(field: str) -> None:
    assert media(field, BASE64) == BASE64


RECORD: dict[str, Any] = {
    "model_call_id": "c" * 300,
    "dialect": "messages",
    "model_ref": None,
    "started_at": 1.5,
    "status_code": 200,
    "error_category": None,
    "client_session_id": "bob@example.com",
    "request": {
        "metadata": {"user": "bob@example.com", "ann@example.com": True, "joe@example.com": None},
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "I am bob@example.com"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}},
                ],
            }
        ],
        "prompt_token_ids": [1, 2, 3],
    },
    "response": {
        "content": [{"type": "tool_use", "input": {"api_key": "hunter2"}}],
        "output": [{"arguments": json.dumps({"to": "bob@example.com", "password": "hunter2"})}],
    },
    "request_raw": "bob@example.com hunter2 " + BASE64,
    "response_raw": "data: bob@exam\n\ndata: ple.com\n\n",
    "response_base64": BASE64,
}


def test_nothing_of_what_the_rules_remove_is_in_the_record() -> None:
    before = orjson.dumps(RECORD)
    record = redaction("keys", "emails", "media")(RECORD)
    stored = orjson.dumps(record)
    for gone in (b"@", b"hunter2", BASE64.encode(), b"bob"):
        assert gone not in stored
    assert orjson.dumps(RECORD) == before
    assert record["model_call_id"] == RECORD["model_call_id"]
    assert record["request"]["prompt_token_ids"] == [1, 2, 3]
    assert record["request"]["metadata"] == {
        "user": "[redacted e-mail]",
        "[redacted e-mail]": True,
        "[redacted e-mail] 2": None,
    }
    assert not {"request_raw", "response_raw", "response_base64"} & record.keys()


def test_raw_text_that_stands_alone_is_redacted_escapes_undone() -> None:
    record = redaction("emails")({"request": None, "request_raw": '["bob\\u0040example.com"]'})
    assert record == {"request": None, "request_raw": '["[redacted e-mail]"]'}


@pytest.mark.parametrize("raw", ["data: bob@ex\n\ndata: ample.com\n\n", ": hi\n\nevent: x\ndata: bob\n\n"])
def test_the_raw_text_of_a_stream_is_not_kept(raw: str) -> None:
    record = redaction("emails")({"response": None, "response_raw": raw})
    assert record == {"response": None, "response_raw": f"[redacted stream, {len(raw)} characters]"}


def test_values_that_hold_nothing_to_remove_stay_the_same() -> None:
    record = {"request": {"a": [1, 2.5, None, True, "x"], "b": {"c": 7}}, "latency_ms": 1.5}
    assert redaction("keys", "emails", "media")(record) == record


def test_a_redaction_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(redaction("emails")))({"a": "x@y.zz"}) == {"a": "[redacted e-mail]"}


@pytest.mark.parametrize("names", [(), ("passwords",), ("keys", "")])
def test_an_unknown_rule_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(Invalid, match="redaction rules must be some of keys, emails, media") as caught:
        redaction(*names)
    assert caught.value.kind == "unknown_redaction"


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "a+" * 100_000, "password" * 20_000, "eyJ" + "a." * 50_000, "://" + "a:" * 50_000]
)
def test_long_texts_take_time_in_proportion(text: str) -> None:
    """A rule that went back over what it had read would not end within the suite's time limit."""
    assert emails("x", keys("x", text)) == text
    assert media("x", "=".join([text[:100_000]] * 3)) is not None
