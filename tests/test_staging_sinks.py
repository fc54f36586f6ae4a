# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The staging components: results instead of errors, many threads, remembered prefixes, large attachments."""

from __future__ import annotations

import asyncio
import json
import pickle
import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gym_objstore import StagingSink, StagingSource
from gym_objstore.cache import ColumnMemory
from gym_objstore.errors import Corrupt, Denied, NotFound, Unavailable, Unusable
from gym_objstore.rollout_capture import RolloutTokenCapture
from gym_objstore.testing.counting import Costs, CountingStore
from gym_objstore.testing.staged_rollouts import admission, staged_call
from gym_objstore.testing.wrapping import WrappedStore
from gym_objstore.wire_staging import CaptureAdmission, StageResult
from tests.places import PLACES, place_of

MB = 1 << 20


@pytest.fixture
def place(request):
    return place_of("memory", request)


@pytest.fixture
def sink(place):
    found = StagingSink(**place)
    found.connection.store = CountingStore(found.connection.store)
    yield found
    found.close_now()


@pytest.fixture
def source(place, sink):
    found = StagingSource(**place)
    yield found
    found.close_now()


def costs(sink) -> Costs:
    return sink.connection.store.costs


class Faulty(WrappedStore):
    error: Exception | None = None

    def put(self, key, body):
        if self.error is not None:
            raise self.error
        super().put(key, body)


def test_a_staged_row_is_acknowledged_by_its_key(sink, source):
    record = staged_call("c1")
    result = sink.stage(record)
    assert (type(result), result.ok, result.error) == (StageResult, True, None)
    assert source.fetch([result.staging_key])[0].token_ids_delta == record.token_ids_delta


def test_only_the_first_row_of_a_process_leaves_the_writer_marker(sink):
    sink.stage(staged_call("c1"))
    assert costs(sink) == Costs(1, {"PUT": 2})
    sink.stage(staged_call("c2"))
    assert costs(sink) == Costs(2, {"PUT": 3})


@pytest.mark.parametrize("error", [Unavailable("down"), Denied("no"), OSError("disk"), MemoryError()])
def test_a_storage_failure_is_a_result(place, error):
    sink = StagingSink(**place)
    sink.connection.store = Faulty(sink.connection.store)
    sink.connection.store.error = error
    result = sink.stage(staged_call("c1"))
    assert (result.ok, result.staging_key) == (False, None)
    assert type(error).__name__.lower() in result.error.lower()
    sink.connection.store.error = None
    assert sink.stage(staged_call("c1")).ok


@pytest.mark.parametrize(
    ("record", "attachments", "said"),
    [
        (None, None, "bad_record: not a sealed staged call, type=NoneType"),
        (staged_call("c1"), {"a": None}, "bad_attachment: the attachment '/a' cannot be stored, type=NoneType"),
        (staged_call("c1"), [b"x"], "bad_attachment: attachments must be a mapping of names to values, type=list"),
    ],
)
def test_what_cannot_be_stored_is_a_result_and_writes_nothing(sink, record, attachments, said):
    result = sink.stage(record, attachments=attachments)
    assert not result.ok
    assert result.error.startswith(said)
    assert costs(sink) == Costs()


def test_a_closed_sink_answers_so(place):
    sink = StagingSink(**place)
    sink.close_now()
    sink.close_now()
    assert sink.stage(staged_call("c1")).error == "closed: this StagingSink is closed"
    with pytest.raises(Unusable):
        sink.connection  # noqa: B018 - the access is the test


def test_components_survive_pickling(sink, source):
    key = pickle.loads(pickle.dumps(sink)).stage(staged_call("c1")).staging_key
    assert pickle.loads(pickle.dumps(source)).fetch([key])[0].model_call_id == "c1"


