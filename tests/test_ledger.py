# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The ledger's flows: what is recorded, who continues whom, what voids a call, and what a request costs."""

from __future__ import annotations

import orjson
import pytest

from gym_objstore.digests import canonical_json, sha256_hex
from gym_objstore.errors import Conflict, Corrupt, Invalid, Retired, Unavailable
from gym_objstore.fingerprint import FINGERPRINT_VERSION
from gym_objstore.flow import run
from gym_objstore.ledger import FAMILY, has_rows, list_keys, manifest, record, record_failure, resolve_row
from gym_objstore.objects import announcement
from gym_objstore.retirement import Removal, delete_rollouts, retire
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.counting import Costs, CountingStore
from gym_objstore.testing.staged_rollouts import ledger_row, staged_call
from gym_objstore.testing.wrapping import WrappedStore
from gym_objstore.wire_ledger import CallRecord, CaptureLedgerCommit, ManifestFailure
from tests.entries import QUESTION, answer

RUN, ROLLOUT = "run-1", "rollout-1"
PREFIX = "ledger/run-1/rollout-1/"


@pytest.fixture
def store():
    return CountingStore(MemoryStore())


def commit(call="c1", *, after=(), request=QUESTION, text="hi", chain=("k1",), **fields) -> CaptureLedgerCommit:
    row = ledger_row(staged_call(call, after=after), admitted_at=1.0, **fields)
    return CaptureLedgerCommit(
        rollout_id=ROLLOUT, record=row, staging_chain=chain, request_items=request, response_items=answer(text)
    )


def unchecked(**fields) -> CaptureLedgerCommit:
    good = commit()
    row = CallRecord.model_construct(**{**dict(good.record), **fields})
    return good.model_copy(update={"record": row})


CONTINUED = [*QUESTION, *answer("hi"), {"role": "user", "content": "more"}]


def test_recording_is_one_round_trip(store):
    assert run(record(RUN, commit()), store) is True
    assert store.costs == Costs(1, {"PUT": 1, "HEAD": 1, "LIST": 1})


def test_the_first_record_leaves_the_writer_marker_in_the_same_round_trip(store):
    run(record(RUN, commit(), [announcement(FAMILY, RUN)]), store)
    assert store.costs == Costs(1, {"PUT": 2, "HEAD": 1, "LIST": 1})


def test_recording_a_failure_is_one_round_trip(store):
    assert run(record_failure(RUN, ROLLOUT, "c1", reason="worker_capture_failed"), store) is True
    assert store.costs == Costs(1, {"PUT": 1, "HEAD": 1})


def test_a_recorded_call_is_in_the_manifest_without_tokens(store):
    run(record(RUN, commit()), store)
    found = run(manifest(RUN, ROLLOUT), store)
    assert found.records == (commit().record,)
    assert found.failures == ()
    assert b"token_ids" not in canonical_json(found.model_dump(mode="json"))


def test_an_unknown_rollout_has_an_empty_manifest_and_no_rows(store):
    assert run(manifest(RUN, ROLLOUT), store).model_dump(mode="json") == {
        "schema_version": 2,
        "rollout_id": ROLLOUT,
        "records": [],
        "failures": [],
    }
    assert run(has_rows(RUN, ROLLOUT), store) is False


def test_reading_changes_nothing(store):
    run(record(RUN, commit()), store)
    before = sorted(meta.key for meta in store.scan(""))
    for flow in (manifest(RUN, ROLLOUT), has_rows(RUN, ROLLOUT), resolve_row(RUN, ROLLOUT, CONTINUED)):
        run(flow, store)
    assert sorted(meta.key for meta in store.scan("")) == before


def test_repeating_a_commit_changes_nothing(store):
    for _ in range(3):
        assert run(record(RUN, commit()), store) is True
    assert len(list(store.scan(PREFIX))) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"response_id": "another"},
        {"admitted_at": 2.0},
        {"staging_key": "another"},
        {"output_fingerprint": "0" * 64},
        {"weight_version": 8},
    ],
)
def test_another_record_of_the_same_call_raises_and_voids_the_call(store, change):
    run(record(RUN, commit()), store)
    other = commit()
    other = other.model_copy(update={"record": CallRecord.model_construct(**{**dict(other.record), **change})})
    with pytest.raises(Conflict, match="the call has another ledger row, model_call_id=c1") as caught:
        run(record(RUN, other), store)
    assert caught.value.kind == "ledger_row"
    found = run(manifest(RUN, ROLLOUT), store)
    assert found.records == ()
    assert found.failures == (ManifestFailure(model_call_id="c1", reason="conflicting_ledger_rows"),)
    assert run(resolve_row(RUN, ROLLOUT, CONTINUED), store) is None


