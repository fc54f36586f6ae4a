# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""From a rollout's manifest and its scored response to the receipt a trainer works by, and receipts as bytes.

Owns which manifest may be trained and by which call, and the object that says so. Where receipts are published is
for ``receipts_published``, whether the staged rows fit them for ``linearize``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from gym_objstore.digests import sha256_hex
from gym_objstore.errors import Corrupt, Invalid
from gym_objstore.ids import require_id, segment
from gym_objstore.objects import read_object, write_object
from gym_objstore.reasons import FailureReason, SelectionReason, Verdict
from gym_objstore.terminal import TerminalSelection, resolve_terminal, select_terminal_call
from gym_objstore.wire_ledger import CallRecord, RolloutManifest, RolloutReceipt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gym_objstore.terminal import TerminalAttribution

_DISAGREEMENT = "witness_disagreement"


class Terminal(NamedTuple):
    """How the search for the call that earned the reward ended: the receipt's fields of the same names."""

    terminal_model_call_id: str | None
    terminal_selection: str
    terminal_attribution_reason: str
    failure_reason: str | None = None


def build_receipt(
    manifest: Any,
    reward: float | None = None,
    *,
    response: dict[str, Any] | None = None,
    declared_response_id: str | None = None,
    terminal_call_id: str | None = None,
) -> RolloutReceipt:
    """Return the receipt of a finished rollout.

    ``manifest`` is a ledger's: ours, nemo-gym's or plain data; ``response`` the object that was scored;
    ``declared_response_id`` the response the harness says it kept; ``terminal_call_id`` the call, where the caller
    knows it, which the receipt calls ``declared`` too. Witnesses are weighed as ``terminal.resolve_terminal`` says.
    A declared response that names no call poisons the receipt; where no witness speaks, parent links decide, and
    where witnesses contradict each other only if the calls form one chain.
    A manifest that is unreadable or has a poisoning failure gives a poisoned receipt with that reason.
    Raises: ``Invalid`` for a reward that is no finite number and a manifest without a rollout id.
    """
    found = _readable(manifest)
    if isinstance(found, str):
        return _receipt(found, reward, capture_poisoned=True, failure_reason=FailureReason.INVALID_MANIFEST_ROW)
    if len({row.model_call_id for row in found.records}) != len(found.records):
        return _receipt(
            found.rollout_id, reward, capture_poisoned=True, failure_reason=SelectionReason.DUPLICATE_CALL_ID
        )
    attribution = resolve_terminal(found.records, response, terminal_call_id, declared_response_id=declared_response_id)
    terminal = _terminal(found.records, attribution, declared=bool(declared_response_id))
    poison = next((one.reason for one in found.failures if one.poisons), terminal.failure_reason)
    fields = terminal._replace(failure_reason=poison)._asdict()
    return _receipt(found.rollout_id, reward, manifest=found.records, capture_poisoned=poison is not None, **fields)


def terminal_chain(receipt: RolloutReceipt) -> list[CallRecord]:
    """Return the calls from the root to the terminal one. Raises ``Corrupt``, whose ``kind`` is a ``Verdict``."""
    rows = {row.model_call_id: row for row in receipt.manifest}
    call, chain = receipt.terminal_model_call_id, list[CallRecord]()
    while call is not None:
        if call not in rows:
            raise Corrupt(f"a parent is not in the manifest, model_call_id={call}", kind=str(Verdict.MISSING_PARENT))
        if len(chain) == len(rows):
            raise Corrupt(f"the calls form a cycle, model_call_id={call}", kind=str(Verdict.LINEAGE_CYCLE))
        chain.append(rows[call])
        call = rows[call].parent_call_id
    return chain[::-1]


def pack_receipt(receipt: RolloutReceipt) -> bytes:
    """Return the bytes that are stored for a receipt; the SHA-256 of them is its name."""
    return write_object(receipt=receipt.model_dump(mode="json"))


def unpack_receipt(rollout: str, digest: str, body: bytes) -> RolloutReceipt:
    """Return a published receipt, given the segment and the digest it was found under.

    Raises ``Corrupt``: of kind ``invalid_manifest_row`` for fields or versions that this version does not know.
    """
    if sha256_hex(body) != digest:
        raise Corrupt("the receipt is damaged", kind="damaged_receipt", key=digest)
    try:
        receipt = RolloutReceipt.model_validate(read_object(body)["receipt"])
    except (KeyError, ValidationError) as error:
        reason = "the receipt cannot be read by this version"
        raise Corrupt(reason, kind=str(FailureReason.INVALID_MANIFEST_ROW), key=digest) from error
    if segment(receipt.rollout_id) != rollout:
        reason = f"the receipt is another rollout's, rollout_id={receipt.rollout_id}"
        raise Corrupt(reason, kind="misplaced", key=digest)
    return receipt


def _readable(manifest: Any) -> RolloutManifest | str:
    """Return a manifest, or only its rollout id where the rest cannot be read."""
    if isinstance(manifest, RolloutManifest):
        return manifest
    try:
        said = manifest if isinstance(manifest, Mapping) else manifest.model_dump(mode="json")
    except AttributeError as error:
        raise Invalid(f"not a manifest, type={type(manifest).__name__}", kind="bad_record") from error
    try:
        return RolloutManifest.model_validate(said)
    except ValidationError:
        return require_id(said.get("rollout_id", ""), "the manifest's rollout_id")


def _terminal(rows: Sequence[CallRecord], attribution: TerminalAttribution, *, declared: bool) -> Terminal:
    trail = attribution.reason
    if attribution.attributed:
        method = "declared" if attribution.method == "explicit" else attribution.method
        return Terminal(attribution.model_call_id, method, trail)
    contradicted = _DISAGREEMENT in trail
    if declared:
        return Terminal(None, "declared", trail, _DISAGREEMENT if contradicted else trail.rpartition(",")[2])
    selection = select_terminal_call(rows)
    if contradicted and not _single_chain(rows):
        selection = TerminalSelection(None, SelectionReason.AMBIGUOUS)
    called = selection.terminal_model_call_id
    return Terminal(called, "heuristic", trail, None if called else str(selection.reason))


def _single_chain(rows: Sequence[CallRecord]) -> bool:
    """Say whether no call has a sibling."""
    return len({row.parent_call_id for row in rows}) == len(rows)


def _receipt(rollout_id: str, reward: float | None, **fields: Any) -> RolloutReceipt:
    try:
        return RolloutReceipt.model_validate({"rollout_id": rollout_id, "reward": reward, **fields})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"no receipt can be built, field={where}, reason={first['msg']}, rollout_id={rollout_id}"
        raise Invalid(reason, kind="bad_receipt") from error
