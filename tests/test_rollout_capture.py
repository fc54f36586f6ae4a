# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A worker stages before it acknowledges, once for each call, and never fails the call for capture's sake."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gym_objstore.errors import Invalid, Unusable
from gym_objstore.rollout_capture import ActiveCall, RolloutTokenCapture, install_capture
from gym_objstore.testing.staged_rollouts import admission
from gym_objstore.wire_staging import CommitCoords, StagedCallRecord, StageResult

PIXELS = {"pixels": b"\x00"}
STORED = StageResult(ok=True, staging_key="staged/key")


class Sink:
    def __init__(self, answer: Any = STORED) -> None:
        self.answer = answer
        self.staged: list[tuple[StagedCallRecord, dict[str, Any]]] = []

    def stage(self, record: StagedCallRecord, **given: Any) -> StageResult:
        self.staged.append((record, given))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class LegacySink:
    def stage(self, record: StagedCallRecord) -> StageResult:
        return StageResult(ok=True, staging_key=record.model_call_id)


class Adapter:
    """Takes ``(prompt, generated, logprobs, extras)`` as the engine's response."""

    def enter_prefix(self, request_payload: dict[str, Any], prefix_ids: list[int]) -> dict[str, Any]:
        return {**request_payload, "prefix": prefix_ids}

    def extract_prompt_ids(self, response_payload: Any) -> list[int]:
        return response_payload[0]

    def extract_generation(self, response_payload: Any) -> tuple[list[int], list[float]]:
        return response_payload[1], response_payload[2]

    def extract_extras(self, response_payload: Any) -> dict[str, Any] | None:
        return response_payload[3]


class Host:
    capture: RolloutTokenCapture | None = None

    def install_token_capture(self, capture: RolloutTokenCapture) -> None:
        self.capture = capture


def capture_into(sink: Any, **fields: Any) -> RolloutTokenCapture:
    return RolloutTokenCapture(sink=sink, **{"weight_version_fn": lambda: 7, **fields})


def complete(capture: RolloutTokenCapture, call: ActiveCall, **fields: Any) -> CommitCoords:
    generation = {"prompt_token_ids": [1, 2], "generated_token_ids": [3], "generated_logprobs": [-0.5]}
    return capture.complete_call(call, **{**generation, **fields})


def completed(sink: Any, **fields: Any) -> CommitCoords:
    capture = capture_into(sink)
    return complete(capture, capture.begin_call(admission("call-1")), **fields)


def test_coordinates_are_those_of_the_row_the_sink_stored() -> None:
    sink = Sink()
    coords = completed(sink, extras={"a": 1})
    (record, given), *others = sink.staged
    assert (others, given) == ([], {})
    assert (coords.disposition, coords.staging_key, coords.weight_version) == ("staged", "staged/key", 7)
    for name in ("rollout_id", "model_call_id", "digest", "extras_digest", "chain_hash", "cumulative_hash", "cum_len"):
        assert getattr(coords, name) == getattr(record, name)


@pytest.mark.parametrize("attachments", [{}, PIXELS])
def test_attachments_are_passed_on_untouched_when_given(attachments: dict[str, Any]) -> None:
    sink = Sink()
    with_attachments = completed(sink, attachments=attachments)
    assert sink.staged[0][1]["attachments"] is attachments
    assert with_attachments == completed(Sink())


def test_a_sink_without_attachments_works_until_there_are_some(caplog: pytest.LogCaptureFixture) -> None:
    assert completed(LegacySink()).staging_key == "call-1"
    assert completed(LegacySink(), attachments=PIXELS).disposition == "capture_failed"
    assert "token capture failed, rollout_id=rollout-1, model_call_id=call-1" in caplog.text


@pytest.mark.parametrize(
    "answer",
    [
        ConnectionError("bucket down"),
        RecursionError(),
        StageResult(ok=False, error="bucket full"),
        None,
        True,
        {"ok": 1},
    ],
)
def test_whatever_the_sink_does_the_call_is_answered(answer: Any) -> None:
    coords = completed(Sink(answer))
    assert (coords.disposition, coords.staging_key, coords.delta_len) == ("capture_failed", None, 0)


def test_a_rejected_row_is_logged_with_the_sinks_error(caplog: pytest.LogCaptureFixture) -> None:
    completed(Sink(StageResult(ok=False, error="bucket full")))
    assert "rejected the call, rollout_id=rollout-1, model_call_id=call-1, error=bucket full" in caplog.text


@pytest.mark.parametrize(
    "fields",
    [
        {"generated_logprobs": []},
        {"generated_token_ids": [-3]},
        {"prompt_token_ids": None},
        {"extras": {"a": (1,)}},
        {"extras": {"a": float("nan")}},
    ],
)
def test_a_row_that_cannot_be_built_reaches_no_sink(fields: dict[str, Any]) -> None:
    sink = Sink()
    assert completed(sink, **fields).disposition == "capture_failed"
    assert sink.staged == []


def test_token_contents_stay_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    completed(Sink(), prompt_token_ids=[1, 2, 424242], generated_logprobs=[])
    assert "424242" not in caplog.text


