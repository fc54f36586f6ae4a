# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""From a receipt and its staged rows to the one sequence to train on, or the code of what is wrong.

Owns the verdicts, which are those of nemo-gym 0.7.0 in the same order of precedence. Takes nothing on
trust: every row is compared with the manifest and re-hashed, and the terminal chain is re-hashed as a
whole. Extras are not read here; a span carries the digest that whoever loads them must find.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from gym_objstore.errors import Corrupt
from gym_objstore.reasons import Verdict
from gym_objstore.staging_digests import (
    EXTRAS_DIGEST_VERSION,
    STAGING_DIGEST_VERSION,
    STAGING_SCHEMA_VERSION,
    compute_chain_hash,
    hash_token_ids,
)
from gym_objstore.wire_ledger import CallRecord, RolloutReceipt
from gym_objstore.wire_staging import StagedCallBaseSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class CallSpan:
    """One call's part of a row: ``carry_len`` prompt tokens from ``start`` on, then what it generated.

    ``extras_digest`` is what the digest of the call's extras must be, by ``extras_digest_version``.
    """

    model_call_id: str
    start: int
    carry_len: int
    generation_len: int
    weight_version: int
    extras_digest_version: int
    extras_digest: str

    @property
    def end(self) -> int:
        """The position behind the call's last token."""
        return self.start + self.carry_len + self.generation_len


@dataclass(frozen=True, slots=True)
class LinearizedRow:
    """One verified sequence, from the root to the terminal call.

    The three columns have one value per token: the id, 1.0 where the policy generated it and 0.0 elsewhere,
    and its log probability, 0.0 where it was not generated. ``spans`` are the calls in order, gapless.
    """

    rollout_id: str
    token_ids: tuple[int, ...]
    token_mask: tuple[float, ...]
    logprobs: tuple[float, ...]
    spans: tuple[CallSpan, ...]

    @property
    def prompt_len(self) -> int:
        """The number of tokens before the first generated one."""
        return self.spans[0].carry_len


def verify_and_linearize(
    receipt: RolloutReceipt, snapshots: Sequence[StagedCallBaseSnapshot], *, sealed: bool = False
) -> LinearizedRow:
    """Return the terminal chain of a receipt as one sequence, everything verified.

    ``snapshots`` are the staged rows of the whole manifest, in its order. Their digests are computed again unless
    they are ``sealed``: just made from bytes, which checks them, and in nobody else's hands since.
    Raises: ``Corrupt``, whose ``kind`` is a ``Verdict``; ``TypeError`` for values of other types.
    """
    _require_type(receipt, RolloutReceipt)
    for snapshot in snapshots:
        _require_type(snapshot, StagedCallBaseSnapshot)
    rows = trainable_rows(receipt)
    staged = _verified_snapshots(receipt, snapshots, sealed=sealed)
    _require_forest(rows)
    return _joined(receipt.rollout_id, [(row, staged[row.model_call_id]) for row in _terminal_chain(receipt, rows)])


def trainable_rows(receipt: RolloutReceipt) -> dict[str, CallRecord]:
    """Return a receipt's rows by call, after every check that needs no staged row.

    Raises ``Corrupt`` as ``verify_and_linearize`` does. How the rows are linked is judged after their snapshots.
    """
    _require_trainable(receipt)
    return _rows_by_call(receipt)


def _require_type(value: object, expected: type) -> None:
    if not isinstance(value, expected):
        msg = f"linearizing needs {expected.__name__} values, type={type(value).__name__}"
        raise TypeError(msg)


def _refuse(verdict: str, detail: str) -> NoReturn:
    raise Corrupt(f"the rollout may not be trained, {detail}", kind=str(Verdict(verdict)))


