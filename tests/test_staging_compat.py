# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""On the same input this package and the installed nemo-gym make the same records, digests and coordinates."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from nemo_gym.token_id_capture import staging as gym
from nemo_gym.token_id_capture.staging import records as gym_records
from nemo_gym.token_id_capture.staging.digest import compute_staging_digest as gym_staging_digest

from gym_objstore import rollout_capture, routed_experts, staging_digests
from gym_objstore import wire_ledger as ledger
from gym_objstore import wire_staging as wire
from gym_objstore.testing.staged_rollouts import admission, ledger_row, receipt_of, staged_call
from tests.alike import outcome, plain, quickly

HEX = st.sampled_from(["0" * 64, "ab" * 32, "A" * 64, "0" * 63, "0" * 64 + "\n"])
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 2, 3, 2**63, 2**64, 10**30, 0.0, -0.0, 1.0, 1.5, 1e39, math.nan, math.inf]),
    st.sampled_from(["", "x", "1", "call-0", "text", "token_in", "staged", "capture_failed", "content", "\ud800"]),
    HEX,
    st.sampled_from([[], [1], [1, 2], [-1], [True], [1.0], ["1"], [2**64], [0.0, 1.0], [None], {}, {"a": 1}, [{}]]),
)


# --- records ---------------------------------------------------------------------------------------------

ROOT = staged_call("call-0", extras={"a": [1, 0.5, None]})
CHILD = staged_call("call-1", after=[ROOT])
COORDS = {**plain(CHILD), "staging_key": "k", "disposition": "staged"}
RECORDS: dict[str, tuple[Any, Any, list[dict[str, Any]]]] = {
    "CaptureAdmission": (
        wire.CaptureAdmission,
        gym.CaptureAdmission,
        [plain(admission("call-0")), plain(admission("call-1", after=[ROOT]))],
    ),
    "StagedCallBaseSnapshot": (
        wire.StagedCallBaseSnapshot,
        gym.StagedCallBaseSnapshot,
        [{name: value for name, value in plain(one).items() if name != "extras"} for one in (ROOT, CHILD)],
    ),
    "StagedCallRecord": (wire.StagedCallRecord, gym.StagedCallRecord, [plain(ROOT), plain(CHILD)]),
    "StagedCallSnapshot": (wire.StagedCallSnapshot, gym.StagedCallSnapshot, [plain(ROOT)]),
    "StageResult": (wire.StageResult, gym.StageResult, [{"ok": True, "staging_key": "k"}, {"ok": False, "error": "e"}]),
    "CommitCoords": (
        wire.CommitCoords,
        gym.CommitCoords,
        [
            {name: COORDS[name] for name in wire.CommitCoords.model_fields},
            {"rollout_id": "r", "model_call_id": "c", "prev_len": 0, "delta_len": 0, "cum_len": 0}
            | {"weight_version": 1, "disposition": "capture_failed"},
        ],
    ),
    "CallRecord": (ledger.CallRecord, gym.CallRecord, [plain(ledger_row(ROOT)), plain(ledger_row(CHILD))]),
    "CaptureLedgerCommit": (
        ledger.CaptureLedgerCommit,
        gym.CaptureLedgerCommit,
        [{"rollout_id": "r", "record": plain(ledger_row(ROOT)), "request_items": [], "response_items": [{"a": 1}]}],
    ),
    "ManifestFailure": (ledger.ManifestFailure, gym_records.ManifestFailure, [{"model_call_id": "c", "reason": "r"}]),
    "RolloutManifest": (
        ledger.RolloutManifest,
        gym_records.RolloutManifest,
        [{"rollout_id": "r", "records": [plain(ledger_row(ROOT))], "failures": []}],
    ),
    "RolloutReceipt": (
        ledger.RolloutReceipt,
        gym.RolloutReceipt,
        [
            plain(receipt_of([ROOT, CHILD])),
            {"rollout_id": "r", "capture_poisoned": True, "failure_reason": "invalid_manifest_row"},
            plain(receipt_of([ROOT])) | {"capture_poisoned": True, "failure_reason": "unresolved_parent"},
        ],
    ),
}


