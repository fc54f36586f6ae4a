# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Any sequence of calls on tokens, captures, the ledger and published rollouts answers as a few dictionaries would."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from gym_objstore import captures, ledger, staging, tokens
from gym_objstore.errors import Conflict, Retired
from gym_objstore.flow import run
from gym_objstore.keys import rollout_prefix
from gym_objstore.objects import announcement, write
from gym_objstore.receipts_published import list_published, mark_consumed, publish, retire_consumed
from gym_objstore.receipts_reading import Masked, read_rows
from gym_objstore.retirement import Claim, delete_rollouts, drop, retire
from gym_objstore.store.memory import MemoryStore
from gym_objstore.sweeping import find_orphans, remove_orphans
from gym_objstore.testing.staged_rollouts import staged_call
from tests.entries import make_entry
from tests.finished import commit_of, receipt_for

RUN = "run-1"
ROLLOUTS = ("r1", "r10", "r1-a1", "R1")
CALLS = ("a", "A", "a.b", "")
NAMED = CALLS[:3]

rollout_ids = st.sampled_from(ROLLOUTS)
calls = st.sampled_from(NAMED)
payloads = st.integers(0, 1)
several = st.lists(rollout_ids, min_size=1, max_size=3, unique=True)


class Machine(RuleBasedStateMachine):
    """A store beside what it should say."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.retired: set[str] = set()
        self.marks = 0
        for family in (tokens.FAMILY, captures.FAMILY):
            run(write(announcement(family, RUN)), self.store)

    def play(self, flow: Any) -> Any:
        return run(flow, self.store)

    def refused(self, rollout: str, play: Callable[[], Any]) -> bool:
        """Play; say whether the rollout is retired, and make sure that the store says the same."""
        if rollout not in self.retired:
            play()
            return False
        with pytest.raises(Retired):
            play()
        return True


class TokensMachine(Machine):
    """Token entries, intents, markers, refusals, snapshots, and the three ways in which a rollout ends."""

    def __init__(self) -> None:
        super().__init__()
        self.state: defaultdict[str, set[tuple[str, str, int]]] = defaultdict(set)
        self.snapshots: list[tuple[str, Any, frozenset[tuple[str, str, int]]]] = []
        self.dropped: dict[str, str] = {}
        self.late: set[str] = set()

    def add(self, rollout: str, kind: str, call: str, payload: int, flow: Any) -> None:
        if self.refused(rollout, lambda: self.play(flow)):
            self.late.add(rollout)  # it stays behind the fence, where nobody sees it
        else:
            self.state[rollout].add((kind, call, payload))

    @rule(rollout=rollout_ids, call=calls, payload=payloads)
    def put(self, rollout: str, call: str, payload: int) -> None:
        entry = make_entry(rollout, call, generation_token_ids=[7, payload])
        self.add(rollout, "entry", call, payload, tokens.put_entry(RUN, entry))

    @rule(rollout=rollout_ids, call=calls)
    def begin(self, rollout: str, call: str) -> None:
        self.add(rollout, "intent", call, 0, tokens.begin_call(RUN, rollout, call))

    @rule(rollout=rollout_ids, call=st.sampled_from(CALLS))
    def mark(self, rollout: str, call: str) -> None:
        if rollout not in self.retired:
            self.marks += 1
            self.add(rollout, "marker", call, self.marks, write(tokens.mark(RUN, rollout, call, {"n": self.marks})))

    @rule(rollout=rollout_ids, call=calls)
    def refuse(self, rollout: str, call: str) -> None:
        if rollout not in self.retired:
            self.add(rollout, "refusal", call, 0, write(tokens.refusal(RUN, rollout, call, {"code": "full"})))

    @rule(rollout=rollout_ids)
    def freeze(self, rollout: str) -> None:
        found: list[Any] = []
        if self.refused(rollout, lambda: found.append(self.play(tokens.freeze(RUN, rollout)))):
            return
        (snapshot,), state = found, self.state[rollout]
        entries = {call: {payload for kind, one, payload in state if (kind, one) == ("entry", call)} for call in NAMED}
        sound = {(call, next(iter(said))) for call, said in entries.items() if len(said) == 1}
        settled = {call for kind, call, _ in state if kind in ("entry", "refusal")}
        problems = [("incomplete_marker", call) for kind, call, _ in state if kind == "marker"]
        problems += [("dangling_intent", call) for kind, call, _ in state if kind == "intent" and call not in settled]
        problems += [("conflict", call) for call, said in entries.items() if len(said) == 2]
        assert {(one.model_call_id, one.generation_token_ids[1]) for one in snapshot.entries} == sound
        assert sorted(problem[:2] for problem in snapshot.problems) == sorted(problems)
        assert snapshot.version == len(state)
        same = [one.snapshot_id for name, one, then in self.snapshots if (name, then) == (rollout, frozenset(state))]
        assert {snapshot.snapshot_id} >= set(same)
        self.snapshots.append((rollout, snapshot, frozenset(state)))

    @precondition(lambda self: self.snapshots)
    @rule(which=st.integers(0, 1000))
    def drop(self, which: int) -> None:
        rollout, snapshot, state = self.snapshots[which % len(self.snapshots)]
        self.marks += 1
        claim = Claim(
            rollout_prefix(tokens.FAMILY, RUN, rollout), snapshot.snapshot_id, snapshot.version, f"{self.marks:016x}"
        )
        alive = rollout not in self.retired and self.state[rollout] == state
        assert self.play(drop(claim)) == (alive or self.dropped.get(rollout) == snapshot.snapshot_id)
        if alive:
            self.dropped[rollout] = snapshot.snapshot_id
            self.retired.add(rollout)
            self.state[rollout].clear()

    @rule(rollouts=several)
    def retire(self, rollouts: list[str]) -> None:
        present = tuple(one for one in rollouts if self.state[one] or one in self.late)
        assert self.play(retire(tokens.FAMILY, RUN, rollouts)).removed == present
        for one in rollouts:
            self.retired.add(one)
            self.forget(one)

    @rule(rollouts=several)
    def delete(self, rollouts: list[str]) -> None:
        present = tuple(one for one in rollouts if self.state[one] or one in self.retired)
        assert self.play(delete_rollouts(tokens.FAMILY, RUN, rollouts)).removed == present
        for one in rollouts:
            self.retired.discard(one)
            self.forget(one)

    def forget(self, rollout: str) -> None:
        self.state[rollout].clear()
        self.dropped.pop(rollout, None)
        self.late.discard(rollout)

    def teardown(self) -> None:
        for rollout in ROLLOUTS:
            self.freeze(rollout)


RECORDS = {
    (rollout, call, payload): staged_call(call, rollout_id=rollout, generated=(21, payload))
    for rollout in ROLLOUTS
    for call in NAMED
    for payload in (0, 1)
}


class LedgerMachine(Machine):
    """Ledger rows and failures."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        self.failures: defaultdict[str, set[str]] = defaultdict(set)

    @rule(rollout=rollout_ids, call=calls, payload=payloads)
    def record(self, rollout: str, call: str, payload: int) -> None:
        record = RECORDS[rollout, call, payload]
        commit = commit_of(record, self.play(staging.stage(RUN, record)).key.text)
        if rollout in self.retired:
            assert self.play(ledger.record(RUN, commit)) is False
            return
        self.rows[rollout].add((call, payload))
        if (call, 1 - payload) in self.rows[rollout]:
            with pytest.raises(Conflict):
                self.play(ledger.record(RUN, commit))
        else:
            assert self.play(ledger.record(RUN, commit)) is True

    @rule(rollout=rollout_ids, call=calls)
    def fail(self, rollout: str, call: str) -> None:
        flow = ledger.record_failure(RUN, rollout, call, reason="capture_failed")
        assert self.play(flow) is (rollout not in self.retired)
        if rollout not in self.retired:
            self.failures[rollout].add(call)

    @rule(rollout=rollout_ids)
    def manifest(self, rollout: str) -> None:
        found: list[Any] = []
        if self.refused(rollout, lambda: found.append(self.play(ledger.manifest(RUN, rollout)))):
            return
        twice = {call for call in NAMED if {(call, 0), (call, 1)} <= self.rows[rollout]}
        assert {row.model_call_id for row in found[0].records} == {call for call, _ in self.rows[rollout]} - twice
        assert {failure.model_call_id for failure in found[0].failures} == self.failures[rollout] | twice

    @rule(rollout=rollout_ids)
    def has_rows(self, rollout: str) -> None:
        found: list[bool] = []
        if not self.refused(rollout, lambda: found.append(self.play(ledger.has_rows(RUN, rollout)))):
            assert found == [bool(self.rows[rollout] or self.failures[rollout])]

    @rule(rollouts=several, lift=st.booleans())
    def end(self, rollouts: list[str], lift: bool) -> None:
        self.play((delete_rollouts if lift else retire)(ledger.FAMILY, RUN, rollouts))
        for one in rollouts:
            (self.retired.discard if lift else self.retired.add)(one)
            self.rows[one].clear()
            self.failures[one].clear()

    def teardown(self) -> None:
        for rollout in ROLLOUTS:
            self.manifest(rollout)