@pytest.mark.parametrize("other", [commit(text="bye"), commit(chain=("k2",))])
def test_another_conversation_or_chain_of_the_same_call_is_a_conflict(store, other):
    run(record(RUN, commit()), store)
    with pytest.raises(Conflict):
        run(record(RUN, other), store)


class Racing(WrappedStore):
    """A store whose listings are a moment old: two writers do not see each other."""

    def scan(self, prefix):
        return iter(())


def test_racing_records_of_one_call_void_it(store):
    run(record(RUN, commit()), Racing(store))
    run(record(RUN, commit(response_id="another")), Racing(store))
    failures = run(manifest(RUN, ROLLOUT), store).failures
    assert failures == (ManifestFailure(model_call_id="c1", reason="conflicting_ledger_rows"),)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"response_id": ""}, "ledger_row_missing_response_id"),
        ({"response_id": None}, "ledger_row_missing_response_id"),
        ({"chain_hash": None}, "ledger_row_missing_chain_hash"),
        ({"cumulative_hash": None}, "ledger_row_missing_chain_hash"),
        ({"delta_len": 99}, "invalid_manifest_row"),
        ({"staging_key": ""}, "invalid_manifest_row"),
    ],
)
def test_rows_that_cannot_be_trusted_become_failures(store, fields, reason):
    run(record(RUN, unchecked(**fields)), store)
    found = run(manifest(RUN, ROLLOUT), store)
    assert (found.records, found.failures) == ((), (ManifestFailure(model_call_id="c1", reason=reason),))


def test_a_failure_is_idempotent_for_a_call_and_a_reason(store):
    for reason in ("a", "a", "b"):
        run(record_failure(RUN, ROLLOUT, "c1", reason=reason), store)
    assert [one.reason for one in run(manifest(RUN, ROLLOUT), store).failures] == ["a", "b"]
    assert run(has_rows(RUN, ROLLOUT), store) is True
    assert run(resolve_row(RUN, ROLLOUT, CONTINUED), store) is None


def test_a_recorded_call_may_fail_as_well(store):
    run(record(RUN, commit()), store)
    run(record_failure(RUN, ROLLOUT, "c1", reason="worker_capture_failed"), store)
    found = run(manifest(RUN, ROLLOUT), store)
    assert ([one.model_call_id for one in found.records], len(found.failures)) == (["c1"], 1)


@pytest.mark.parametrize(("call", "reason"), [("", "a"), ("c1", ""), (None, "a")])
def test_a_failure_without_call_or_reason_is_refused(store, call, reason):
    with pytest.raises(Invalid):
        run(record_failure(RUN, ROLLOUT, call, reason=reason), store)
    assert store.costs == Costs()


def test_parents_come_before_their_children_whatever_the_clocks_said(store):
    chain = [staged_call("c9")]
    chain.append(staged_call("c5", after=chain))
    chain.append(staged_call("c1", after=chain))
    for number, one in enumerate(chain):
        row = ledger_row(one, admitted_at=float(10 - number))
        run(record(RUN, commit().model_copy(update={"record": row})), store)
    assert [one.model_call_id for one in run(manifest(RUN, ROLLOUT), store).records] == ["c9", "c5", "c1"]


def test_calls_come_in_the_order_of_admission(store):
    for call, at in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
        row = ledger_row(staged_call(call), admitted_at=at)
        run(record(RUN, commit().model_copy(update={"record": row})), store)
    assert [one.model_call_id for one in run(manifest(RUN, ROLLOUT), store).records] == ["b", "c", "a"]