@st.composite
def damaged_records(draw: st.DrawFn) -> tuple[Any, Any, dict[str, Any]]:
    ours, theirs, examples = RECORDS[draw(st.sampled_from(sorted(RECORDS)))]
    fields = dict(draw(st.sampled_from(examples)))
    for name in draw(st.lists(st.sampled_from([*sorted(ours.model_fields), "unknown"]), max_size=3)):
        if draw(st.integers(0, 4)) == 0:
            fields.pop(name, None)
        else:
            fields[name] = draw(ODD)
    return ours, theirs, fields


@settings(quickly, max_examples=300)
@given(damaged_records())
def test_every_record_gets_the_same_verdict_and_the_same_json(case: tuple[Any, Any, dict[str, Any]]) -> None:
    ours, theirs, fields = case
    text = json.dumps(fields)
    assert outcome(lambda: plain(ours.model_validate(fields))) == outcome(lambda: plain(theirs.model_validate(fields)))
    assert outcome(lambda: plain(ours.model_validate_json(text))) == outcome(
        lambda: plain(theirs.model_validate_json(text))
    )


def test_every_field_and_its_default_is_the_same() -> None:
    for ours, theirs, examples in RECORDS.values():
        assert set(ours.model_fields) == set(theirs.model_fields)
        for fields in examples:
            assert plain(ours.model_validate(fields)) == plain(theirs.model_validate(fields))


# --- digests ---------------------------------------------------------------------------------------------

FLOATS = st.floats(allow_nan=True, allow_infinity=True)
EXTRAS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**64), 2**64), FLOATS, st.text(), st.binary(max_size=1)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3) | st.tuples(),
    max_leaves=8,
)
IDS = st.lists(st.one_of(st.integers(0, 200_000), st.integers(-1, 2**64), st.booleans()), max_size=5)


@quickly
@given(st.one_of(st.none(), st.dictionaries(st.text(max_size=3), EXTRAS, max_size=3), st.lists(st.integers())))
def test_extras_have_the_same_digest_or_none(extras: Any) -> None:
    ours = outcome(lambda: staging_digests.compute_extras_digest(extras))
    assert ours == outcome(lambda: gym.compute_extras_digest(extras))


@quickly
@given(IDS, st.one_of(st.none(), HEX))
def test_token_ids_have_the_same_hashes_or_none(ids: list[int], parent: str | None) -> None:
    assert outcome(lambda: staging_digests.hash_token_ids(ids)) == outcome(lambda: gym.hash_token_ids(ids))
    ours = outcome(lambda: staging_digests.compute_chain_hash(parent, ids))
    assert ours == outcome(lambda: gym.compute_chain_hash(parent, ids))


@quickly
@given(st.text(min_size=1), st.integers(0, 2**64), st.lists(st.tuples(st.integers(0, 2**64), FLOATS), min_size=1))
def test_staged_calls_have_the_same_digest_or_none(
    rollout_id: str, weight_version: int, tokens: list[tuple[int, float]]
) -> None:
    fields = {**plain(ROOT), "rollout_id": rollout_id, "weight_version": weight_version}
    fields |= {"delta_len": len(tokens), "cum_len": len(tokens), "token_mask_delta": [1.0] * len(tokens)}
    fields |= {"token_ids_delta": [one for one, _ in tokens], "generation_log_probs_delta": [lp for _, lp in tokens]}
    del fields["digest"], fields["extras"]
    ours = outcome(lambda: staging_digests.compute_staging_digest(fields))
    assert ours == outcome(lambda: gym_staging_digest(**fields))


def test_the_golden_vectors_of_nemo_gym_hold() -> None:
    vectors = gym.load_golden_vectors()
    assert staging_digests.compute_extras_digest(vectors["extras"]) == vectors["extras_digest"]
    assert staging_digests.compute_staging_digest(vectors["staged_call"]) == vectors["staged_call_digest"]


# --- capture on the worker -------------------------------------------------------------------------------


class Sink:
    """Answers with the result class of the package under test, in the way the case asks for."""

    def __init__(self, result: Any, manner: str) -> None:
        self.result, self.manner = result, manner
        self.staged: list[tuple[dict[str, Any], Any]] = []

    def stage(self, record: Any, **given: Any) -> Any:
        if self.manner == "legacy" and given:
            msg = "stage() got an unexpected keyword argument"
            raise TypeError(msg)
        if self.manner == "broken":
            raise ConnectionError
        self.staged.append((plain(record), given))
        answers = {"rejecting": {"ok": False, "error": "full"}, "silent": None}
        answer = answers.get(self.manner, {"ok": True, "staging_key": "k"})
        return answer and self.result(**answer)