def test_64_threads_stage_at_once(sink, source):
    barrier = threading.Barrier(64)

    def work(number):
        barrier.wait()
        return [sink.stage(staged_call(f"c{number}-{turn}"), attachments={"a": b"x"}).staging_key for turn in range(4)]

    with ThreadPoolExecutor(64) as pool:
        keys = [key for some in pool.map(work, range(64)) for key in some]
    assert len(set(keys)) == 256
    calls = {one.model_call_id for one in source.fetch(keys)}
    assert calls == {f"c{number}-{turn}" for number in range(64) for turn in range(4)}


def test_a_row_may_be_staged_beside_a_running_loop(sink, source):
    async def main():
        key = sink.stage(staged_call("c1", extras={"a": 1}), attachments={"x": b"1"}).staging_key
        digest = staged_call("c1", extras={"a": 1}).extras_digest
        assert (await source.fetch_async([key]))[0].model_call_id == "c1"
        assert (await source.fetch_columns_async([key]))[0].model_call_id == "c1"
        assert await source.load_extras_async({key: digest}) == {key: {"a": 1}}
        assert bytes((await source.load_attachments_async(key))["x"]) == b"1"
        assert await source.prefix_async([key]) == [11, 12, 21, 22]

    asyncio.run(main())


class TestPrefix:
    chain = [staged_call("c1")]
    chain.append(staged_call("c2", after=chain))
    chain.append(staged_call("c3", after=chain))

    def staged(self, sink) -> list[str]:
        return [sink.stage(one).staging_key for one in self.chain]

    def forgotten(self, sink) -> None:
        sink.connection.columns = ColumnMemory(1_000)
        sink.connection.store.reset()

    def test_rows_this_process_staged_cost_nothing(self, sink, source):
        keys = self.staged(sink)
        sink.connection.store.reset()
        assert source.prefix(keys, parent_chain_hash=self.chain[-1].chain_hash) == [11, 12, 21, 22] * 3
        assert costs(sink) == Costs()

    def test_rows_staged_elsewhere_are_read_once_in_one_round_trip(self, sink, source):
        keys = self.staged(sink)
        self.forgotten(sink)
        assert source.prefix(keys[:2]) == [11, 12, 21, 22] * 2
        assert costs(sink) == Costs(1, {"GET": 2})
        assert source.prefix(keys) == [11, 12, 21, 22] * 3
        assert costs(sink) == Costs(2, {"GET": 3})

    def test_the_memory_is_bounded_and_eviction_only_reads_again(self, sink, source):
        keys = self.staged(sink)
        sink.connection.columns = ColumnMemory(264)
        sink.connection.store.reset()
        for _ in range(3):
            assert source.prefix(keys) == [11, 12, 21, 22] * 3
        assert costs(sink).requests["GET"] > 3

    def test_a_short_row_counts_for_more_than_its_tokens(self, sink, source):
        keys = self.staged(sink)
        remembered = sink.connection.columns = ColumnMemory(300)
        source.prefix(keys)
        assert [key for key in keys if remembered.get(key)] == keys[1:]

    def test_a_chain_in_another_order_or_of_another_parent_is_refused(self, sink, source):
        keys = self.staged(sink)
        with pytest.raises(Corrupt, match="does not continue"):
            source.prefix(keys[::-1])
        with pytest.raises(Corrupt, match="not the parent's chain"):
            source.prefix(keys[:2], parent_chain_hash=self.chain[2].chain_hash)
        with pytest.raises(Corrupt, match="does not continue"):
            source.prefix([keys[0], keys[0]])

    def test_a_swept_row_is_named(self, sink, source):
        keys = self.staged(sink)
        self.forgotten(sink)
        sink.connection.store.delete([meta.key for meta in sink.connection.store.scan("staged/run-1/rollout-1/")])
        with pytest.raises(NotFound, match="a staged row does not exist"):
            source.prefix(keys)

    def test_a_worker_continues_a_chain_that_another_one_staged(self, sink, source):
        keys = self.staged(sink)
        self.forgotten(sink)
        told = admission("c4", after=self.chain)
        told = CaptureAdmission(
            **told.model_dump(exclude={"required_prefix_token_ids", "staging_chain"}), staging_chain=tuple(keys)
        )
        capture = RolloutTokenCapture(sink=sink, weight_version_fn=lambda: 7)
        prefix = source.prefix(told.staging_chain, parent_chain_hash=told.parent_chain_hash)
        call = capture.begin_call(told, prefix_token_ids=prefix)
        coords = capture.complete_call(
            call,
            prompt_token_ids=[*prefix, 31],
            generated_token_ids=[41],
            generated_logprobs=[-0.5],
            attachments={"image": b"x"},
        )
        assert coords.disposition == "staged"
        assert source.prefix([*keys, coords.staging_key], parent_chain_hash=coords.chain_hash)[-2:] == [31, 41]


