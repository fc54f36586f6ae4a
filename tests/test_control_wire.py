# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What both ends of the control routes agree on."""

from __future__ import annotations

import re

import pytest

from gym_objstore import control_wire
from gym_objstore.control_wire import require_token, require_wire_id, require_wire_ids
from gym_objstore.errors import Invalid


def test_the_wire_is_nemo_gyms():
    assert control_wire.PREFIX == "/training-token-capture/control"
    assert control_wire.BATCH_LIMIT == 4096


@pytest.mark.parametrize("rollout_id", ["a", "7-0-a1", "A.b_c-d", "...", "..a", "-", "0" * 1000])
def test_an_id_of_safe_characters_is_itself(rollout_id):
    assert require_wire_id(rollout_id) == rollout_id


@pytest.mark.parametrize(
    "rollout_id", ["", ".", "..", "a/b", "a\\b", "a b", "a%20", "é", "٣", "a\n", "0" * 1001, None, 1]
)
def test_any_other_id_is_refused(rollout_id):
    with pytest.raises(Invalid) as caught:
        require_wire_id(rollout_id)
    assert caught.value.kind == "bad_id"


def test_a_long_bad_id_is_shown_in_part():
    with pytest.raises(Invalid) as caught:
        require_wire_id("/" * 100_000)
    assert len(str(caught.value)) < 400


def test_ids_are_distinct_and_in_first_seen_order():
    assert require_wire_ids(iter(["b", "a", "b"])) == ("b", "a")


def test_a_bare_string_is_no_list():
    with pytest.raises(TypeError, match=re.escape("rollout ids must be a list of ids, not one str")):
        require_wire_ids("abc")


def test_a_token_is_its_utf8():
    assert require_token("schön") == b"sch\xc3\xb6n"