class CapturesMachine(Machine):
    """Captures in their durable order, markers, and the clearing of exactly the rollouts that are named."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: defaultdict[str, set[tuple[int, str]]] = defaultdict(set)
        self.lost: set[str] = set()

    @rule(rollout=rollout_ids, call=st.sampled_from(CALLS), moment=st.integers(0, 5))
    def record(self, rollout: str, call: str, moment: int) -> None:
        line = captures.line_of({"model_call_id": call, "completed_at": moment, "note": "é"}, 9.0)
        self.play(write(captures.capture_put(RUN, rollout, line)))
        self.lines[rollout].add((moment, call))

    @rule(rollout=rollout_ids, call=st.sampled_from(CALLS))
    def mark(self, rollout: str, call: str) -> None:
        self.marks += 1
        self.play(write(captures.mark(RUN, rollout, call, {"n": self.marks})))
        self.lost.add(rollout)

    @rule(rollout=rollout_ids)
    def read(self, rollout: str) -> None:
        found = self.play(captures.read(RUN, rollout))
        records = [captures.record_of(one) for one in found.captures]
        said = [(one["completed_at"], one["model_call_id"]) for one in records]
        assert sorted(said) == sorted(self.lines[rollout])
        assert [moment for moment, _ in said] == sorted(moment for moment, _ in said)
        assert found.incomplete == (rollout in self.lost)
        assert self.play(captures.is_incomplete(RUN, rollout)) == (rollout in self.lost)

    @rule(rollouts=several)
    def clear(self, rollouts: list[str]) -> None:
        present = tuple(one for one in rollouts if self.lines[one] or one in self.lost)
        assert self.play(captures.clear(RUN, rollouts)).removed == present
        for one in rollouts:
            self.lines[one].clear()
            self.lost.discard(one)

    def teardown(self) -> None:
        for rollout in ROLLOUTS:
            self.read(rollout)


class RetentionMachine(Machine):
    """Staged rows and who refers to them: intents, ledger rows, receipts, checkpoints; and the sweep."""

    def __init__(self) -> None:
        super().__init__()
        self.staged: dict[str, tuple[str, str]] = {}
        self.intents: set[tuple[str, str]] = set()
        self.rows: dict[tuple[str, str], str] = {}
        self.receipts: dict[str, set[str]] = {}
        self.consumed: defaultdict[str, set[str]] = defaultdict(set)
        self.gone: defaultdict[str, set[str]] = defaultdict(set)

    @initialize()
    def begin(self) -> None:
        for rollout in ROLLOUTS:
            self.record(rollout, "a")

    @rule(rollout=rollout_ids, call=calls, payload=payloads)
    def stage(self, rollout: str, call: str, payload: int) -> None:
        self.staged[self.play(staging.stage(RUN, RECORDS[rollout, call, payload])).key.text] = rollout, call

    @rule(rollout=rollout_ids, call=calls)
    def admit(self, rollout: str, call: str) -> None:
        if rollout not in self.gone[tokens.FAMILY]:
            self.play(tokens.begin_call(RUN, rollout, call))
            self.intents.add((rollout, call))

    @rule(rollout=rollout_ids, call=calls)
    def record(self, rollout: str, call: str) -> None:
        record = RECORDS[rollout, call, 0]
        key = self.play(staging.stage(RUN, record)).key.text
        self.staged[key] = rollout, call
        if self.play(ledger.record(RUN, commit_of(record, key))):
            self.rows[rollout, call] = key

    @rule(rollout=rollout_ids)
    def publish(self, rollout: str) -> None:
        """Publish once; a second, other receipt would void both, which another law is about."""
        rows = {call: key for (one, call), key in self.rows.items() if one == rollout}
        if rollout in self.gone[ledger.FAMILY] | self.gone["manifests"] or rollout in self.receipts or not rows:
            return
        self.play(publish(RUN, receipt_for(self.store, rollout)))
        self.receipts[rollout] = set(rows.values())

    @rule(rollouts=several, checkpoint=st.sampled_from(["step-1", "step-2"]))
    def consume(self, rollouts: list[str], checkpoint: str) -> None:
        fenced = self.gone["manifests"]
        marked = [one for one in rollouts if one not in fenced]
        assert list(self.play(mark_consumed(RUN, rollouts, checkpoint))) == marked
        for one in marked:
            self.consumed[one].add(checkpoint)

    @rule(checkpoint=st.sampled_from(["step-1", "step-2"]))
    def let_go(self, checkpoint: str) -> None:
        """What the checkpoint consumed is retired in every family, whatever it is, and nothing else."""
        self.play(retire_consumed(RUN, [checkpoint]))
        for rollout in [one for one, names in self.consumed.items() if checkpoint in names]:
            for family in (tokens.FAMILY, ledger.FAMILY, "manifests"):
                self.gone[family].add(rollout)
            self.intents = {one for one in self.intents if one[0] != rollout}
            self.rows = {one: key for one, key in self.rows.items() if one[0] != rollout}
            self.receipts.pop(rollout, None)
            self.consumed[rollout].clear()

    @rule(rollouts=several, family=st.sampled_from([tokens.FAMILY, ledger.FAMILY]))
    def retire(self, rollouts: list[str], family: str) -> None:
        self.play(retire(family, RUN, rollouts))
        self.gone[family] |= set(rollouts)
        if family == tokens.FAMILY:
            self.intents = {one for one in self.intents if one[0] not in rollouts}
        else:
            self.rows = {one: key for one, key in self.rows.items() if one[0] not in rollouts}

    @rule(kept=st.lists(rollout_ids, max_size=1))
    def sweep(self, kept: list[str]) -> None:
        """A row is needed by its call's intent, by a ledger row (where there are several, the one it names),
        by a receipt, and by a checkpoint's list."""
        several_rows = {call for call in self.staged.values() if list(self.staged.values()).count(call) > 1}
        needed = {
            key
            for key, call in self.staged.items()
            if call in self.intents
            or (call in self.rows and (call not in several_rows or self.rows[call] == key))
            or key in self.receipts.get(call[0], ())
            or call[0] in kept
        }
        self.play(remove_orphans(self.play(find_orphans(RUN, now=4e9, grace=0.0)), kept))
        self.staged = {key: call for key, call in self.staged.items() if key in needed}
        self.compare()

    @rule()
    def compare(self) -> None:
        rows = {meta.key.removeprefix(f"staged/{RUN}/").replace("/rows/", "/") for meta in self.store.scan("staged/")}
        assert rows == set(self.staged)
        found = {one.rollout_id: one for one in self.play(list_published(RUN)) if one.finished}
        assert found.keys() == self.receipts.keys()
        for one in self.play(read_rows(RUN, list(found.values()))):
            assert not isinstance(one, Masked), one

    def teardown(self) -> None:
        self.sweep([])


MACHINES = [TokensMachine, LedgerMachine, CapturesMachine, RetentionMachine]


@pytest.mark.parametrize("machine", MACHINES)
def test_any_sequence_of_calls_answers_as_dictionaries_would(machine):
    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=30))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("machine", MACHINES)
def test_thousands_of_sequences_of_calls_answer_as_dictionaries_would(machine):
    run_state_machine_as_test(machine, settings=settings(max_examples=1500, stateful_step_count=50))
