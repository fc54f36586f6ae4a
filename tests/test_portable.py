# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What only Python reads becomes what every reader reads, and is said to have changed."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given

from gym_objstore.portable import loads, parse, portable
from tests import model_traffic as traffic


@pytest.mark.parametrize(
    ("text", "value", "exact"),
    [
        ('{"a": [1, 2.5, "é", null, true]}', {"a": [1, 2.5, "é", None, True]}, True),
        ('"\\ud83d\\ude00"', "😀", True),
        ('"\\ud800x"', "\ufffdx", False),
        ('{"\\udfff": 1}', {"\ufffd": 1}, False),
        ("[NaN, Infinity, -Infinity]", [None, None, None], False),
        ("18446744073709551615", 18446744073709551615, True),
        ("18446744073709551616", 18446744073709551616.0, False),
        ("-9223372036854775809", -9223372036854775808.0, False),
        ("9" * 400, None, False),
        ("null", None, True),
    ],
)
def test_a_text_is_read_as_every_reader_reads_it(text: str, value: Any, exact: bool) -> None:
    assert parse(text) == (value, exact)
    assert parse(text.encode()) == (value, exact)


def test_a_number_beyond_the_doubles_is_written_as_null() -> None:
    value, _ = parse("1e400")
    assert orjson.dumps(value) == b"null"


@pytest.mark.parametrize("body", [b"", b"{", b"{} {}", b"\xff", "é".encode("latin-1"), b"9" * 5000, b"[" * 100_000])
def test_what_is_not_json_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(body)


@pytest.mark.parametrize("levels", [201, 300, 900])
def test_nesting_too_deep_to_be_stored_is_refused(levels: int) -> None:
    with pytest.raises(ValueError, match="nested deeper than 200 levels"):
        parse(b"[" * levels + b"]" * levels)


def test_nesting_that_can_be_stored_is_exact() -> None:
    value, exact = parse(b"[" * 200 + b"]" * 200)
    assert exact
    orjson.dumps({"calls": [{"request": value}]})


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_other_unicode_encodings_are_json_too(encoding: str) -> None:
    assert parse('{"a": "é"}'.encode(encoding)) == ({"a": "é"}, True)


def test_surrogates_that_meet_become_one_character() -> None:
    assert portable(["\ud83d" + "\ude00"]) == (["😀"], False)


def test_what_json_has_no_form_for_becomes_text() -> None:
    assert portable({1: object, "x": (1, 2)})[0] == {"1": "<class 'object'>", "x": [1, 2]}


@given(traffic.JSON)
def test_an_ordinary_value_is_not_copied(value: Any) -> None:
    same, unchanged = portable(value)
    assert same is value
    assert unchanged


@pytest.mark.parametrize("text", ['"\\ud800"', "NaN", '{"a": 1}'])
def test_fast_reading_takes_whatever_python_takes(text: str) -> None:
    assert loads(text) in ("\ud800", None, {"a": 1})


def test_fast_reading_refuses_what_is_no_json() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        loads("data")