def test_the_weight_version_is_the_one_at_admission() -> None:
    versions = iter([1, 2])
    capture = capture_into(Sink(), weight_version_fn=lambda: next(versions))
    early, late = capture.begin_call(admission("early")), capture.begin_call(admission("late"))
    assert complete(capture, late).weight_version == 2
    assert complete(capture, early).weight_version == 1


def test_the_engines_own_weight_version_is_taken_without_asking() -> None:
    capture = capture_into(Sink(), weight_version_fn=lambda: pytest.fail("asked"))
    assert complete(capture, capture.begin_call(admission("call-1"), weight_version=0)).weight_version == 0


def test_a_call_is_completed_once_in_whatever_way() -> None:
    sink = Sink()
    capture = capture_into(sink, adapter=Adapter())
    call = capture.begin_call(admission("call-1"))
    assert not call.completed
    complete(capture, call)
    assert call.completed
    with pytest.raises(Unusable, match="already completed, rollout_id=rollout-1, model_call_id=call-1"):
        complete(capture, call)
    with pytest.raises(Unusable):
        capture.complete_call_from_response(call, ([1], [2], [-0.5], None))
    with pytest.raises(Unusable):
        capture.fail_call(call, reason="client gone")
    assert len(sink.staged) == 1


def test_of_many_threads_one_completes_a_call() -> None:
    sink = Sink()
    capture = capture_into(sink)
    call = capture.begin_call(admission("call-1"))
    together = threading.Barrier(8)

    def attempt(_: int) -> str:
        together.wait()
        try:
            return complete(capture, call).disposition
        except Unusable:
            return "refused"

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(attempt, range(8))) == ["refused"] * 7 + ["staged"]
    assert len(sink.staged) == 1


def test_calls_are_staged_at_the_same_time() -> None:
    together = threading.Barrier(2, timeout=30)

    class Meeting(Sink):
        def stage(self, record: StagedCallRecord, **given: Any) -> StageResult:
            together.wait()
            return super().stage(record, **given)

    capture = capture_into(Meeting())
    calls = [capture.begin_call(admission(name)) for name in ("call-1", "call-2")]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda call: complete(capture, call).disposition, calls))
    assert found == ["staged", "staged"]


def test_a_call_is_completed_from_the_engines_response() -> None:
    sink = Sink()
    capture = capture_into(sink, adapter=Adapter())
    call = capture.begin_call(admission("call-1"))
    coords = capture.complete_call_from_response(call, ([1], [2, 3], [-0.5, -1.0], {"a": 1}), attachments=PIXELS)
    assert coords.disposition == "staged"
    assert sink.staged[0][0].token_ids_delta == (1, 2, 3)
    assert sink.staged[0][0].extras == {"a": 1}
    assert sink.staged[0][1] == {"attachments": PIXELS}


@pytest.mark.parametrize("response", [None, (), ([1],), ([1], [2], [-0.5])])
def test_a_response_that_cannot_be_read_is_answered_and_spent(response: Any) -> None:
    capture = capture_into(Sink(), adapter=Adapter())
    call = capture.begin_call(admission("call-1"))
    assert capture.complete_call_from_response(call, response).disposition == "capture_failed"
    assert call.completed


def test_without_an_adapter_a_call_is_not_spent_on_a_response() -> None:
    capture = capture_into(Sink())
    call = capture.begin_call(admission("call-1"))
    with pytest.raises(Invalid, match="needs an adapter"):
        capture.complete_call_from_response(call, {})
    assert complete(capture, call).disposition == "staged"


def test_a_failed_call_is_acknowledged_with_a_reason_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    capture = capture_into(Sink())
    coords = capture.fail_call(capture.begin_call(admission("call-1")), reason="engine aborted")
    assert coords.disposition == "capture_failed"
    assert "model_call_id=call-1, reason=engine aborted" in caplog.text


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"stream": True}, "streaming_unsupported"),
        ({"prefix_token_ids": [1]}, "bad_prefix"),
        ({"weight_version": -1}, "bad_weight_version"),
        ({"admission": {"mode": "text"}}, "bad_admission"),
    ],
)
def test_misuse_at_admission_raises(fields: dict[str, Any], kind: str) -> None:
    with pytest.raises(Invalid) as refused:
        capture_into(Sink()).begin_call(**{"admission": admission("call-1"), **fields})
    assert refused.value.kind == kind


def test_installing_hands_the_capture_to_the_serving_layer() -> None:
    host, adapter = Host(), Adapter()
    capture = install_capture(host, sink=Sink(), weight_version_fn=lambda: 7, adapter=adapter)
    assert host.capture is capture
    assert capture.adapter is adapter


@pytest.mark.parametrize(
    ("fields", "method"),
    [
        ({"sink": object()}, "stage"),
        ({"weight_version_fn": 7}, "__call__"),
        ({"serving_layer": object()}, "install_token_capture"),
    ],
)
def test_a_part_that_cannot_do_its_job_is_not_installed(fields: dict[str, Any], method: str) -> None:
    parts = {"serving_layer": Host(), "sink": Sink(), "weight_version_fn": lambda: 7}
    with pytest.raises(Invalid, match=f"with the method {method}"):
        install_capture(**{**parts, **fields})