def _require_trainable(receipt: RolloutReceipt) -> None:
    where = f"rollout_id={receipt.rollout_id}"
    if receipt.schema_version != STAGING_SCHEMA_VERSION:
        _refuse(Verdict.UNSUPPORTED_SCHEMA, f"{where}, schema_version={receipt.schema_version}")
    if receipt.digest_version != STAGING_DIGEST_VERSION:
        _refuse(Verdict.UNSUPPORTED_DIGEST, f"{where}, digest_version={receipt.digest_version}")
    if receipt.extras_digest_version != EXTRAS_DIGEST_VERSION:
        version = receipt.extras_digest_version
        _refuse(Verdict.UNSUPPORTED_EXTRAS_DIGEST, f"{where}, extras_digest_version={version}")
    if receipt.failure_reason is not None:
        _refuse(Verdict.ROLLOUT_FAILED, f"{where}, failure_reason={receipt.failure_reason}")
    if receipt.capture_poisoned:
        _refuse(Verdict.CAPTURE_POISONED, where)
    if not receipt.manifest:
        _refuse(Verdict.EMPTY_MANIFEST, where)


def _rows_by_call(receipt: RolloutReceipt) -> dict[str, CallRecord]:
    rows: dict[str, CallRecord] = {}
    keys: set[str] = set()
    for row in receipt.manifest:
        if row.model_call_id in rows:
            _refuse(Verdict.DUPLICATE_MANIFEST_ROW, f"model_call_id={row.model_call_id}")
        if row.staging_key in keys:
            _refuse(Verdict.DUPLICATE_STAGING_KEY, f"staging_key={row.staging_key}")
        rows[row.model_call_id] = row
        keys.add(row.staging_key)
    return rows


def _verified_snapshots(
    receipt: RolloutReceipt, snapshots: Sequence[StagedCallBaseSnapshot], *, sealed: bool
) -> dict[str, StagedCallBaseSnapshot]:
    if len(snapshots) != len(receipt.manifest):
        _refuse(Verdict.ROW_COUNT_MISMATCH, f"rows={len(receipt.manifest)}, snapshots={len(snapshots)}")
    calls = {row.model_call_id for row in receipt.manifest}
    verified: dict[str, StagedCallBaseSnapshot] = {}
    for row, snapshot in zip(receipt.manifest, snapshots, strict=True):
        call = snapshot.model_call_id
        where = f"staging_key={row.staging_key}, expected={row.model_call_id}, found={call}"
        if call in verified:
            _refuse(Verdict.DUPLICATE_SNAPSHOT, where)
        if call not in calls:
            _refuse(Verdict.SNAPSHOT_IDENTITY_MISMATCH, where)
        if call != row.model_call_id:
            _refuse(Verdict.SNAPSHOT_ORDER_MISMATCH, where)
        _require_same_call(receipt, row, snapshot)
        if not sealed:
            _require_sealed(snapshot)
        verified[call] = snapshot
    return verified


_SHARED_FIELDS = (
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
    "schema_version",
    "digest_version",
    "extras_digest_version",
)
"""What a staged row and its ledger row both say, in the order of precedence of the verdicts."""


def _require_same_call(receipt: RolloutReceipt, row: CallRecord, snapshot: StagedCallBaseSnapshot) -> None:
    where = f"model_call_id={row.model_call_id}"
    if snapshot.rollout_id != receipt.rollout_id:
        _refuse(Verdict.WRONG_ROLLOUT, f"{where}, expected={receipt.rollout_id}, found={snapshot.rollout_id}")
    for name in _SHARED_FIELDS:
        expected, found = getattr(row, name), getattr(snapshot, name)
        if found != expected:
            _refuse(f"wrong_{name}", f"{where}, expected={expected}, found={found}")


def _require_sealed(snapshot: StagedCallBaseSnapshot) -> None:
    where = f"model_call_id={snapshot.model_call_id}"
    try:
        snapshot.check()
        digest = snapshot.recompute_digest()
    except (TypeError, ValueError) as error:
        _refuse(Verdict.INVALID_SNAPSHOT, f"{where}, {error}")
    if digest != snapshot.digest:
        _refuse(Verdict.CORRUPT_DIGEST, where)


