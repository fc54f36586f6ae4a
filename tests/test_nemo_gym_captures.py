# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Gym's own capture functions over the bucket, beside themselves over files; and what ``activate`` does to Gym."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gym_objstore_nemo_gym as ours
from gym_objstore.errors import Invalid, Unavailable, Unusable
from gym_objstore.testing.wrapping import WrappedStore
from gym_objstore_nemo_gym import captures
from gym_objstore_nemo_gym.capture_calls import BucketCaptures
from tests.places import place_of

if sys.version_info < (3, 12):
    pytest.skip("nemo-gym's server side needs Python 3.12 or newer", allow_module_level=True)

from nemo_gym import base_responses_api_model as gym
from nemo_gym import rollout_collection

ROW = {"_ng_task_index": 3, "_ng_rollout_index": 1}
ON = {"observability_enabled": True}
PENDING = {"code": "model_call_capture_pending"}


@pytest.fixture(autouse=True)
def _gym_as_it_was():
    yield
    ours.deactivate()


@pytest.fixture
def place(request) -> dict[str, Any]:
    return place_of("file", request)


@pytest.fixture
def theirs() -> SimpleNamespace:
    """Gym's own functions, to be called while the bucket is in place."""
    return SimpleNamespace(**{name: getattr(gym, name) for name in captures.SEAMS}, CaptureStore=gym.CaptureStore)


@pytest.fixture
def active(place, theirs) -> BucketCaptures:
    ours.activate(**place)
    return gym.make_capture_store(gym.ModelCallCaptureConfig(**ON))


def exchange(number: int, **fields: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 7, "completion_tokens": number}
    return {
        "model_call_id": f"{number:032x}",
        "dialect": "chat",
        "model_ref": {"type": "responses_api_models", "name": "policy_model"},
        "started_at": 1000.0 + number,
        "completed_at": 1000.5 + number,
        "latency_ms": 500.0,
        "status_code": 200,
        "request": {"messages": [{"role": "user", "content": f"question {number}"}]},
        "response": {"id": f"r{number}", "model": "m", "choices": [], "usage": usage},
        **fields,
    }


def objects_of(place: dict[str, Any]) -> list[Path]:
    folder = Path(place["url"].removeprefix("file://"))
    return sorted(path for path in folder.rglob("*") if path.is_file() and "/records/" in str(path))


def nothing(store: Any, damage: Any) -> None:
    pass


def three_calls(store: Any, damage: Any) -> None:
    for number in (1, 2, 3):
        store.record("3-1", exchange(number))


def a_marker_alone(store: Any, damage: Any) -> None:
    store.mark_incomplete("3-1")


def calls_and_a_marker(store: Any, damage: Any) -> None:
    three_calls(store, damage)
    store.mark_incomplete("3-1")


def a_damaged_call_among_three(store: Any, damage: Any) -> None:
    three_calls(store, damage)
    damage(1)


def nothing_but_damage(store: Any, damage: Any) -> None:
    store.record("3-1", exchange(1))
    damage(0)


def a_record_that_is_no_call(store: Any, damage: Any) -> None:
    store.record("3-1", exchange(1, status_code="not a number"))
    store.record("3-1", exchange(2))


def another_rollout(store: Any, damage: Any) -> None:
    for rollout in ("3-1-a1", "3-10", "3-11"):
        store.record(rollout, exchange(1))
        store.mark_incomplete(rollout)


STATES = (
    nothing,
    three_calls,
    a_marker_alone,
    calls_and_a_marker,
    a_damaged_call_among_three,
    nothing_but_damage,
    a_record_that_is_no_call,
    another_rollout,
)


@pytest.mark.parametrize("payloads", [True, False])
@pytest.mark.parametrize("state", STATES)
def test_the_attachment_from_the_bucket_is_the_one_from_files(state, payloads, active, theirs, place, tmp_path):
    files = theirs.CaptureStore(tmp_path / "files")

    def damage_file(number: int) -> None:
        lines = files.path_for("3-1").read_bytes().splitlines(keepends=True)
        lines[number] = lines[number][5:]
        files.path_for("3-1").write_bytes(b"".join(lines))

    def damage_object(number: int) -> None:
        path = objects_of(place)[number]
        path.write_bytes(path.read_bytes()[:-5])

    state(files, damage_file)
    state(active, damage_object)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gym, "_store_for_rollout", theirs._store_for_rollout)
        expected = theirs.merge_model_call_capture_into_record({**ROW}, [files.root], include_payloads=payloads)
    dirs = gym.model_call_capture_dirs_from_config(ON)
    found = gym.merge_model_call_capture_into_record({**ROW}, dirs, include_payloads=payloads)
    assert found == expected
    assert list(found["ng_model_call_capture"]) == list(expected["ng_model_call_capture"])


def test_a_damaged_call_takes_its_index_and_is_counted(active, place):
    a_damaged_call_among_three(active, lambda number: objects_of(place)[number].write_bytes(b"?"))
    attached = gym.merge_model_call_capture_into_record({**ROW}, ["bucket"])["ng_model_call_capture"]
    assert [call["call_index"] for call in attached["calls"]] == [0, 2]
    assert attached["gaps"] == [{"code": "model_call_capture_records_unreadable", "detail": "count=1"}]