def test_an_attachment_that_cannot_be_stored_fails_the_capture_not_the_call(sink):
    capture = RolloutTokenCapture(sink=sink, weight_version_fn=lambda: 7)
    call = capture.begin_call(admission("c1"))
    coords = capture.complete_call(
        call,
        prompt_token_ids=[1],
        generated_token_ids=[2],
        generated_logprobs=[-0.5],
        attachments={"image": object()},
    )
    assert coords.disposition == "capture_failed"


@pytest.mark.parametrize("kind", PLACES)
def test_rows_extras_and_attachments_survive_every_store(kind, request):
    place = place_of(kind, request)
    sink, source = StagingSink(**place), StagingSource(**place)
    chain = [staged_call("Call 1/ü", extras={"a": [1.5, None]})]
    chain.append(staged_call("c2", after=chain))
    attachments = {"pixels": np.arange(10_000, dtype=np.float32).reshape(100, 100), "raw": b"\x00\xff"}
    first, second = sink.stage(chain[0], attachments=attachments), sink.stage(chain[1])
    assert (first.error, second.error) == (None, None)
    fresh = StagingSource(**{**place, "concurrency": 7})
    keys = [first.staging_key, second.staging_key]
    assert [one.digest for one in fresh.fetch(keys)] == [one.digest for one in chain]
    assert fresh.prefix(keys, parent_chain_hash=chain[1].chain_hash) == [11, 12, 21, 22] * 2
    assert source.load_extras({keys[0]: chain[0].extras_digest}) == {keys[0]: {"a": [1.5, None]}}
    found = fresh.load_attachments(keys[0])
    assert np.array_equal(found["pixels"], attachments["pixels"])
    assert bytes(found["raw"]) == b"\x00\xff"
    with pytest.raises(NotFound):
        fresh.fetch([keys[1].replace("rollout-1", "rollout-2")])
    for component in (sink, source, fresh):
        component.close_now()


LARGE = """
import resource, sys
import numpy as np
from gym_objstore import StagingSink, StagingSource
from gym_objstore.cache import ColumnMemory
from gym_objstore.testing.staged_rollouts import staged_call
import json

place = json.loads(sys.argv[1])
sink = StagingSink(**place)
assert sink.stage(staged_call("warm"), attachments={"a": b"x" * (20 << 20)}).ok
image = {"image": np.arange(25 << 20, dtype=np.float64), "more": {"id": b"x"}}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = sink.stage(staged_call("c1"), attachments=image)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert result.ok, result.error
print(result.staging_key, (after - before) >> 10)
"""


@pytest.mark.parametrize("kind", ["file", "seaweedfs"])
def test_200_megabytes_are_staged_in_bounded_memory_and_read_without_copying(kind, request):
    place = place_of(kind, request)
    ended = subprocess.run(
        [sys.executable, "-c", LARGE, json.dumps(place)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    key, grown = ended.stdout.split()
    assert int(grown) < 100
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    source = StagingSource(**place)
    assert source.fetch([key])[0].model_call_id == "c1"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10
    found = source.load_attachments(key)
    assert (found["image"].shape, found["image"][-1], bytes(found["more"]["id"])) == ((25 << 20,), (25 << 20) - 1, b"x")
    assert not found["image"].flags.owndata
    source.close_now()
