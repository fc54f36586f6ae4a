# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The laws of token transports. Each docstring is the promise; see ``conformance`` for how they are run."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from gym_objstore.records import ParentResolutionStatus
from gym_objstore.stamps import stamp_continuation, stamp_lineage
from gym_objstore.testing.trials import NotOffered, Trial, law, require

QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]


def make_entry(trial: Trial, call: str, *, text: str = "Sunny.", **fields: Any) -> Any:
    """Return a stamped root entry of the transport's record class; equal arguments give equal records."""
    values = {
        "rollout_id": trial.rollout_id,
        "model_call_id": call,
        "model": "conformance",
        "prompt_token_ids": [11, 12],
        "generation_token_ids": [13, 14],
        "generation_log_probs": [-0.1, -2.5e-300],
        "output_items": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}],
        "token_item_index": 0,
        "created_at": 1700000000.25,
        **fields,
    }
    entry = trial.transport.entry(**values)
    stamp_continuation(entry, QUESTION)
    return stamp_lineage(entry, None, parent_resolution=ParentResolutionStatus.ROOT)


@law
async def an_entry_is_visible_and_exact(trial: Trial) -> None:
    """When put returns, a fresh source freezes the same record, unknown fields included."""
    entry = make_entry(trial, "c1", a_field_of_tomorrow={"nested": [1, 2.5, None, "é"]})
    await trial.sink().put(entry)
    snapshot = await trial.source().freeze(trial.rollout_id)
    require(
        [one.model_dump(mode="json") for one in snapshot.entries] == [entry.model_dump(mode="json")], "not the record"
    )
    require(not snapshot.incomplete and bool(snapshot.snapshot_id), "a clean rollout must freeze complete, with an id")


@law
async def an_identical_retry_does_nothing(trial: Trial) -> None:
    """Putting the same record again changes neither the entries nor the version."""
    sink, entry = trial.sink(), make_entry(trial, "c1")
    await sink.put(entry)
    first = await trial.source().freeze(trial.rollout_id)
    await trial.sink().put(make_entry(trial, "c1"))
    second = await trial.source().freeze(trial.rollout_id)
    require(len(second.entries) == 1 and not second.incomplete, "the retry duplicated or damaged")
    require(
        (first.snapshot_id, first.version) == (second.snapshot_id, second.version), "the retry changed the snapshot"
    )


@law
async def two_payloads_for_one_call_are_never_both_valid(trial: Trial) -> None:
    """Another record for a call is refused, or the rollout freezes incomplete without the call."""
    await trial.sink().put(make_entry(trial, "c1"))
    if not await trial.refuses(trial.sink().put(make_entry(trial, "c1", text="Rain."))):
        snapshot = await trial.source().freeze(trial.rollout_id)
        require(snapshot.incomplete, "two payloads, and the rollout looks complete")
        require(not snapshot.entries, "one of two payloads is offered as the valid one")


@law
async def a_write_after_freeze_is_refused_or_seen(trial: Trial) -> None:
    """A put after a freeze is refused, or the frozen snapshot cannot be dropped any more."""
    sink, source = trial.sink(), trial.source()
    await sink.put(make_entry(trial, "c1"))
    snapshot = await source.freeze(trial.rollout_id)
    if not await trial.refuses(sink.put(make_entry(trial, "c2", text="Late."))):
        dropped = await source.drop(trial.rollout_id, snapshot_id=snapshot.snapshot_id, version=snapshot.version)
        require(not dropped, "a snapshot was dropped although a later write had been acknowledged")
        require(len((await trial.source().freeze(trial.rollout_id)).entries) == 2, "a failed drop lost entries")


@law
async def a_marker_lands_after_freeze_and_is_seen(trial: Trial) -> None:
    """mark_incomplete works after a freeze, changes the version and is seen by a fresh source."""
    sink = trial.sink()
    await sink.put(make_entry(trial, "c1"))
    before = await trial.source().freeze(trial.rollout_id)
    await sink.mark_incomplete(trial.rollout_id, "c2")
    after = await trial.source().freeze(trial.rollout_id)
    require(after.incomplete and after.version != before.version, "the marker is not seen")
    dropped = await trial.source().drop(trial.rollout_id, snapshot_id=before.snapshot_id, version=before.version)
    require(not dropped, "a drop that a marker made stale succeeded")


@law
async def every_marker_counts(trial: Trial) -> None:
    """A second marker for the same call makes a drop of the earlier snapshot fail, too."""
    sink, source = trial.sink(), trial.source()
    await sink.mark_incomplete(trial.rollout_id, "c1")
    before = await source.freeze(trial.rollout_id)
    await sink.mark_incomplete(trial.rollout_id, "c1")
    dropped = await source.drop(trial.rollout_id, snapshot_id=before.snapshot_id, version=before.version)
    require(not dropped, "a later marker was retired unseen")