def test_a_run_that_nobody_wrote_has_no_records_and_says_which_run_once(active, caplog):
    for number in (1, 2):
        row = {"_ng_task_index": number, "_ng_rollout_index": 0}
        attached = gym.merge_model_call_capture_into_record(row, ["bucket"])["ng_model_call_capture"]
        assert attached["gaps"] == [{"code": "model_call_capture_no_records"}]
    said = [one.getMessage() for one in caplog.records if "nothing was ever captured" in one.getMessage()]
    assert len(said) == 1
    assert f"url={active.settings.store.url}, run_id=run-1" in said[0]


def test_a_store_that_cannot_be_read_is_a_gap(place, caplog):
    unreachable = {"url": "s3://tests/x", "endpoint": "http://127.0.0.1:9", "region": "r", "retry_seconds": 0.1}
    keys = {"access_key_id": "a", "secret_access_key": "s"}
    ours.activate(**unreachable, **keys, run_id="run-1", spill_dir=place["spill_dir"])
    attached = gym.merge_model_call_capture_into_record({**ROW}, ["bucket"])["ng_model_call_capture"]
    assert attached["gaps"] == [{"code": "model_call_capture_unreadable"}]
    assert attached["calls"] == []
    with pytest.raises(Unavailable):
        gym.clear_model_call_captures_for_rollouts([ROW], ["bucket"])


def test_a_capture_still_being_written_is_a_gap(active, monkeypatch):
    three_calls(active, None)
    monkeypatch.setattr(captures, "DRAIN_SECONDS", 0.01)

    async def merging() -> dict[str, Any]:
        writing = asyncio.create_task(asyncio.Event().wait())
        active.connection.writer.expect("3-1", writing)
        with suppress(asyncio.CancelledError):
            record = await asyncio.to_thread(gym.merge_model_call_capture_into_record, {**ROW}, ["bucket"])
            writing.cancel()
            await writing
        return record

    attached = asyncio.run(merging())["ng_model_call_capture"]
    assert (len(attached["calls"]), attached["gaps"]) == (3, [PENDING])


def test_without_a_rollout_id_or_with_captures_off_nothing_is_attached(active):
    assert gym.merge_model_call_capture_into_record({"reward": 1.0}, ["bucket"]) == {"reward": 1.0}
    assert gym.model_call_capture_dirs_from_config({"observability_enabled": False}) == []
    assert gym.merge_model_call_capture_into_record({**ROW}, []) == ROW
    three_calls(active, None)
    gym.clear_model_call_captures_for_rollouts([ROW], [])
    assert len(active.read("3-1")) == 3


def test_clearing_before_dispatch_touches_exactly_the_rows_attempts(active):
    rollouts = ("3-1", "3-1-a1", "3-10", "3-1.x", "explicit-7")
    for rollout in rollouts:
        active.record(rollout, exchange(1))
        active.mark_incomplete(rollout)
    rows = [ROW, ROW, {"_ng_rollout_id": "explicit-7"}, {"no": "id"}]
    gym.clear_model_call_captures_for_rollouts(rows, ["bucket"])
    left = {one: (len(active.read(one)), active.is_incomplete(one)) for one in rollouts}
    assert left == {
        "3-1": (0, False),
        "3-1-a1": (1, True),
        "3-10": (1, True),
        "3-1.x": (1, True),
        "explicit-7": (0, False),
    }


def test_clearing_a_thousand_rollouts_costs_a_handful_of_requests(active, monkeypatch):
    verbs: list[str] = []

    class Counted(WrappedStore):
        def scan(self, prefix: str) -> Any:
            verbs.append("scan")
            return super().scan(prefix)

        def folders(self, prefix: str) -> Any:
            verbs.append("folders")
            return super().folders(prefix)

        def delete(self, keys: Any) -> None:
            verbs.append("delete")
            super().delete(keys)

    active.record("3-1", exchange(1))
    monkeypatch.setattr(active.connection, "store", Counted(active.connection.store))
    rows = [{"_ng_task_index": number, "_ng_rollout_index": 1} for number in range(1000)]
    gym.clear_model_call_captures_for_rollouts(rows, ["bucket"])
    assert verbs == ["folders", "scan", "delete"]


def test_the_collector_module_is_changed_too_and_both_are_given_back(place, theirs):
    names = [name for name in captures.SEAMS if hasattr(rollout_collection, name)]
    assert len(names) == 3
    ours.activate(**place)
    for name in captures.SEAMS:
        assert getattr(gym, name) is not getattr(theirs, name)
    for name in names:
        assert getattr(rollout_collection, name) is getattr(gym, name)
    ours.deactivate()
    ours.deactivate()
    for name in captures.SEAMS:
        assert getattr(gym, name) is getattr(theirs, name)
    for name in names:
        assert getattr(rollout_collection, name) is getattr(theirs, name)


