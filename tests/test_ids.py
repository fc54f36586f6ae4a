# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Ids become path segments reversibly, injectively and safely."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_objstore.errors import Invalid
from gym_objstore.ids import SEGMENT_LIMIT, identifier, require_id, require_ids, segment

any_text = st.text(st.characters(), max_size=400)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0-0", "0-0"),
        ("group_g3-a1", "group_g3-a1"),
        ("Task", "!54ask"),
        ("a b+c=d%", "a!20b!2bc!3dd!25"),
        ("..", "!2e."),
        (".hidden", "!2ehidden"),
        ("a/../b", "a!2f..!2fb"),
        ("é", "!c3!a9"),
        ("!", "!21"),
        ("", "!"),
        ("\x00", "!00"),
        ("\ud800", "!ed!a0!80"),
    ],
)
def test_hostile_ids_become_these_segments(given, expected):
    assert segment(given) == expected
    assert identifier(expected) == given


@given(any_text)
def test_every_string_has_a_safe_segment_that_leads_back_to_it(text):
    found = segment(text)
    assert re.fullmatch(r"[a-z0-9!_-][a-z0-9._!-]*", found)
    assert len(found) <= SEGMENT_LIMIT
    assert identifier(found) in (text, None)
    assert identifier(found) == text or len(text.encode("utf-8", "surrogatepass")) > 32


@given(st.lists(any_text, min_size=2, max_size=8, unique=True))
def test_distinct_ids_have_distinct_segments(texts):
    assert len({segment(text).lower() for text in texts}) == len(texts)


def test_long_ids_that_differ_only_at_the_end_are_kept_apart():
    one, other = "x" * 300 + "1", "x" * 300 + "2"
    assert segment(one) != segment(other)
    assert segment(one).startswith("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx!h")
    assert identifier(segment(one)) is None


def test_an_escape_is_never_cut_in_two():
    assert re.fullmatch(r"(?:![0-9a-f]{2})*!h[0-9a-f]{64}", segment("A" * 200))


@pytest.mark.parametrize("text", ["", "A", "a/b", "!zz", "!2", ".x", "!61", "é", "a" * 97, "!h12"])
def test_text_that_no_id_has_as_its_segment_is_refused(text):
    with pytest.raises(Invalid, match="not a segment"):
        identifier(text or "!!")


@pytest.mark.parametrize("bad", [None, 7, b"x", ["x"]])
def test_an_id_must_be_a_string(bad):
    with pytest.raises(Invalid, match="rollout id must be a string, type="):
        require_id(bad, "rollout id")


def test_an_empty_id_is_refused_by_name():
    with pytest.raises(Invalid, match="run id must not be empty"):
        require_id("", "run id")


@pytest.mark.parametrize("bare", ["r1", b"r1"])
def test_a_bare_string_is_no_list_of_ids(bare):
    with pytest.raises(TypeError, match="rollout ids must be a list"):
        require_ids(bare, "rollout ids")


def test_one_bad_id_refuses_the_whole_list():
    with pytest.raises(Invalid):
        require_ids(["a", "", "b"], "rollout ids")


def test_duplicates_count_once_in_first_seen_order():
    assert require_ids(["b", "a", "b"], "rollout ids") == ("b", "a")
