# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Write ``format-v1/``: a run with every kind of object of format 1, as plain files below their keys.

Written once, by the version that introduced the format; later versions must go on reading it, so it is never written
again. ``test_format_v1`` reads it, and writes the same records into memory to compare. Usage, into an empty folder:
``python tests/vectors/generate_format.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gym_objstore import captures, ledger, receipts_published, staging, tokens
from gym_objstore.digests import sha256_hex
from gym_objstore.flow import run
from gym_objstore.index import read_index
from gym_objstore.keys import entry_key, rollout_prefix
from gym_objstore.objects import announcement, write_object
from gym_objstore.receipts import build_receipt
from gym_objstore.records import ParentResolutionStatus, TokenEntry
from gym_objstore.retirement import Claim, drop, retire
from gym_objstore.run_keys import probe_key
from gym_objstore.runs import close_run, create_run
from gym_objstore.sealing import seal
from gym_objstore.stamps import stamp_continuation, stamp_lineage
from gym_objstore.store.opening import open_store
from gym_objstore.testing.staged_rollouts import ledger_row, staged_call
from gym_objstore.wire_ledger import CaptureLedgerCommit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gym_objstore.store import Store
    from gym_objstore.wire_staging import StagedCallRecord

HERE = Path(__file__).parent
FOLDER = HERE / "format-v1"

RUN = "Run 1"
WHOLE, LOSSY, RETIRED, DROPPED = "task-0-1", "task-0-1-a1", "task-0-2", "task-0-3"
LONG = "Größe/" + "x" * 120
AT = 1764460800.125

QUESTION = [{"role": "user", "content": "What is 2 + 2?"}]
SAID = ("4", "8", "16")

STAGING_KEYS = (
    f"{WHOLE}/c0.6826bc87a66426385a976dd5fbd64b3ac6018db043a68d6f3f820d774b5c0e3e.409.0.r1",
    f"{WHOLE}/c1.604ab7e563ed41a0c1f7b568f9c591aa7dfbe4373d71b3a1edf66a29565c4e67.466.31.r1",
    f"{WHOLE}/!43!202.ab96d5a685100a761fe1a2b18d783b8621fda3589d0882928d6e6e8bd0ae2d7c.534.31.r1",
)
"""Of the rows of ``staged_calls``. Written down, because a staging key names compressed bytes: another zstd library
may give another one, and everything that carries it must stay what it is."""


def answer(text: str) -> list[dict[str, Any]]:
    """Return what the model said as output items."""
    return [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]


def request(turn: int) -> list[dict[str, Any]]:
    """Return the messages of the request of a turn."""
    items = list(QUESTION)
    for text in SAID[:turn]:
        items += [*answer(text), {"role": "user", "content": "Double it."}]
    return items


def entry(call: str, turn: int = 0, parent: str | None = None, *, rollout: str = WHOLE, **fields: Any) -> TokenEntry:
    """Return the stamped entry of a turn; from turn 2 on its prompt is a delta."""
    prompts, generated = [[1, 2], [5], [7]], [[3, 4], [6, 2**40], [8, 9]]
    whole = [one for pair in zip(prompts[:turn], generated[:turn], strict=True) for part in pair for one in part]
    delta = turn > 1
    made = TokenEntry(
        rollout_id=rollout,
        model_call_id=call,
        model="policy",
        prompt_token_ids=prompts[turn] if delta else whole + prompts[turn],
        generation_token_ids=generated[turn],
        generation_log_probs=[-0.5, -1e-07],
        output_items=answer(SAID[turn]),
        token_item_index=0,
        created_at=AT + turn,
        **fields,
    )
    made.prompt_is_delta = delta
    stamp_continuation(made, request(turn))
    status = ParentResolutionStatus.RESOLVED if parent else ParentResolutionStatus.ROOT
    return stamp_lineage(made, parent, parent_resolution=status, cumulative=[*whole, *prompts[turn], *generated[turn]])