def test_a_second_activation_changes_nothing_or_is_refused(place):
    ours.activate(**place, redact=["keys"])
    first = {name: getattr(gym, name) for name in captures.SEAMS}
    ours.activate(**place, redact=("keys",))
    assert {name: getattr(gym, name) for name in captures.SEAMS} == first
    for other in ({**place, "run_id": "run-2"}, {**place, "retry_seconds": 3.0}):
        with pytest.raises(Invalid, match="run_id=run-1") as refused:
            ours.activate(**other, redact=["keys"])
        assert refused.value.kind == "active_elsewhere"
    with pytest.raises(Invalid, match="another run or with other options"):
        ours.activate(**place)
    assert {name: getattr(gym, name) for name in captures.SEAMS} == first


def test_the_environment_says_where_and_what_is_redacted(place, monkeypatch):
    monkeypatch.setenv("GYM_OBJSTORE_URL", place["url"])
    monkeypatch.setenv("GYM_OBJSTORE_RUN_ID", "run-1")
    monkeypatch.setenv("GYM_OBJSTORE_SPILL_DIR", place["spill_dir"])
    monkeypatch.setenv("GYM_OBJSTORE_REDACT", "keys, emails")
    ours.activate()
    ours.activate(**place, redact=["keys", "emails"])


@pytest.mark.parametrize("seam", [*captures.SEAMS, "maybe_rollout_id_from_run_body"])
def test_a_missing_seam_is_named_and_nothing_is_changed(seam, place, monkeypatch):
    monkeypatch.delattr(gym, seam)
    before = dict(vars(gym))
    with pytest.raises(Unusable, match=rf"names=nemo_gym\.base_responses_api_model\.{seam}") as raised:
        ours.activate(**place)
    assert raised.value.kind == "no_seam"
    assert {**vars(gym)} == before


def test_a_store_that_cannot_be_opened_is_said_at_once_and_nothing_is_changed(place, theirs, monkeypatch):
    def refuse(*place: Any) -> Any:
        raise Unusable("a package is missing")

    monkeypatch.setattr("gym_objstore.connection.open_store", refuse)
    with pytest.raises(Unusable, match="a package is missing"):
        ours.activate(**place)
    assert gym.make_capture_store is theirs.make_capture_store


def test_settings_that_still_ask_for_a_directory_are_a_missing_seam(place, monkeypatch):
    class Renamed(gym.ModelCallCaptureConfig):
        @gym.model_validator(mode="after")
        def require_directory(self) -> Any:
            assert self.model_call_capture_dir is not None
            return self

    monkeypatch.setattr(gym, "ModelCallCaptureConfig", Renamed)
    with pytest.raises(Unusable, match="validate_capture_dir"):
        ours.activate(**place)
    assert gym.ModelCallCaptureConfig is Renamed


@pytest.mark.parametrize(
    ("config", "on"), [({}, True), (ON, True), ({"observability_enabled": False}, False)], ids=["unsaid", "on", "off"]
)
def test_gyms_switch_turns_captures_off_and_needs_no_directory(config, on, active):
    settings = gym.ModelCallCaptureConfig.model_validate(config)
    assert (gym.make_capture_store(settings) is active) is on
    assert bool(gym.model_call_capture_dirs_from_config(config)) is on
    assert gym.observability_enabled_from_config(config) is on


def test_settings_read_before_the_activation_turn_captures_off_only_if_they_say_so(place, theirs):
    early = [theirs.ModelCallCaptureConfig.model_validate(config) for config in ({}, {"observability_enabled": False})]
    ours.activate(**place)
    assert [gym.make_capture_store(one) is not None for one in early] == [True, False]


def test_a_directory_that_is_not_used_is_said_once(active, caplog, tmp_path):
    config = {**ON, "model_call_capture_dir": str(tmp_path / "unused")}
    for _ in range(2):
        gym.make_capture_store(gym.ModelCallCaptureConfig.model_validate(config))
        gym.model_call_capture_dirs_from_config(config)
    assert sum("model_call_capture_dir is not used" in one.getMessage() for one in caplog.records) == 1
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize("name", ["TokenSink", "TokenSource", "LineageStore", "CaptureLedger", "StagingSink"])
def test_a_component_with_captures_in_its_kwargs_activates(name, place):
    ordinary = getattr(ours, name)(**place)
    assert captures._active is None
    component = getattr(ours, name)(**place, captures=True, redact=["keys"])
    assert component.settings == ordinary.settings
    assert (captures._active.settings, captures._active.redact) == (ordinary.settings, ("keys",))


def test_captures_of_a_quoted_word_are_refused_not_taken_for_true(place):
    with pytest.raises(Invalid, match="captures must be true or false, value='false'; write it without quotes"):
        ours.TokenSink(**place, captures="false")


def test_redact_without_captures_and_unknown_rules_are_refused(place):
    with pytest.raises(Invalid, match="captures: true"):
        ours.TokenSink(**place, redact=["keys"])
    with pytest.raises(Invalid, match="rules=colours"):
        ours.TokenSink(**place, captures=True, redact=["colours"])
    assert captures._active is None
