# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""From published receipts to verified sequences, many rollouts at a time; what is wrong with one masks only it.

A batch is read in two round trips: all receipts, then all staged rows. Only what a store does not answer is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from gym_objstore import staging
from gym_objstore.errors import Corrupt, Invalid, NotFound, ObjstoreError
from gym_objstore.flow import Compute, Find, Flow, together
from gym_objstore.keys import receipt_key, run_prefix
from gym_objstore.linearize import LinearizedRow, trainable_rows, verify_and_linearize
from gym_objstore.reasons import Verdict
from gym_objstore.receipts import terminal_chain, unpack_receipt
from gym_objstore.receipts_published import FAMILY, Published, locate
from gym_objstore.staged_chains import Columns, join_prefix
from gym_objstore.staging_digests import hash_token_ids

if TYPE_CHECKING:
    from gym_objstore.wire_ledger import RolloutReceipt
    from gym_objstore.wire_staging import StagedCallBaseSnapshot

_TOKEN_SIZE = 64


class Masked(NamedTuple):
    """A rollout that may not be trained.

    ``code`` is a ``Verdict`` or the ``kind`` of an error, else ``conflicting_receipts``, ``not_published`` or
    ``retired``; ``detail`` says for a person which call, key or failure it is.
    """

    rollout_id: str
    code: str
    detail: str


class Trainable(NamedTuple):
    """A rollout to train on: its receipt, which has the reward, and its one verified sequence."""

    receipt: RolloutReceipt
    row: LinearizedRow

    @property
    def rollout_id(self) -> str:
        """The rollout's id."""
        return self.receipt.rollout_id


class TokenRow(NamedTuple):
    """The token ids of a rollout's terminal chain, prompt and generated ones, verified by its chain of hashes."""

    receipt: RolloutReceipt
    token_ids: tuple[int, ...]

    @property
    def rollout_id(self) -> str:
        """The rollout's id."""
        return self.receipt.rollout_id


class _Shape(NamedTuple):
    """One way to read a rollout: the staged rows it needs, how they are fetched and what they make."""

    keys: Callable[[RolloutReceipt], list[str]]
    fetch: Callable[[str, Sequence[str]], Flow[list[Any]]]
    make: Callable[[RolloutReceipt, Sequence[Any]], Trainable | TokenRow]


def read_rows(run_id: str, rollouts: Sequence[Published | str]) -> Flow[list[Trainable | Masked]]:
    """Return what may be trained of each rollout, in order; every staged row of its manifest is verified.

    Rollouts given as published need no listing; ids cost one each, in one more round trip.
    Raises: storage errors, after which repeating is safe; ``Invalid`` for an empty id.
    """
    return (yield from _read(run_id, rollouts, _Shape(_every_key, staging.fetch, _row)))


def read_tokens(run_id: str, rollouts: Sequence[Published | str]) -> Flow[list[TokenRow | Masked]]:
    """Return only the token ids of each rollout's terminal chain; otherwise as ``read_rows``.

    Staged rows off that chain are not read.
    """
    return (yield from _read(run_id, rollouts, _Shape(_chain_keys, staging.fetch_columns, _tokens)))


def read_receipts(run_id: str, rollouts: Sequence[Published | str]) -> Flow[list[RolloutReceipt | Masked]]:
    """Return the receipt of each rollout, in order, whether it may be trained or not."""
    published = yield from _located(run_id, rollouts)
    judged = [_listed(one) for one in published]
    finished = [one for one, masked in zip(published, judged, strict=True) if masked is None]
    found = iter((yield from together(_find(run_id, one) for one in finished)))
    gone = [Masked(one.rollout_id, "retired", "the receipt was removed meanwhile") for one in published]
    return [masked or next(found) or late for masked, late in zip(judged, gone, strict=True)]


def _read(run_id: str, rollouts: Sequence[Published | str], shape: _Shape) -> Flow[list[Any]]:
    receipts = yield from read_receipts(run_id, rollouts)
    plans = [one if isinstance(one, Masked) else _plan(shape, one) for one in receipts]
    wanted = [keys for keys in plans if not isinstance(keys, Masked)]
    rows = yield from _fetch_apart(run_id, wanted, shape)
    good = [one for one, plan in zip(receipts, plans, strict=True) if not isinstance(plan, Masked)]
    pairs = zip(good, rows, strict=True)
    made = iter((yield from together(Compute(_made, (shape, one, found), _size(found)) for one, found in pairs)))
    return [plan if isinstance(plan, Masked) else next(made) for plan in plans]