def unstamped(call: str, rollout: str = WHOLE) -> TokenEntry:
    """Return an entry that no request continues, with a field that this version does not know."""
    return TokenEntry(
        rollout_id=rollout,
        model_call_id=call,
        prompt_token_ids=[1],
        generation_token_ids=[2],
        generation_log_probs=[-0.25],
        zeta={"b": [1, 2.5, None], "a": "é"},
    )


def staged_calls() -> list[tuple[StagedCallRecord, dict[str, Any] | None]]:
    """Return a chain of records with the attachments of each: narrow columns, wide ones, and one with everything."""
    root = staged_call("c0", rollout_id=WHOLE)
    wide = staged_call(
        "c1", after=[root], rollout_id=WHOLE, generated=(21, 2**40), logprobs=[-0.1, -0.2], extras={"a": [1, 2.5, None]}
    )
    attached = {
        "image": b"\x89PNG",
        "routed": {"experts/0": np.arange(6, dtype=np.int16).reshape(2, 3), "none": {}},
        "scale": np.array(0.5, dtype=">f4"),
    }
    full = staged_call("C 2", after=[root, wide], rollout_id=WHOLE, extras={"media_spans": []})
    return [(root, None), (wide, None), (full, attached)]


def commits(keys: Sequence[str]) -> list[CaptureLedgerCommit]:
    """Return the ledger commits of the staged calls, given their staging keys."""
    records = [record for record, _ in staged_calls()]
    return [
        CaptureLedgerCommit(
            rollout_id=WHOLE,
            record=ledger_row(record, staging_key=keys[turn], admitted_at=AT + turn),
            staging_chain=tuple(keys[: turn + 1]),
            request_items=tuple(request(turn)),
            response_items=tuple(answer(SAID[turn])),
        )
        for turn, record in enumerate(records)
    ]


def exchanges() -> list[dict[str, Any]]:
    """Return captures in another order than that of their completion; one does not name its call."""
    asked = {"model": "policy", "messages": QUESTION}
    return [
        {"model_call_id": "c1", "completed_at": AT + 1, "status_code": 503, "request": asked, "response": None},
        {"model_call_id": "c0", "completed_at": AT, "status_code": 200, "request": asked, "response": {"id": "r"}},
        {"completed_at": AT + 2, "note": "é\n"},
    ]


def write_tokens(store: Store) -> None:
    """Write the token objects: a whole rollout with a pack, one with every loss, a long id, and both tombstones."""
    said = [announcement(tokens.FAMILY, RUN)]
    whole = [entry("c0"), entry("c1", 1, "c0"), entry("C 2", 2, "c1"), unstamped("c4")]
    for one in whole:
        run(tokens.begin_call(RUN, WHOLE, one.model_call_id, said), store)
        run(tokens.put_entry(RUN, one), store)
    run(tokens.begin_call(RUN, WHOLE, "c3"), store)
    note = {"code": "context_length_exceeded", "parent_call_id": None, "parent_resolution": "root"}
    _put(store, tokens.refusal(RUN, WHOLE, "c3", note))
    run(tokens.publish(RUN, WHOLE), store)
    _write_losses(store)
    run(tokens.put_entry(RUN, entry("c0", rollout=LONG)), store)
    for one in (RETIRED, DROPPED):
        run(tokens.put_entry(RUN, entry("c0", rollout=one)), store)
    run(retire(tokens.FAMILY, RUN, [RETIRED]), store)
    late = tokens.prepare(rollout_prefix(tokens.FAMILY, RUN, RETIRED), entry("c1", 1, "c0", rollout=RETIRED))
    store.put(late.key, late.body)
    prefix = rollout_prefix(tokens.FAMILY, RUN, DROPPED)
    index = run(read_index(prefix), store)
    run(drop(Claim(prefix, index.snapshot_id, index.version, "c" * 16)), store)