class TestResolve:
    def test_the_one_call_a_request_continues_is_found_by_one_list_and_one_get(self, store):
        run(record(RUN, commit(chain=("k0", "k1"))), store)
        for number in range(20):
            run(record(RUN, commit(f"other-{number}", text=f"other {number}")), store)
        store.reset()
        match = run(resolve_row(RUN, ROLLOUT, CONTINUED), store)
        assert store.costs == Costs(2, {"LIST": 1, "GET": 1})
        said = commit().record
        assert (match.model_call_id, match.cumulative_token_ids) == ("c1", ())
        assert (match.digest, match.chain_hash, match.prev_len) == (said.cumulative_hash, said.chain_hash, 4)
        assert match.staging_chain == ("k0", "k1")

    def test_a_request_without_model_history_costs_nothing(self, store):
        run(record(RUN, commit()), store)
        store.reset()
        assert run(resolve_row(RUN, ROLLOUT, QUESTION), store) is None
        assert store.costs == Costs()

    @pytest.mark.parametrize(
        "request_items",
        [
            [{"role": "user", "content": "rewritten"}, *answer("hi"), {"role": "user", "content": "more"}],
            [*QUESTION, *answer("something else")],
            [*QUESTION, *answer("hi"), *answer("more of it")],
        ],
    )
    def test_a_rewritten_context_continues_nothing(self, store, request_items):
        run(record(RUN, commit()), store)
        assert run(resolve_row(RUN, ROLLOUT, request_items), store) is None

    def test_two_calls_that_said_the_same_are_no_parent(self, store):
        run(record(RUN, commit("c1")), store)
        run(record(RUN, commit("c2")), store)
        assert run(resolve_row(RUN, ROLLOUT, CONTINUED), store) is None

    def test_a_voided_call_that_said_the_same_makes_the_other_no_parent(self, store):
        run(record(RUN, commit("c1")), store)
        run(record(RUN, commit("c2")), Racing(store))
        run(record(RUN, commit("c2", text="bye")), Racing(store))
        assert run(resolve_row(RUN, ROLLOUT, CONTINUED), store) is None

    def test_a_damaged_row_is_corrupt_and_named(self, store):
        run(record(RUN, commit()), store)
        ((key, _, _),) = store.scan(PREFIX)
        store.put(key, store.get(key).replace(b'"c1"', b'"c2"'))
        with pytest.raises(Corrupt, match="a ledger row is damaged") as caught:
            run(resolve_row(RUN, ROLLOUT, CONTINUED), store)
        assert caught.value.key == key

    @pytest.mark.parametrize("changed", [{"record": {}}, {"record": None}, {"staging_chain": 1}, {"context_len": "2"}])
    def test_an_object_that_is_no_row_is_corrupt_and_named(self, store, changed):
        key = self.rewritten(store, **changed)
        with pytest.raises(Corrupt, match="the object is no ledger row") as caught:
            run(resolve_row(RUN, ROLLOUT, CONTINUED), store)
        assert caught.value.key == key

    def rewritten(self, store, **changed) -> str:
        """Store a row with other contents under their own name; return its key."""
        run(record(RUN, commit()), store)
        ((key, _, _),) = store.scan(PREFIX)
        body = canonical_json(orjson.loads(store.get(key)) | changed)
        store.delete([key])
        renamed = key.rpartition(".")[0] + f".{sha256_hex(body)}"
        store.put(renamed, body)
        return renamed

    def test_another_version_of_the_fingerprint_is_no_parent(self, store):
        self.rewritten(store, fingerprint_version=FINGERPRINT_VERSION + 1)
        assert run(resolve_row(RUN, ROLLOUT, CONTINUED), store) is None

    def test_a_storage_error_is_raised(self, store):
        class Down(WrappedStore):
            def scan(self, prefix):
                raise Unavailable("down")

        for flow in (resolve_row(RUN, ROLLOUT, CONTINUED), has_rows(RUN, ROLLOUT), manifest(RUN, ROLLOUT)):
            with pytest.raises(Unavailable):
                run(flow, Down(store))


class TestDamage:
    def key(self, store) -> str:
        ((key, _, _),) = store.scan(PREFIX)
        return key

    @pytest.mark.parametrize(
        "body", [b"", b"{", b"[]", b"{}", b'{"format":1}', b'{"format":1,"rollout_id":"rollout-1"}']
    )
    def test_a_row_of_other_contents_is_an_invalid_row_of_its_call(self, store, body):
        run(record(RUN, commit()), store)
        store.put(self.key(store), body)
        found = run(manifest(RUN, ROLLOUT), store)
        assert found.failures == (ManifestFailure(model_call_id="c1", reason="invalid_manifest_row"),)
        assert found.records == ()

    def test_a_row_of_another_rollout_is_invalid(self, store):
        other = commit().model_copy(update={"rollout_id": "rollout-2"})
        run(record(RUN, other), store)
        ((key, _, _),) = store.scan("ledger/run-1/rollout-2/")
        store.put(key.replace("rollout-2", "rollout-1"), store.get(key))
        assert [one.reason for one in run(manifest(RUN, ROLLOUT), store).failures] == ["invalid_manifest_row"]

    def test_a_row_under_another_call_is_invalid(self, store):
        run(record(RUN, commit()), store)
        key = self.key(store)
        store.put(key.replace("/c1/", "/c2/"), store.get(key))
        found = run(manifest(RUN, ROLLOUT), store)
        assert [one.model_call_id for one in found.records] == ["c1"]
        assert found.failures == (ManifestFailure(model_call_id="c2", reason="invalid_manifest_row"),)

    def test_a_failure_whose_reason_was_altered_poisons(self, store):
        run(record_failure(RUN, ROLLOUT, "c1", reason="worker_capture_failed"), store)
        harmless = b"request_finished_without_staged_coordinates"
        key = self.key(store)
        store.put(key, store.get(key).replace(b"worker_capture_failed", harmless))
        assert [one.reason for one in run(manifest(RUN, ROLLOUT), store).failures] == ["invalid_manifest_row"]

    @pytest.mark.parametrize("name", ["rows/c1", "rows/c1/none.xyz", "other/thing", "failures/c1"])
    def test_a_foreign_object_poisons_and_counts_as_a_row(self, store, name):
        store.put(PREFIX + name, b"{}")
        assert [one.reason for one in run(manifest(RUN, ROLLOUT), store).failures] == ["invalid_manifest_row"]
        assert run(has_rows(RUN, ROLLOUT), store) is True

    def test_folder_marks_are_ignored(self):
        listing = list_keys(PREFIX, [f"{PREFIX}rows/", PREFIX])
        assert (listing.rows, listing.failures, listing.foreign) == ({}, [], [])

    def test_a_listed_row_that_cannot_be_read_is_unavailable_not_absent(self, store):
        run(record(RUN, commit()), store)

        class Behind(WrappedStore):
            def get(self, key):
                from gym_objstore.errors import NotFound

                raise NotFound("no such object", key=key)

        with pytest.raises(Unavailable, match="a listed object cannot be read"):
            run(manifest(RUN, ROLLOUT), Behind(store))


