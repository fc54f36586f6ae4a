# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""An admission and a generation make exactly the pinned row and coordinates, or none."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gym_objstore.errors import Invalid
from gym_objstore.staged_calls import Generation, admit, failed_coords, seal, staged_coords
from gym_objstore.testing.staged_rollouts import admission, staged_call
from gym_objstore.wire_staging import CaptureAdmission

VECTORS = json.loads((Path(__file__).parent / "vectors" / "staging-records.json").read_text())
ROOT = staged_call("root", prompt=[1, 2], generated=[3])
CHILD = admission("child", after=[ROOT])
CHAINED = CHILD.model_copy(update={"required_prefix_token_ids": (), "staging_chain": ("rollout-1/root",)})


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["admission"]["mode"])
def test_rows_and_coordinates_are_pinned(case: dict[str, Any]) -> None:
    call = admit(CaptureAdmission.model_validate(case["admission"]), case["weight_version"], None)
    generation = Generation(
        case["prompt_token_ids"], case["generated_token_ids"], case["generated_logprobs"], case["extras"]
    )
    record = seal(call, generation)
    assert record.model_dump(mode="json") == case["record"]
    assert staged_coords(record, case["coords"]["staging_key"]).model_dump(mode="json") == case["coords"]


def test_the_delta_is_what_follows_the_admitted_prefix() -> None:
    record = seal(admit(CHILD, 0, None), Generation([1, 2, 3, 4, 5], [6, 7], [-0.5, -0.25]))
    assert record.token_ids_delta == (4, 5, 6, 7)
    assert record.token_mask_delta == (0.0, 0.0, 1.0, 1.0)
    assert record.generation_log_probs_delta == (0.0, 0.0, -0.5, -0.25)
    assert (record.prev_len, record.delta_len, record.cum_len) == (3, 4, 7)


def test_a_prefix_named_by_a_chain_is_the_one_that_was_resolved() -> None:
    call = admit(CHAINED, 0, [1, 2, 3])
    assert seal(call, Generation([1, 2, 3], [6], [-0.5])).token_ids_delta == (6,)


@pytest.mark.parametrize(
    ("admitted", "prefix"),
    [
        (admission("root"), [1]),
        (CHILD, []),
        (CHILD, [1, 2]),
        (CHILD, [1, 2, 4]),
        (CHILD, [1, 2, -3]),
        (CHAINED, None),
        (CHAINED, []),
        (CHAINED, [1, 2, 3, 4]),
        (CHAINED, [1, 2, 3.0]),
        (CHAINED, [1, 2, True]),
        (CHAINED, "abc"),
    ],
)
def test_a_prefix_that_is_not_the_admissions_is_refused(admitted: CaptureAdmission, prefix: Any) -> None:
    with pytest.raises(Invalid) as refused:
        admit(admitted, 0, prefix)
    assert refused.value.kind == "bad_prefix"
    assert "rollout_id=rollout-1, model_call_id=" in str(refused.value)


@pytest.mark.parametrize("version", [-1, 1.0, True, None, "7"])
def test_a_weight_version_that_is_no_count_is_refused(version: Any) -> None:
    with pytest.raises(Invalid, match="weight_version must be a count"):
        admit(CHILD, version, None)


@pytest.mark.parametrize(
    "generation",
    [
        Generation([1, 2], [6], [-0.5]),
        Generation([1, 2, 9, 4], [6], [-0.5]),
        Generation([], [6], [-0.5]),
        Generation([1, 2, 3], [], []),
        Generation([1, 2, 3], [6], []),
        Generation([1, 2, 3], [6], [-0.5, -0.5]),
        Generation([1, 2, 3], [6], [math.nan]),
        Generation([1, 2, 3], [-6], [-0.5]),
        Generation([1, 2, 3, None], [6], [-0.5]),
        Generation([1, 2, 3], [6], [-0.5], {"pixels": b"1"}),
        Generation(None, [6], [-0.5]),
    ],
)
def test_a_generation_that_makes_no_valid_row_is_refused(generation: Generation) -> None:
    with pytest.raises((ValueError, TypeError)):
        seal(admit(CHILD, 0, None), generation)


def test_failed_coordinates_say_where_the_call_stood_and_nothing_else() -> None:
    coords = failed_coords(admit(CHILD, 4, None))
    assert (coords.disposition, coords.parent_call_id, coords.weight_version) == ("capture_failed", "root", 4)
    assert (coords.prev_len, coords.delta_len, coords.cum_len, coords.staging_key) == (3, 0, 3, None)