def _write_losses(store: Store) -> None:
    prefix = rollout_prefix(tokens.FAMILY, RUN, LOSSY)
    for one in (entry("c0", rollout=LOSSY), entry("c1", rollout=LOSSY), unstamped("c1", LOSSY)):
        run(tokens.put_entry(RUN, one), store)
    fields, canonical = seal(entry("c5", rollout=LOSSY))
    bare = tokens.entry_name(fields, sha256_hex(canonical))._replace(format="json")
    store.put(entry_key(prefix, bare), canonical)
    run(tokens.begin_call(RUN, LOSSY, "c3"), store)
    for call in ("c2", ""):
        _put(store, tokens.mark(RUN, LOSSY, call, {"reason": "lost", "at": AT, "nonce": "00112233445566ff"}))
    index = run(read_index(prefix), store)
    claim = Claim(prefix, index.snapshot_id, index.version, "d" * 16)
    store.put(claim.intent, write_object(objects=index.state))


def write_staged(store: Store) -> list[str]:
    """Write the staged rows; return their staging keys."""
    said = [announcement(staging.FAMILY, RUN)]
    return [run(staging.stage(RUN, record, attached, said), store).key.text for record, attached in staged_calls()]


def write_ledger(store: Store, keys: Sequence[str]) -> None:
    """Write ledger rows, failure rows, a call with two rows and a tombstone."""
    said = [announcement(ledger.FAMILY, RUN)]
    for commit in commits(keys):
        run(ledger.record(RUN, commit, said), store)
    run(ledger.record_failure(RUN, WHOLE, "c9", reason="request_finished_without_staged_coordinates"), store)
    lossy = rollout_prefix(ledger.FAMILY, RUN, LOSSY)
    record = staged_call("c0", rollout_id=LOSSY)
    for response in ("r-1", "r-2"):
        row = ledger_row(record, response_id=response)
        commit = CaptureLedgerCommit(rollout_id=LOSSY, record=row, request_items=(), response_items=())
        prepared = ledger.prepare_row(lossy, commit)
        store.put(prepared.key, prepared.body)
    run(ledger.record_failure(RUN, LOSSY, "c1", reason="unresolved_parent"), store)
    run(retire(ledger.FAMILY, RUN, [RETIRED]), store)


def write_captures(store: Store) -> None:
    """Write captures and a marker."""
    _put(store, announcement(captures.FAMILY, RUN))
    for exchange in exchanges():
        _put(store, captures.capture_put(RUN, WHOLE, captures.line_of(exchange, 0.0)))
    _put(store, captures.mark(RUN, LOSSY, "c1", {"reason": "lost", "at": AT, "nonce": "ffeeddccbbaa9988"}))


def write_manifests(store: Store) -> None:
    """Write the descriptor, receipts, a consumed marker, a tombstone and the closed marker."""
    run(create_run(RUN, {"model": "policy", "seed": 1}), store)
    said = [announcement(receipts_published.FAMILY, RUN)]
    for one, called in ((WHOLE, "C 2"), (LOSSY, None)):
        receipt = build_receipt(run(ledger.manifest(RUN, one), store), 1.0, terminal_call_id=called)
        run(receipts_published.publish(RUN, receipt, said), store)
    run(receipts_published.mark_consumed(RUN, [WHOLE], "step-10"), store)
    run(retire(receipts_published.FAMILY, RUN, [RETIRED]), store)
    run(close_run(RUN), store)


def write_run(store: Store) -> list[str]:
    """Write everything; return the staging keys of the rows as they were stored now."""
    write_tokens(store)
    stored = write_staged(store)
    write_ledger(store, STAGING_KEYS)
    write_captures(store)
    write_manifests(store)
    store.put(probe_key("tokens", "entries"), b"written by gym-objstore doctor")
    store.put(probe_key("tokens", "!run"), b"written by gym-objstore doctor")
    return stored


def _put(store: Store, put: Any) -> None:
    store.put(put.key, put.body)


def main() -> None:
    """Write the folder."""
    if FOLDER.exists():
        raise SystemExit(f"{FOLDER} is there: what a version has written stays")
    stored = write_run(open_store(f"file://{FOLDER}"))
    if tuple(stored) != STAGING_KEYS:
        raise SystemExit(f"the rows are now under other keys, write them down in this file, staging_keys={stored}")


if __name__ == "__main__":
    main()
