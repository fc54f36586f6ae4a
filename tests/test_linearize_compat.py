# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Damaged and undamaged rollouts get the verdict here that the installed nemo-gym gives them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from nemo_gym.token_id_capture import staging as gym
from nemo_gym.token_id_capture.staging import records as gym_records
from nemo_gym.token_id_capture.staging.digest import compute_staging_digest as gym_staging_digest

from gym_objstore import linearize, reasons
from gym_objstore import wire_ledger as ledger
from gym_objstore import wire_staging as wire
from gym_objstore.errors import Corrupt
from gym_objstore.testing.staged_rollouts import ledger_row, receipt_of, staged_call
from tests.alike import outcome, plain, quickly

if TYPE_CHECKING:
    from collections.abc import Callable

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
    assert theirs == set(reasons.FailureReason) - {"invalid_manifest_row", "conflicting_ledger_rows"}
    assert {value for name, value in vars(gym_records).items() if name.startswith("TERMINAL_")} == set(
        reasons.SelectionReason
    )
