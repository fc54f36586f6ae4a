# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The token path inside the real nemo-gym: built from its YAML, conforming, resolving, rebuilt and retired."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import zlib
from functools import partial

import orjson
import pytest
from nemo_gym.token_id_capture import config as gym_config
from nemo_gym.token_id_capture import protocols
from nemo_gym.token_id_capture.conformance import run_conformance
from nemo_gym.token_id_capture.consumer import trajectories_from_source
from nemo_gym.token_id_capture.lineage import stamp_continuation
from nemo_gym.token_id_capture.records import ParentResolutionStatus, TokenEntry, stamp_lineage

import gym_objstore_nemo_gym as ours
from gym_objstore.errors import Retired
from tests.gym_side import server_side
from tests.places import PLACES, place_of
from tests.transcripts import conversations

ALL_CHECKS = [
    "put_then_freeze_visibility",
    "idempotent_reput",
    "conflicting_reput",
    "mark_incomplete_durability",
    "freeze_idempotency",
    "post_freeze_write_safety",
    "conditional_retirement",
    "lineage_visibility",
    "fresh_client_lineage_visibility",
    "begin_call_custody",
]


@pytest.fixture
def place(request):
    return place_of("memory", request)


def entry(rollout, call, request, text, *, prompt, parent=None):
    made = TokenEntry(
        rollout_id=rollout,
        model_call_id=call,
        prompt_token_ids=list(prompt),
        generation_token_ids=[7, 8, 9],
        generation_log_probs=[-0.5, -0.25, -0.125],
        output_items=[{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}],
        token_item_index=0,
    )
    stamp_continuation(made, request)
    status = ParentResolutionStatus.RESOLVED if parent else ParentResolutionStatus.ROOT
    return stamp_lineage(made, parent, parent_resolution=status)


QUESTION = [{"role": "user", "content": "hello"}]


async def two_turns(sink, store, rollout):
    first = entry(rollout, "c1", QUESTION, "hi", prompt=[1, 2])
    await sink.put(first)
    request = [*QUESTION, *first.output_items, {"role": "user", "content": "more"}]
    found = await store.resolve(rollout, request)
    prompt = [*found.match.cumulative_token_ids, 3]
    await sink.put(entry(rollout, "c2", request, "bye", prompt=prompt, parent=found.match.model_call_id))


@pytest.mark.parametrize("kind", PLACES)
async def test_all_ten_conformance_checks_of_gym_pass(kind, request, prefix):
    place = place_of(kind, request)
    passed = await run_conformance(
        partial(ours.TokenSink, **place),
        partial(ours.TokenSource, **place),
        partial(ours.LineageStore, **place),
        rollout_id=prefix,
    )
    assert passed == ALL_CHECKS


@server_side
def test_gym_builds_the_classes_that_its_yaml_names(place, monkeypatch):
    monkeypatch.setenv("GYM_OBJSTORE_RUN_ID", "from-the-environment")
    block = {
        "enabled": True,
        "sink": "gym_objstore_nemo_gym:TokenSink",
        "sink_kwargs": {"url": place["url"]},
        "lineage_store": "gym_objstore_nemo_gym:LineageStore",
        "lineage_store_kwargs": {"url": place["url"]},
    }
    built = gym_config.TokenIdCaptureConfig.model_validate({"token_id_capture": block})
    sink, store = built.build_sink(), built.build_lineage_store()
    assert isinstance(sink, protocols.TokenSink)
    assert isinstance(store, protocols.LineageResolver)
    assert sink.settings.run_id == "from-the-environment"
    assert sink.settings == store.settings


def test_gym_reports_an_option_that_does_not_exist(place):
    block = {"enabled": True, "sink": "gym_objstore_nemo_gym:TokenSink", "sink_kwargs": {**place, "buckett": "x"}}
    built = gym_config.TokenIdCaptureConfig.model_validate(
        {"token_id_capture": {**block, "allow_unresolved_continuations": True}}
    )
    with pytest.raises(ValueError, match="unknown store option, option=buckett"):
        built.build_sink()


async def test_records_decisions_and_snapshots_are_gyms_own(place):
    sink, source, store = ours.TokenSink(**place), ours.TokenSource(**place), ours.LineageStore(**place)
    assert isinstance(source, protocols.TokenSource)
    stored = entry("r1", "c1", QUESTION, "hi", prompt=[1, 2])
    await sink.put(stored)
    snapshot = await source.freeze("r1")
    assert type(snapshot) is protocols.TokenCaptureSnapshot
    assert snapshot.entries == (TokenEntry.model_validate(stored.model_dump(mode="json")),)
    assert type(snapshot.entries[0].parent_resolution) is ParentResolutionStatus
    found = await store.resolve("r1", [*QUESTION, *stored.output_items])
    assert found == protocols.LineageResolution(
        ParentResolutionStatus.RESOLVED,
        match=protocols.LineageMatch("c1", cumulative_token_ids=(1, 2, 7, 8, 9), digest=stored.digest),
    )
    assert (await store.resolve("r1", QUESTION)).status is ParentResolutionStatus.ROOT


async def test_gym_rebuilds_and_retires_over_our_source(place):
    sink, source = ours.TokenSink(**place), ours.TokenSource(**place)
    await two_turns(sink, ours.LineageStore(**place), "r1")
    built = await trajectories_from_source("r1", source)
    assert built["mask_sample"] is False
    delivered = [item for item in built["rebuilt_response"]["output"] if item.get("generation_token_ids")]
    assert [item["prompt_token_ids"] for item in delivered] == [[1, 2], [1, 2, 7, 8, 9, 3]]
    snapshot = built["_capture_snapshot"]
    assert await source.drop("r1", **snapshot)
    with pytest.raises(Retired):
        await sink.put(entry("r1", "c9", QUESTION, "late", prompt=[1]))
    with pytest.raises(RuntimeError):
        await sink.begin_call("r1", "c9")