@law
async def a_marker_may_be_all_there_is(trial: Trial) -> None:
    """A marker without a call id masks a rollout that holds nothing else."""
    await trial.sink().mark_incomplete(trial.rollout_id)
    require((await trial.source().freeze(trial.rollout_id)).incomplete, "the lone marker is not seen")


@law
async def an_intent_without_an_entry_masks(trial: Trial) -> None:
    """A call that began and left no entry masks its rollout; its entry settles it."""
    sink = trial.sink()
    if not callable(getattr(sink, "begin_call", None)):
        raise NotOffered("no begin_call")
    await sink.begin_call(trial.rollout_id, "c1")
    require((await trial.source().freeze(trial.rollout_id)).incomplete, "a dangling intent is not seen")
    await sink.put(make_entry(trial, "c1"))
    require(not (await trial.source().freeze(trial.rollout_id)).incomplete, "the entry does not settle its intent")


@law
async def an_intent_after_freeze_is_refused_or_seen(trial: Trial) -> None:
    """begin_call after a freeze is refused, or the frozen snapshot cannot be dropped any more."""
    sink, source = trial.sink(), trial.source()
    if not callable(getattr(sink, "begin_call", None)):
        raise NotOffered("no begin_call")
    await sink.put(make_entry(trial, "c1"))
    before = await source.freeze(trial.rollout_id)
    if not await trial.refuses(sink.begin_call(trial.rollout_id, "c2")):
        dropped = await source.drop(trial.rollout_id, snapshot_id=before.snapshot_id, version=before.version)
        require(not dropped, "a call was admitted and its rollout retired under it")


@law
async def a_refusal_by_the_engine_settles_without_masking(trial: Trial) -> None:
    """record_engine_refusal settles an intent: nothing was lost."""
    sink = trial.sink()
    if not callable(getattr(sink, "record_engine_refusal", None)):
        raise NotOffered("no record_engine_refusal")
    await sink.put(make_entry(trial, "c1"))
    await sink.begin_call(trial.rollout_id, "c2")
    await sink.record_engine_refusal(
        trial.rollout_id, model_call_id="c2", code="context_length", parent_call_id=None, parent_resolution=None
    )
    require(not (await trial.source().freeze(trial.rollout_id)).incomplete, "the refusal does not settle the intent")


@law
async def freezing_again_gives_the_same(trial: Trial) -> None:
    """Two freezes of one state have the same id, version and entries, in any source."""
    await trial.sink().put(make_entry(trial, "c1"))
    first, second = await trial.source().freeze(trial.rollout_id), await trial.source().freeze(trial.rollout_id)
    require((first.snapshot_id, first.version) == (second.snapshot_id, second.version), "the identity changed")


@law
async def an_unknown_rollout_is_empty(trial: Trial) -> None:
    """A rollout nobody wrote, in a run somebody wrote to, freezes to an empty snapshot."""
    await trial.sink().put(make_entry(trial, "c1"))
    snapshot = await trial.source().freeze(f"{trial.rollout_id}-a1")
    require(not snapshot.entries and not snapshot.incomplete, "an unknown rollout is not empty")


@law
async def drop_retires_exactly_its_snapshot(trial: Trial) -> None:
    """drop refuses another version and keeps everything; it retires the exact one, and then writes fail."""
    sink, source = trial.sink(), trial.source()
    await sink.put(make_entry(trial, "c1"))
    snapshot = await source.freeze(trial.rollout_id)
    identity = {"snapshot_id": snapshot.snapshot_id, "version": snapshot.version}
    require(not await source.drop(trial.rollout_id, **{**identity, "version": snapshot.version + 1}), "wrong version")
    require(len((await source.freeze(trial.rollout_id)).entries) == 1, "a refused drop lost the evidence")
    require(await source.drop(trial.rollout_id, **identity), "the exact snapshot was not retired")
    require(await trial.source().drop(trial.rollout_id, **identity), "repeating a finished drop must give True")
    require(await trial.refuses(trial.sink().put(make_entry(trial, "c2"))), "a put into a retired rollout succeeded")
    require(await trial.refuses(trial.source().freeze(trial.rollout_id)), "a retired rollout was frozen")


@law
async def drop_takes_its_snapshot_by_keyword(trial: Trial) -> None:
    """snapshot_id and version of drop are keyword-only."""
    kinds = {name: one.kind for name, one in inspect.signature(trial.source().drop).parameters.items()}
    require(kinds["snapshot_id"] == kinds["version"] == inspect.Parameter.KEYWORD_ONLY, f"not keyword-only: {kinds}")


