# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""On the same input this package and the installed nemo-gym say the same: records, digests, verdicts, attribution."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nemo_gym.token_id_capture import staging as gym
from nemo_gym.token_id_capture.fingerprint import assistant_fingerprint as gym_fingerprint
from nemo_gym.token_id_capture.records import TokenEntry as GymTokenEntry
from nemo_gym.token_id_capture.staging import records as gym_records
from nemo_gym.token_id_capture.staging.digest import compute_staging_digest as gym_staging_digest

from gym_objstore import linearize, reasons, rollout_capture, routed_experts, staging_digests, terminal
from gym_objstore import wire_ledger as ledger
from gym_objstore import wire_staging as wire
from gym_objstore.errors import Corrupt
from gym_objstore.records import TokenEntry
from gym_objstore.testing.staged_rollouts import admission, ledger_row, receipt_of, staged_call

if TYPE_CHECKING:
    from collections.abc import Callable

quickly = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

HEX = st.sampled_from(["0" * 64, "ab" * 32, "A" * 64, "0" * 63, "0" * 64 + "\n"])
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 2, 3, 2**63, 2**64, 10**30, 0.0, -0.0, 1.0, 1.5, 1e39, math.nan, math.inf]),
    st.sampled_from(["", "x", "1", "call-0", "text", "token_in", "staged", "capture_failed", "content", "\ud800"]),
    HEX,
    st.sampled_from([[], [1], [1, 2], [-1], [True], [1.0], ["1"], [2**64], [0.0, 1.0], [None], {}, {"a": 1}, [{}]]),
)


def plain(record: Any) -> dict[str, Any]:
    return record.model_dump(mode="json")


def outcome(act: Callable[[], Any]) -> Any:
    """Return what an action says, any refusal being ``"refused"``."""
    try:
        return act()
    except (ValueError, TypeError, KeyError):
        return "refused"


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


# --- linearization ---------------------------------------------------------------------------------------

ROW_FIELDS = (
    "parent_call_id",
    "mode",
    "prev_len",
    "delta_len",
    "cum_len",
    "weight_version",
    "digest",
    "extras_digest",
    "chain_hash",
    "cumulative_hash",
)
VERSIONS = ("schema_version", "digest_version", "extras_digest_version")
COLUMNS = ("token_ids_delta", "token_mask_delta", "generation_log_probs_delta")
RECEIPT_FIELDS = (
    "rollout_id",
    "terminal_model_call_id",
    "capture_poisoned",
    "failure_reason",
    "terminal_selection",
    *VERSIONS,
)


class Rollout:
    """A receipt, its rows and its snapshots as plain data, to be damaged."""

    def __init__(self, parents: list[int | None], terminal_index: int) -> None:
        chains: list[list[wire.StagedCallRecord]] = []
        for number, parent in enumerate(parents):
            above = [] if parent is None else chains[parent]
            call = staged_call(f"call-{number}", after=above, prompt=[number] * (number % 3), generated=[50, number])
            chains.append([*above, call])
        records = [chain[-1] for chain in chains]
        self.receipt = plain(receipt_of(records, terminal_model_call_id=f"call-{terminal_index}"))
        self.rows: list[dict[str, Any]] = self.receipt["manifest"]
        self.snapshots = [{name: value for name, value in plain(one).items() if name != "extras"} for one in records]

    def reseal(self, index: int) -> None:
        """Give a snapshot and its row the digest of what the snapshot now says, if it has one."""
        fields = {name: value for name, value in self.snapshots[index].items() if name != "digest"}
        digest = outcome(lambda: gym_staging_digest(**fields))
        if digest != "refused":
            self.snapshots[index]["digest"] = digest
            self.rows[index]["digest"] = digest


@st.composite
def damaged_rollouts(draw: st.DrawFn) -> Rollout:
    count = draw(st.integers(1, 5))
    parents = [draw(st.one_of(st.none(), st.integers(0, number - 1))) if number else None for number in range(count)]
    rollout = Rollout(parents, draw(st.integers(0, count - 1)))
    for _ in range(draw(st.integers(0, 3))):
        index, other = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
        _DAMAGES[draw(st.sampled_from(sorted(_DAMAGES)))](draw, rollout, index, other)
    return rollout


def _forge_both(draw: st.DrawFn, rollout: Rollout, index: int, other: int) -> None:
    name = draw(st.sampled_from(ROW_FIELDS))
    value = draw(st.one_of(st.just(rollout.rows[other][name]), st.sampled_from([None, 0, 1, 3, "text", "0" * 64])))
    rollout.rows[index][name] = rollout.snapshots[index][name] = value
    rollout.reseal(index)