@st.composite
def completions(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], str]:
    admitted = draw(st.sampled_from([admission("call-0"), admission("call-1", after=[ROOT])]))
    prompt = [*admitted.required_prefix_token_ids, *draw(st.lists(st.integers(0, 9), max_size=2))]
    if draw(st.integers(0, 4)) == 0:
        prompt = draw(st.lists(st.sampled_from([11, 12, -1, True, 2**64]), max_size=5))
    generated = draw(st.lists(st.integers(0, 9), max_size=3))
    logprobs = [-0.5] * len(generated)
    if draw(st.integers(0, 4)) == 0:
        logprobs = draw(st.lists(st.sampled_from([-0.5, 0.0, math.nan, -1e39, -1]), max_size=3))
    optional = {"extras": draw(st.sampled_from([None, {"a": 1}, {"a": (1,)}]))}
    optional["attachments"] = draw(st.sampled_from([None, {}, {"pixels": b"1"}]))
    completion = {"prompt_token_ids": prompt, "generated_token_ids": generated, "generated_logprobs": logprobs}
    manner = draw(st.sampled_from(["good", "legacy", "broken", "rejecting", "silent"]))
    return plain(admitted), {**completion, **optional}, manner


@settings(quickly, max_examples=200)
@given(completions())
def test_a_completed_call_stages_the_same_row_and_gets_the_same_coordinates(
    case: tuple[dict[str, Any], dict[str, Any], str],
) -> None:
    admitted, completion, manner = case
    ours, theirs = Sink(wire.StageResult, manner), Sink(gym.StageResult, manner)
    our_capture = rollout_capture.RolloutTokenCapture(sink=ours, weight_version_fn=lambda: 3)
    their_capture = gym.RolloutTokenCapture(sink=theirs, weight_version_fn=lambda: 3)
    our_call = our_capture.begin_call(wire.CaptureAdmission(**admitted))
    their_call = their_capture.begin_call(gym.CaptureAdmission(**admitted))
    our_coords = plain(our_capture.complete_call(our_call, **completion))
    assert our_coords == plain(their_capture.complete_call(their_call, **completion))
    assert ours.staged == theirs.staged
    assert plain(gym.CommitCoords.model_validate(our_coords)) == our_coords


# --- routed experts --------------------------------------------------------------------------------------

CUBES = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)).flatmap(
    lambda shape: st.lists(
        st.lists(
            st.lists(st.integers(-200, 40_000), min_size=shape[2], max_size=shape[2]),
            min_size=shape[1],
            max_size=shape[1] + 1,
        ),
        min_size=shape[0],
        max_size=shape[0],
    )
)


@quickly
@given(CUBES, st.sampled_from(["int8", "int16", "int32", "int64"]))
def test_routed_experts_are_encoded_and_decoded_alike(cube: list[list[list[int]]], dtype: str) -> None:
    envelope = outcome(lambda: routed_experts.encode_routed_experts(cube, dtype=dtype))
    assert envelope == outcome(lambda: gym.encode_routed_experts(cube, dtype=dtype))
    for payload in (cube, envelope, envelope[:-4], envelope.replace(dtype, "int8")):
        ours = outcome(lambda payload=payload: routed_experts.decode_routed_experts(payload))
        theirs = outcome(lambda payload=payload: gym.decode_routed_experts(payload))
        if theirs == "refused":
            assert ours == "refused"
        else:
            found = (ours.values, ours.dtype, ours.shape)
            assert found == (theirs.values, theirs.dtype, (len(theirs.values), theirs.num_layers, theirs.topk))
        assert outcome(lambda payload=payload: routed_experts.routed_experts_token_count(payload)) == outcome(
            lambda payload=payload: gym.routed_experts_token_count(payload)
        )


@quickly
@given(st.integers(-1, 6), st.integers(-1, 6), st.integers(-1, 12))
def test_routes_cover_the_same_part_of_a_span(carry: int, generation: int, routes: int) -> None:
    lengths = {"carry_len": carry, "generation_len": generation, "staged_route_len": routes}
    assert outcome(lambda: routed_experts.classify_route_span(**lengths)) == outcome(
        lambda: gym.classify_route_span(**lengths)
    )