def _require_forest(rows: dict[str, CallRecord]) -> None:
    rooted: set[str] = set()
    for row in rows.values():
        _require_parent(row, rows)
        path: dict[str, None] = {}
        for ancestor in _ancestry(row, rows):
            if ancestor.model_call_id in rooted:
                break
            if ancestor.model_call_id in path:
                _refuse(Verdict.LINEAGE_CYCLE, f"model_call_id={ancestor.model_call_id}")
            path[ancestor.model_call_id] = None
        rooted.update(path)


def _require_parent(row: CallRecord, rows: dict[str, CallRecord]) -> None:
    if row.parent_call_id is None:
        return
    where = f"model_call_id={row.model_call_id}, parent_call_id={row.parent_call_id}"
    parent = rows.get(row.parent_call_id)
    if parent is None:
        _refuse(Verdict.MISSING_PARENT, where)
    if parent.cum_len != row.prev_len:
        _refuse(Verdict.PARENT_LENGTH_MISMATCH, f"{where}, prev_len={row.prev_len}, parent_cum_len={parent.cum_len}")


def _ancestry(row: CallRecord, rows: dict[str, CallRecord]) -> Iterator[CallRecord]:
    """Yield a call and its ancestors, as far as they are there; without end where they form a cycle."""
    cursor: CallRecord | None = row
    while cursor is not None:
        yield cursor
        cursor = None if cursor.parent_call_id is None else rows.get(cursor.parent_call_id)


def _terminal_chain(receipt: RolloutReceipt, rows: dict[str, CallRecord]) -> list[CallRecord]:
    terminal = receipt.terminal_model_call_id
    if terminal is None or terminal not in rows:
        _refuse(Verdict.MISSING_TERMINAL, f"terminal_model_call_id={terminal}")
    return list(_ancestry(rows[terminal], rows))[::-1]


def _joined(rollout_id: str, chain: list[tuple[CallRecord, StagedCallBaseSnapshot]]) -> LinearizedRow:
    token_ids: list[int] = []
    token_mask: list[float] = []
    logprobs: list[float] = []
    spans: list[CallSpan] = []
    chain_hash: str | None = None
    for row, snapshot in chain:
        chain_hash = compute_chain_hash(chain_hash, snapshot.packed.token_ids_delta)
        if row.chain_hash != chain_hash:
            _refuse(Verdict.CHAIN_HASH_MISMATCH, f"model_call_id={row.model_call_id}")
        spans.append(_span(snapshot, start=len(token_ids)))
        token_ids.extend(snapshot.token_ids_delta)
        token_mask.extend(snapshot.token_mask_delta)
        logprobs.extend(snapshot.generation_log_probs_delta)
    terminal = chain[-1][0]
    if terminal.cumulative_hash != hash_token_ids(token_ids):
        _refuse(Verdict.CUMULATIVE_HASH_MISMATCH, f"model_call_id={terminal.model_call_id}")
    return LinearizedRow(rollout_id, tuple(token_ids), tuple(token_mask), tuple(logprobs), tuple(spans))


def _span(snapshot: StagedCallBaseSnapshot, *, start: int) -> CallSpan:
    generation_len = snapshot.token_mask_delta.count(1.0)
    carry_len = snapshot.delta_len - generation_len
    if any(snapshot.token_mask_delta[:carry_len]):
        _refuse(Verdict.INVALID_MASK_ORDER, f"model_call_id={snapshot.model_call_id}")
    if generation_len == 0:
        _refuse(Verdict.EMPTY_GENERATION, f"model_call_id={snapshot.model_call_id}")
    return CallSpan(
        model_call_id=snapshot.model_call_id,
        start=start,
        carry_len=carry_len,
        generation_len=generation_len,
        weight_version=snapshot.weight_version,
        extras_digest_version=snapshot.extras_digest_version,
        extras_digest=snapshot.extras_digest,
    )