def _forge_place(draw: st.DrawFn, rollout: Rollout, index: int, other: int) -> None:
    """Make a call a continuation of any other, lengths and all."""
    delta = rollout.rows[index]["delta_len"]
    prev = draw(st.sampled_from([rollout.rows[other]["cum_len"], 1]))
    place = {"parent_call_id": f"call-{other}", "mode": "token_in", "prev_len": prev, "cum_len": prev + delta}
    rollout.rows[index].update(place)
    rollout.snapshots[index].update(place)
    rollout.reseal(index)


def _forge_columns(draw: st.DrawFn, rollout: Rollout, index: int, _other: int) -> None:
    name = draw(st.sampled_from(COLUMNS))
    column = rollout.snapshots[index][name] = list(rollout.snapshots[index][name])
    if column and draw(st.booleans()):
        position = draw(st.integers(0, len(column) - 1))
        column[position] = draw(st.sampled_from([0, 1, -1, 7, 2**64, 0.0, 1.0, 0.5, -0.5, 1e39, math.nan]))
    else:
        column.append(draw(st.sampled_from([1, 0.0, 1.0])))
    if draw(st.booleans()):
        rollout.reseal(index)


def _forge_mask(draw: st.DrawFn, rollout: Rollout, index: int, _other: int) -> None:
    """Let other tokens be the generated ones, consistently."""
    mask = [float(draw(st.booleans())) for _ in rollout.snapshots[index]["token_mask_delta"]]
    rollout.snapshots[index]["token_mask_delta"] = mask
    rollout.snapshots[index]["generation_log_probs_delta"] = [-0.5 * one for one in mask]
    rollout.reseal(index)


def _forge_one(draw: st.DrawFn, rollout: Rollout, index: int, other: int) -> None:
    side = draw(st.sampled_from([rollout.rows, rollout.snapshots]))
    named = ["model_call_id", *ROW_FIELDS, *VERSIONS, *(["rollout_id"] if side is rollout.snapshots else [])]
    name = draw(st.sampled_from(named))
    side[index][name] = draw(st.one_of(st.just(side[other][name]), st.sampled_from([None, 0, 1, 3, "x", "0" * 64])))


def _forge_receipt(draw: st.DrawFn, rollout: Rollout, _index: int, _other: int) -> None:
    rollout.receipt[draw(st.sampled_from(RECEIPT_FIELDS))] = draw(
        st.sampled_from([None, True, False, 1, 2, 3, "call-0"])
    )


def _swap(draw: st.DrawFn, rollout: Rollout, index: int, other: int) -> None:
    side = draw(st.sampled_from([rollout.rows, rollout.snapshots]))
    side[index], side[other] = side[other], side[index]


def _swap_calls(_draw: st.DrawFn, rollout: Rollout, index: int, other: int) -> None:
    for side in (rollout.rows, rollout.snapshots):
        side[index], side[other] = side[other], side[index]


def _repeat(draw: st.DrawFn, rollout: Rollout, index: int, other: int) -> None:
    side = draw(st.sampled_from([rollout.rows, rollout.snapshots]))
    side[other] = dict(side[index])


def _repeat_key(_draw: st.DrawFn, rollout: Rollout, index: int, other: int) -> None:
    rollout.rows[index]["staging_key"] = rollout.rows[other]["staging_key"]


def _lose(draw: st.DrawFn, rollout: Rollout, index: int, other: int) -> None:
    # What is gone is replaced by a call of no rollout's, so that positions stay valid for further damage.
    stranger = plain(staged_call("stranger"))
    del stranger["extras"]
    if draw(st.booleans()):
        rollout.snapshots[index] = stranger
    else:
        rollout.rows[other] = plain(ledger_row(staged_call("stranger")))
        rollout.snapshots[other] = stranger


def _shorten(draw: st.DrawFn, rollout: Rollout, _index: int, _other: int) -> None:
    rollout.receipt["manifest"] = rollout.rows[: draw(st.integers(0, len(rollout.rows)))]


def _add_column(draw: st.DrawFn, rollout: Rollout, index: int, _other: int) -> None:
    draw(st.sampled_from([rollout.receipt, rollout.rows[index], rollout.snapshots[index]]))["finish_reason"] = "stop"