def _located(run_id: str, rollouts: Sequence[Published | str]) -> Flow[list[Published]]:
    if isinstance(rollouts, (str, bytes)):
        msg = f"rollouts must be a list, not one {type(rollouts).__name__}"
        raise TypeError(msg)
    found = iter((yield from locate(run_id, [one for one in rollouts if isinstance(one, str)])))
    return [next(found) if isinstance(one, str) else one for one in rollouts]


def _listed(one: Published) -> Masked | None:
    """Say what the listing alone masks."""
    if one.retired:
        return Masked(one.rollout_id, "retired", "the rollout is behind a tombstone")
    if not one.receipts:
        return Masked(one.rollout_id, "not_published", "the rollout has no receipt")
    if len(one.receipts) > 1:
        return Masked(one.rollout_id, "conflicting_receipts", f"receipts={','.join(one.receipts)}")
    return None


def _find(run_id: str, one: Published) -> Find:
    (digest,) = one.receipts
    prefix = f"{run_prefix(FAMILY, run_id)}{one.rollout}/"
    return Find(receipt_key(prefix, digest), partial(_receipt_or_masked, one, digest))


def _receipt_or_masked(one: Published, digest: str, body: bytes) -> RolloutReceipt | Masked:
    try:
        return unpack_receipt(one.rollout, digest, body)
    except Corrupt as error:
        return Masked(one.rollout_id, error.kind, str(error))


def _plan(shape: _Shape, receipt: RolloutReceipt) -> list[str] | Masked:
    """Return the staging keys to read, or what the receipt alone masks, so that no staged row is read for it."""
    try:
        trainable_rows(receipt)
        return shape.keys(receipt)
    except Corrupt as error:
        return _masked(receipt, error)


def _fetch_apart(run_id: str, wanted: Sequence[list[str]], shape: _Shape) -> Flow[list[list[Any] | ObjstoreError]]:
    """Fetch the rows of many rollouts in one batch; a batch with damage is halved until the damage is alone."""
    try:
        rows = iter((yield from shape.fetch(run_id, [key for keys in wanted for key in keys])))
    except (Corrupt, Invalid, NotFound) as error:
        if len(wanted) == 1:
            return [error]
        half = len(wanted) // 2
        before = yield from _fetch_apart(run_id, wanted[:half], shape)
        return [*before, *(yield from _fetch_apart(run_id, wanted[half:], shape))]
    return [list(islice(rows, len(keys))) for keys in wanted]


def _made(shape: _Shape, receipt: RolloutReceipt, rows: list[Any] | ObjstoreError) -> Trainable | TokenRow | Masked:
    try:
        if isinstance(rows, ObjstoreError):
            raise rows
        return shape.make(receipt, rows)
    except (Corrupt, Invalid, NotFound) as error:
        return _masked(receipt, error)


def _masked(receipt: RolloutReceipt, error: ObjstoreError) -> Masked:
    return Masked(receipt.rollout_id, error.kind, str(error))


def _size(rows: list[Any] | ObjstoreError) -> int:
    return 0 if isinstance(rows, ObjstoreError) else _TOKEN_SIZE * sum(map(_length, rows))


def _length(row: StagedCallBaseSnapshot | Columns) -> int:
    return len(row.token_ids) if isinstance(row, Columns) else row.delta_len


def _every_key(receipt: RolloutReceipt) -> list[str]:
    return [row.staging_key for row in receipt.manifest]


def _chain_keys(receipt: RolloutReceipt) -> list[str]:
    return [row.staging_key for row in terminal_chain(receipt)]


def _row(receipt: RolloutReceipt, snapshots: Sequence[StagedCallBaseSnapshot]) -> Trainable:
    return Trainable(receipt, verify_and_linearize(receipt, snapshots, sealed=True))


def _tokens(receipt: RolloutReceipt, chain: Sequence[Columns]) -> TokenRow:
    terminal = terminal_chain(receipt)[-1]
    if any(one.rollout_id != receipt.rollout_id for one in chain):
        raise Corrupt("a staged row is another rollout's", kind=str(Verdict.WRONG_ROLLOUT))
    token_ids = join_prefix(chain, terminal.chain_hash)
    if hash_token_ids(token_ids) != terminal.cumulative_hash:
        raise Corrupt("the token ids are not the terminal call's", kind=str(Verdict.CUMULATIVE_HASH_MISMATCH))
    return TokenRow(receipt, tuple(token_ids))
