# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Exact tokens are read from Megatron's offloaded payloads, and from nothing that only looks like them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from nemo_gym.token_id_capture.adapters.megatron import MegatronCaptureAdapter as GymMegatronCaptureAdapter

from gym_objstore.errors import Invalid
from gym_objstore_megatron import MegatronCaptureAdapter

FIELDS: dict[str, Any] = {
    "prompt_token_ids": [1, 2, 151643],
    "generated_token_ids": [3, 4],
    "generated_log_probs": [-0.25, -1],
    "routed_experts": [[[1]]],
}


@pytest.mark.parametrize("payload", [FIELDS, SimpleNamespace(**FIELDS), {**FIELDS, "prompt_token_ids": (1, 2, 151643)}])
def test_objects_and_mappings_are_read_as_nemo_gym_reads_them(payload: Any) -> None:
    adapter, theirs = MegatronCaptureAdapter(), GymMegatronCaptureAdapter()
    assert adapter.extract_prompt_ids(payload) == theirs.extract_prompt_ids(payload) == [1, 2, 151643]
    assert adapter.extract_generation(payload) == theirs.extract_generation(payload) == ([3, 4], [-0.25, -1.0])
    assert type(adapter.extract_generation(payload)[1][1]) is float


def test_no_extras_are_staged() -> None:
    assert MegatronCaptureAdapter().extract_extras(FIELDS) is None


def test_the_prefix_goes_into_the_request_itself() -> None:
    request: dict[str, Any] = {"offload_params": {}}
    assert MegatronCaptureAdapter().enter_prefix(request, [1, 2]) is request
    assert request == {"offload_params": {}, "required_prefix_token_ids": [1, 2]}


@pytest.mark.parametrize("value", [None, "1 2", b"12", 7, {1, 2}, [1, 2.0], [1, "2"], [1, True], [1, None]])
def test_token_ids_of_another_shape_are_refused(value: Any) -> None:
    adapter = MegatronCaptureAdapter()
    with pytest.raises(Invalid, match="prompt_token_ids"):
        adapter.extract_prompt_ids({**FIELDS, "prompt_token_ids": value})
    with pytest.raises(Invalid, match="generated_token_ids"):
        adapter.extract_generation(SimpleNamespace(**{**FIELDS, "generated_token_ids": value}))


@pytest.mark.parametrize("value", [None, "12", [-0.25, "-1"], [-0.25, True], [-0.25, None], [-0.25]])
def test_log_probs_of_another_shape_are_refused(value: Any) -> None:
    with pytest.raises(Invalid) as refused:
        MegatronCaptureAdapter().extract_generation({**FIELDS, "generated_log_probs": value})
    assert refused.value.kind == "bad_engine_response"


def test_a_payload_without_the_fields_is_refused() -> None:
    with pytest.raises(Invalid, match="prompt_token_ids must be a sequence, type=NoneType"):
        MegatronCaptureAdapter().extract_prompt_ids(object())