_DAMAGES: dict[str, Callable[[st.DrawFn, Rollout, int, int], None]] = {
    "forge both sides": _forge_both,
    "forge a place": _forge_place,
    "forge columns": _forge_columns,
    "forge the mask": _forge_mask,
    "forge one side": _forge_one,
    "forge the receipt": _forge_receipt,
    "swap": _swap,
    "swap calls": _swap_calls,
    "repeat": _repeat,
    "repeat a key": _repeat_key,
    "lose": _lose,
    "shorten": _shorten,
    "add a column": _add_column,
}


def our_verdict(receipt: ledger.RolloutReceipt, snapshots: list[wire.StagedCallBaseSnapshot]) -> object:
    try:
        row = linearize.verify_and_linearize(receipt, snapshots)
    except Corrupt as error:
        return error.kind
    return {
        "rollout_id": row.rollout_id,
        "columns": (list(row.token_ids), list(row.token_mask), list(row.logprobs)),
        "prompt_len": row.prompt_len,
        "links": [(span.model_call_id, span.carry_len, span.generation_len) for span in row.spans],
        "weights": [(span.start, span.end, span.weight_version) for span in row.spans],
        "extras": [(span.extras_digest_version, span.extras_digest) for span in row.spans],
    }


def their_verdict(receipt: gym.RolloutReceipt, snapshots: list[gym.StagedCallBaseSnapshot]) -> object:
    try:
        row = gym.verify_and_linearize(receipt, snapshots)
    except gym.ReceiptVerificationError as error:
        return error.code
    return {
        "rollout_id": row.rollout_id,
        "columns": (row.token_ids, row.token_mask, row.logprobs),
        "prompt_len": row.prompt_len,
        "links": row.link_spans,
        "weights": [(span.start, span.end, span.weight_version) for span in row.weight_version_spans],
        "extras": [(one.extras_digest_version, one.extras_digest) for one in row.extras_commitments],
    }


@settings(quickly, max_examples=200)
@given(damaged_rollouts())
def test_rollouts_read_from_the_wire_get_the_same_verdict(rollout: Rollout) -> None:
    ours = outcome(
        lambda: our_verdict(
            ledger.RolloutReceipt.model_validate(rollout.receipt),
            [wire.StagedCallBaseSnapshot.model_validate(one) for one in rollout.snapshots],
        )
    )
    theirs = outcome(
        lambda: their_verdict(
            gym.RolloutReceipt.model_validate(rollout.receipt),
            [gym.StagedCallBaseSnapshot.model_validate(one) for one in rollout.snapshots],
        )
    )
    assert ours == theirs


@settings(quickly, max_examples=200)
@given(damaged_rollouts())
def test_rollouts_that_no_validation_has_seen_get_the_same_verdict(rollout: Rollout) -> None:
    def built(receipt: Any, row: Any, snapshot: Any) -> tuple[Any, list[Any]]:
        rows = [row.model_construct(**one) for one in rollout.receipt["manifest"]]
        whole = receipt.model_construct(**{**rollout.receipt, "manifest": rows})
        return whole, [snapshot.model_construct(**one) for one in rollout.snapshots]

    ours = our_verdict(*built(ledger.RolloutReceipt, ledger.CallRecord, wire.StagedCallBaseSnapshot))
    theirs = their_verdict(*built(gym.RolloutReceipt, gym.CallRecord, gym.StagedCallBaseSnapshot))
    assert ours == theirs


def test_every_code_of_nemo_gym_has_the_same_value_here() -> None:
    theirs = {value for name, value in vars(gym_records).items() if name.endswith("_REASON")}
    assert theirs == set(reasons.FailureReason) - {"invalid_manifest_row"}
    assert {value for name, value in vars(gym_records).items() if name.startswith("TERMINAL_")} == set(
        reasons.SelectionReason
    )


# --- terminal attribution --------------------------------------------------------------------------------

SAID: list[dict[str, Any]] = [
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "one"}]},
    {"type": "message", "role": "assistant", "content": "two"},
    {"type": "function_call", "call_id": "f", "name": "look", "arguments": '{"b": 1, "a": 2}'},
    {"type": "reasoning", "summary": []},
    {"type": "function_call_output", "call_id": "f", "output": "seen"},
    {"role": "assistant", "content": 3},
]
ITEMS = st.lists(st.sampled_from(SAID), max_size=4)
RESPONSE_IDS = st.sampled_from(["resp-0", "resp-1", "resp-2", None])
RESPONSES = st.one_of(
    st.none(),
    st.fixed_dictionaries({}, optional={"id": RESPONSE_IDS, "output": st.one_of(st.none(), ITEMS, st.just("text"))}),
)
CALL_IDS = st.sampled_from([None, "call-0", "call-1", "stranger"])