@law
async def only_one_of_many_consumers_decides(trial: Trial) -> None:
    """Consumers of one snapshot that drop it at the same time never leave the rollout live and partial."""
    await trial.sink().put(make_entry(trial, "c1"))
    snapshot = await trial.source().freeze(trial.rollout_id)
    identity = {"snapshot_id": snapshot.snapshot_id, "version": snapshot.version}
    answers = await asyncio.gather(*(trial.source().drop(trial.rollout_id, **identity) for _ in range(8)))
    require(any(answers), "nobody retired the snapshot")
    require(await trial.refuses(trial.source().freeze(trial.rollout_id)), "retired, and yet it can be frozen")


@law
async def retire_fences_whatever_is_there(trial: Trial) -> None:
    """retire fences incomplete and unknown rollouts, reports them, and repeats as a no-op; delete lifts the fence."""
    sink, source, unknown = trial.sink(), trial.source(), f"{trial.rollout_id}-unknown"
    if not callable(getattr(source, "retire", None)):
        raise NotOffered("no retire")
    await sink.mark_incomplete(trial.rollout_id, "c1")
    removal = await source.retire([trial.rollout_id, unknown, trial.rollout_id])
    require((list(removal.removed), list(removal.absent)) == ([trial.rollout_id], [unknown]), f"reported {removal}")
    require(list((await source.retire([trial.rollout_id])).absent) == [trial.rollout_id], "a repeat must report absent")
    require(await trial.refuses(sink.put(make_entry(trial, "c2"))), "a retired rollout took a write")
    require(list((await source.delete([trial.rollout_id])).removed) == [trial.rollout_id], "delete did not report it")
    require(list((await source.delete([trial.rollout_id])).absent) == [trial.rollout_id], "a repeat must report absent")
    await sink.put(make_entry(trial, "c2"))
    require(len((await trial.source().freeze(trial.rollout_id)).entries) == 1, "the id cannot be used again")


@law
async def a_bare_string_is_no_list(trial: Trial) -> None:
    """retire and delete refuse a bare string with TypeError, before any change."""
    source = trial.source()
    for removal in (getattr(source, "retire", None), getattr(source, "delete", None)):
        if removal is None:
            raise NotOffered("no retire or delete")
        try:
            await removal(trial.rollout_id)
        except TypeError:
            continue
        require(holds=False, complaint="a bare string was taken for a list of ids")


@law
async def rollouts_are_apart(trial: Trial) -> None:
    """What happens to a rollout leaves those alone whose ids begin with its id."""
    sink, source, others = trial.sink(), trial.source(), [f"{trial.rollout_id}0", f"{trial.rollout_id}-a1"]
    for rollout in (trial.rollout_id, *others):
        await sink.put(make_entry(trial, "c1", rollout_id=rollout))
    snapshot = await source.freeze(trial.rollout_id)
    require(len(snapshot.entries) == 1, "entries of another rollout")
    await source.drop(trial.rollout_id, snapshot_id=snapshot.snapshot_id, version=snapshot.version)
    for rollout in others:
        require(len((await source.freeze(rollout)).entries) == 1, f"lost with another rollout: {rollout}")


@law
async def many_calls_at_once_all_land(trial: Trial) -> None:
    """Sixty-four concurrent puts through several sinks are all in the next snapshot."""
    sinks = [trial.sink() for _ in range(4)]
    entries = [make_entry(trial, f"c{number}", text=f"text {number}") for number in range(64)]
    await asyncio.gather(*(sinks[number % 4].put(entry) for number, entry in enumerate(entries)))
    snapshot = await trial.source().freeze(trial.rollout_id)
    require(
        {one.model_call_id for one in snapshot.entries} == {one.model_call_id for one in entries}, "calls are missing"
    )


@law
async def hostile_ids_are_only_names(trial: Trial) -> None:
    """Ids with slashes, dots, spaces, unicode and 300 characters are stored apart and come back as they are."""
    sink, source = trial.sink(), trial.source()
    calls = ["../up", "a b+c=d%e", "é\u200b", ".hidden", "CALL", "call", "x" * 300, "x" * 299 + "y"]
    for call in calls:
        await sink.put(make_entry(trial, call, text=call))
    snapshot = await source.freeze(trial.rollout_id)
    require(sorted(one.model_call_id for one in snapshot.entries) == sorted(calls), "ids were lost or changed")
    require(not snapshot.incomplete, "hostile ids made the rollout incomplete")


@law
async def close_may_be_repeated(trial: Trial) -> None:
    """Closing twice is closing once, and loses nothing that was acknowledged."""
    sink = trial.transport.sink()
    await sink.put(make_entry(trial, "c1"))
    await sink.close()
    await sink.close()
    require(len((await trial.source().freeze(trial.rollout_id)).entries) == 1, "an acknowledged entry is gone")