class TestRetirement:
    def test_retire_fences_and_removes(self, store):
        run(record(RUN, commit()), store)
        assert run(retire(FAMILY, RUN, [ROLLOUT, "unknown"]), store) == Removal((ROLLOUT,), ("unknown",))
        for rollout in (ROLLOUT, "unknown"):
            for flow in (manifest(RUN, rollout), has_rows(RUN, rollout)):
                with pytest.raises(Retired):
                    run(flow, store)
        assert run(resolve_row(RUN, ROLLOUT, CONTINUED), store) is None
        assert run(retire(FAMILY, RUN, [ROLLOUT]), store) == Removal((), (ROLLOUT,))

    def test_late_rows_are_discarded(self, store):
        run(retire(FAMILY, RUN, [ROLLOUT]), store)
        assert run(record(RUN, commit()), store) is False
        assert run(record_failure(RUN, ROLLOUT, "c1", reason="a"), store) is False
        assert [meta.key for meta in store.scan(PREFIX)] == [f"{PREFIX}fences/tombstone"]

    def test_delete_makes_the_id_usable_again(self, store):
        run(record(RUN, commit()), store)
        run(retire(FAMILY, RUN, [ROLLOUT]), store)
        assert run(delete_rollouts(FAMILY, RUN, [ROLLOUT]), store) == Removal((ROLLOUT,), ())
        assert run(delete_rollouts(FAMILY, RUN, [ROLLOUT]), store) == Removal((), (ROLLOUT,))
        assert run(has_rows(RUN, ROLLOUT), store) is False
        assert run(record(RUN, commit()), store) is True
        assert len(run(manifest(RUN, ROLLOUT), store).records) == 1

    def test_staged_rows_and_neighbours_are_left_alone(self, store):
        store.put("staged/run-1/rollout-1/rows/x", b"x")
        run(record(RUN, commit().model_copy(update={"rollout_id": "rollout-10"})), store)
        run(record(RUN, commit()), store)
        run(retire(FAMILY, RUN, [ROLLOUT]), store)
        run(delete_rollouts(FAMILY, RUN, [ROLLOUT]), store)
        assert store.head("staged/run-1/rollout-1/rows/x") is not None
        assert run(has_rows(RUN, "rollout-10"), store) is True

    def test_a_manifest_read_while_the_rollout_is_retired_says_so(self, store):
        run(record(RUN, commit()), store)

        class RetiredMeanwhile(WrappedStore):
            def get(self, key):
                run(retire(FAMILY, RUN, [ROLLOUT]), store)
                return super().get(key)

        with pytest.raises(Retired):
            run(manifest(RUN, ROLLOUT), RetiredMeanwhile(store))

    def test_4096_rollouts_cost_a_put_and_a_list_each_and_five_bulk_deletes(self):
        inner = MemoryStore()
        ids = [f"r{number}" for number in range(4096)]
        for one in ids:
            inner.put(f"ledger/run-1/{one}/failures/c.0123456789abcdef", b"{}")
        store = CountingStore(inner)
        found = run(retire(FAMILY, RUN, ids), store)
        assert (len(found.removed), found.absent) == (4096, ())
        assert store.costs.requests == {"PUT": 4096, "LIST": 4096, "DELETE": 5}