def fingerprint_of(items: list[dict[str, Any]]) -> str:
    found = outcome(lambda: gym_fingerprint(items))
    return "" if found == "refused" else str(found)


@st.composite
def entry_fields(draw: st.DrawFn, number: int) -> dict[str, Any]:
    ids = draw(st.sampled_from([[1], [2]]))
    output = draw(ITEMS)
    return {
        "rollout_id": "r",
        "model_call_id": f"call-{number}",
        "prompt_token_ids": [9],
        "generation_token_ids": ids,
        "generation_log_probs": [-0.5],
        "response_id": draw(RESPONSE_IDS),
        "output_items": output,
        "continuation_fingerprint": fingerprint_of(draw(ITEMS) + output),
        "fingerprint_version": draw(st.sampled_from([None, 1, 2])),
        **draw(st.sampled_from([{}, {"digest": f"{ids}", "cum_len": 2}])),
    }


@st.composite
def row_fields(draw: st.DrawFn, number: int) -> dict[str, Any]:
    output = draw(ITEMS)
    return {
        **plain(ledger_row(staged_call(f"call-{number}", generated=[draw(st.integers(1, 2))]))),
        "response_id": draw(st.sampled_from(["resp-0", "resp-1", "resp-2"])),
        "output_fingerprint": fingerprint_of(output) or None,
        "continuation_fingerprint": fingerprint_of(draw(ITEMS) + output) or None,
        "fingerprint_version": draw(st.sampled_from([0, 1, 2, 2, 2])),
    }


def attributed(resolve: Any, calls: list[Any], case: tuple[Any, Any, Any]) -> tuple[Any, str, str]:
    response, explicit, declared = case
    found = resolve(calls, response, explicit, declared_response_id=declared)
    return found.model_call_id, found.method, found.reason


ASKED = st.tuples(RESPONSES, CALL_IDS, RESPONSE_IDS)


@settings(quickly, max_examples=200)
@given(st.integers(0, 4).flatmap(lambda count: st.tuples(*map(entry_fields, range(count)))), ASKED)
def test_entries_are_attributed_alike(fields: tuple[dict[str, Any], ...], case: tuple[Any, Any, Any]) -> None:
    ours = attributed(terminal.resolve_terminal, [TokenEntry(**one) for one in fields], case)
    assert ours == attributed(gym.resolve_terminal, [GymTokenEntry(**one) for one in fields], case)


@settings(quickly, max_examples=200)
@given(st.integers(0, 4).flatmap(lambda count: st.tuples(*map(row_fields, range(count)))), ASKED)
def test_manifest_rows_are_attributed_alike(fields: tuple[dict[str, Any], ...], case: tuple[Any, Any, Any]) -> None:
    ours = attributed(terminal.resolve_terminal, [ledger.CallRecord(**one) for one in fields], case)
    assert ours == attributed(gym.resolve_terminal, [gym.CallRecord(**one) for one in fields], case)


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    template = {name: value for name, value in plain(ledger_row(CHILD)).items() if name != "admitted_at"}
    rows = []
    for number in range(draw(st.integers(0, 6))):
        parent = draw(st.sampled_from([None, *(f"call-{other}" for other in range(6))]))
        place = {"parent_call_id": parent, "mode": "text" if parent is None else "token_in"}
        lengths = {"prev_len": 0 if parent is None else 1, "delta_len": 1, "cum_len": 1 if parent is None else 2}
        call_id = f"call-{draw(st.integers(0, 5)) if draw(st.integers(0, 9)) == 0 else number}"
        admitted = draw(st.sampled_from([None, 1.0, 2.0, -0.0]))
        rows.append({**template, **place, **lengths, "model_call_id": call_id, "admitted_at": admitted})
    return rows


@settings(quickly, max_examples=200)
@given(graphs())
def test_parent_links_lead_to_the_same_call(rows: list[dict[str, Any]]) -> None:
    ours = terminal.select_terminal_call([ledger.CallRecord(**one) for one in rows])
    theirs = gym.select_terminal_call([gym.CallRecord(**one) for one in rows])
    assert (ours.terminal_model_call_id, ours.reason) == (theirs.terminal_model_call_id, theirs.reason)


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