async def test_gym_masks_what_lost_a_call(place):
    sink, source = ours.TokenSink(**place), ours.TokenSource(**place)
    await sink.begin_call("r1", "c3")
    await two_turns(sink, ours.LineageStore(**place), "r1")
    built = await trajectories_from_source("r1", source)
    assert built["mask_sample"] is True
    assert built["metrics"]["capture_incomplete"] is True


@server_side
async def test_the_finalizer_rebuilds_the_record_and_retires_after_handoff(place):
    from nemo_gym.token_id_capture.delivery import finalize_rollout_token_capture, retire_rollout_token_capture

    sink, source = ours.TokenSink(**place), ours.TokenSource(**place)
    await two_turns(sink, ours.LineageStore(**place), "0-0")
    result = {"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "response": {"model": "m", "output": []}}
    built = await finalize_rollout_token_capture(result, source)
    assert built["mask_sample"] is False
    assert result["reward"] == 1.0
    assert [
        item["generation_token_ids"] for item in result["response"]["output"] if "generation_token_ids" in item
    ] == [
        [7, 8, 9],
        [7, 8, 9],
    ]
    assert await retire_rollout_token_capture("0-0", source, built)
    with pytest.raises(RuntimeError):
        await source.freeze("0-0")


def test_components_travel_to_a_spawned_process_without_handles(place):
    for kind in (ours.TokenSink, ours.TokenSource, ours.LineageStore):
        component = kind(**place)
        assert pickle.loads(pickle.dumps(component)).settings == component.settings


WORKER = """
import asyncio, json, sys
import gym_objstore_nemo_gym as ours
from tests.test_nemo_gym_tokens import QUESTION, entry

async def main(place, turn):
    sink, store = ours.TokenSink(**place), ours.LineageStore(**place)
    first = entry("r1", "c1", QUESTION, "hi", prompt=[1, 2])
    if turn == 1:
        await sink.put(first)
        print(json.dumps("stored"))
    else:
        found = await store.resolve("r1", [*QUESTION, *first.output_items, {"role": "user", "content": "more"}])
        print(json.dumps([str(found.status), found.match.model_call_id, list(found.match.cumulative_token_ids)]))
    await sink.close()
    await store.close()

asyncio.run(main(json.loads(sys.argv[1]), int(sys.argv[2])))
"""


@pytest.mark.parametrize("kind", ["file", "seaweedfs", "minio"])
def test_two_processes_resolve_each_others_calls(kind, request):
    place = orjson.dumps(place_of(kind, request)).decode()
    answers = [
        orjson.loads(
            subprocess.run([sys.executable, "-c", WORKER, place, turn], check=True, capture_output=True).stdout
        )
        for turn in ("1", "2")
    ]
    assert answers == ["stored", ["resolved", "c1", [1, 2, 7, 8, 9]]]


def tokens_of(items) -> list[int]:
    return [zlib.crc32(word) % 150_000 for item in items for word in orjson.dumps(item).split()]


async def replay(talk, rollout, sink, store):
    """Play a real conversation call by call, as a model server does; return what the engine saw and said."""
    sequences = []
    for number, call in enumerate(talk.calls):
        found = await store.resolve(rollout, list(call.request_items))
        assert found.status == ("resolved" if number else "root"), (talk.source, number, found)
        parent = found.match.model_call_id if found.match else None
        assert parent == (f"c{number - 1}" if number else None), talk.source
        before = list(found.match.cumulative_token_ids) if found.match else []
        assert before == (sequences[-1] if sequences else []), talk.source
        new = call.request_items[len(talk.calls[number - 1].request_items) :] if number else call.request_items
        prompt = [*before, *tokens_of(new)]
        generated = call.tokens.generation_token_ids if call.tokens else tokens_of(call.output_items)
        made = TokenEntry(
            rollout_id=rollout,
            model_call_id=f"c{number}",
            prompt_token_ids=prompt,
            generation_token_ids=generated,
            generation_log_probs=call.tokens.generation_log_probs if call.tokens else [-0.1] * len(generated),
            output_items=list(call.output_items),
            token_item_index=0,
        )
        stamp_continuation(made, list(call.request_items))
        await sink.put(stamp_lineage(made, parent, parent_resolution=found.status))
        sequences.append([*prompt, *generated])
    return sequences


async def test_real_transcripts_resolve_at_every_turn_and_rebuild_to_what_was_put(place):
    sink, source, store = ours.TokenSink(**place), ours.TokenSource(**place), ours.LineageStore(**place)
    talks = [talk for talk in conversations() if talk.resolvable and len(talk.calls) <= 40]
    turns = 0
    for number, talk in enumerate(talks):
        rollout = f"{number}-0"
        sequences = await replay(talk, rollout, sink, store)
        turns += len(sequences)
        built = await trajectories_from_source(rollout, source)
        assert not built["mask_sample"], (talk.source, built["metrics"])
        last = [item for item in built["rebuilt_response"]["output"] if item.get("generation_token_ids")][-1]
        assert [*last["prompt_token_ids"], *last["generation_token_ids"]] == sequences[-1], talk.source
    assert len(talks) > 300
    assert turns > 1000


async def test_one_sink_serves_many_loops(place):
    sink, source = ours.TokenSink(**place), ours.TokenSource(**place)
    for call in ("c1", "c2", "c3"):
        put = sink.put(entry("r1", call, QUESTION, call, prompt=[1]))
        await asyncio.to_thread(asyncio.run, put)
    assert len((await source.freeze("r1")).entries) == 3
