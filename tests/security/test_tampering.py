# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""One bit of one object of a whole run is flipped, or an object is put in another's place: who finds it.

That a trainer takes nothing of a damaged rollout is in ``laws/test_damage``; here ``check`` and every single reader
say so, and what nobody finds is listed, as ``docs/threat-model.md`` lists it.
"""

from __future__ import annotations

import json
import random
from functools import cache

import pytest
from typer.testing import CliRunner

from gym_objstore import captures, codec, ledger, staged_rows, staging, tokens
from gym_objstore.cli.app import app
from gym_objstore.codec import FORMAT
from gym_objstore.errors import Conflict, Corrupt
from gym_objstore.flow import perform, run
from gym_objstore.index import read_index
from gym_objstore.keys import StagingKey, rollout_prefix
from gym_objstore.names import parse_staged_name
from gym_objstore.receipts_published import list_published, mark_consumed
from gym_objstore.receipts_reading import Masked, read_receipts, read_rows
from gym_objstore.retirement import Claim, drop
from gym_objstore.runs import close_run, create_run, describe_run
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.staged_rollouts import staged_call
from gym_objstore.tokens import begin_call, freeze, publish
from tests.finished import RUN
from tests.whole_run import contents, make_run

FLIPS = range(2)
EXTRAS = {"note": "kept", "numbers": [1, 2, 3]}
ATTACHMENTS = {"image": b"pixels", "mesh": {"a": b"1234"}}
TOKENS = rollout_prefix(tokens.FAMILY, RUN, "good")

STONE = "tokens fences/tombstone"
"""The one kind of object whose body nothing proves: it says what it says by being there."""


@cache
def everything() -> dict[str, bytes]:
    """A run with an object of every kind that has a body."""
    store = make_run()
    run(publish(RUN, "good"), store)
    run(begin_call(RUN, "begun", "c0"), store)
    put = tokens.refusal(RUN, "begun", "c0", {"code": "too_long"})
    store.put(put.key, put.body)
    failure = ledger.failure_put(rollout_prefix(ledger.FAMILY, RUN, "begun"), "begun", "c0", "model_call_failed")
    store.put(failure.key, failure.body)
    lost = captures.mark(RUN, "begun", "c0", {"reason": "lost"})
    store.put(lost.key, lost.body)
    run(staging.stage(RUN, staged_call("c9", rollout_id="begun", extras=EXTRAS), ATTACHMENTS), store)
    run(mark_consumed(RUN, ["twice"], "step-1"), store)
    index = run(read_index(TOKENS), store)
    abandoned = drop(Claim(TOKENS, index.snapshot_id, index.version, "0" * 16))
    perform(abandoned.send(perform(next(abandoned), store)), store)
    run(close_run(RUN), store)
    return contents(store)


def kind_of(key: str) -> str:
    family, _, rollout, kind, *rest = key.split("/")
    if rollout == "!run":
        return f"{family} {rollout}/{kind}"
    return f"{family} {kind}/{rest[0].partition('.')[0]}" if kind == "fences" else f"{family} {kind}"


def flipped(body: bytes, seed: int) -> bytes:
    draw = random.Random(seed)
    place = draw.randrange(len(body))
    return body[:place] + bytes([body[place] ^ (1 << draw.randrange(8))]) + body[place + 1 :]


def filled(name: str = "", **changes: bytes) -> MemoryStore:
    store = MemoryStore.named(name) if name else MemoryStore()
    for key, body in {**everything(), **changes}.items():
        store.put(key, body)
    return store


def checked(name: str) -> tuple[int, list[dict]]:
    ended = CliRunner().invoke(app, ["check", "--url", f"memory://{name}", "--run-id", RUN, "--json"])
    return ended.exit_code, json.loads(ended.stdout)["findings"]


def test_the_run_has_every_kind_of_object():
    assert {kind_of(key) for key in everything()} == {
        *("captures records", "captures markers", "ledger rows", "ledger failures", "staged rows"),
        *("tokens entries", "tokens markers", "tokens packs", "tokens refusals", "tokens intents"),
        *("tokens fences/drop", STONE, "manifests receipts", "manifests consumed"),
        *("captures !run/writer", "tokens !run/writer", "manifests !run/descriptors", "manifests !run/closed"),
    }


def test_check_finds_a_flipped_bit_in_everything_but_a_tombstone(prefix):
    store, (code, before) = filled(prefix), checked(prefix)
    assert code == 0
    found, missed = set(), set()
    for key, body in everything().items():
        for seed in FLIPS:
            store.put(key, flipped(body, seed))
            code, after = checked(prefix)
            news = [one for one in after if one not in before]
            corrupt = [one for one in news if one["kind"] == "corrupt"]
            assert code == any(one["severity"] == "error" for one in corrupt), key
            behind_a_fence = "/late/" in key
            (missed if not corrupt else found).add("behind a fence" if behind_a_fence else kind_of(key))
        store.put(key, body)
    assert missed == {STONE, "behind a fence"}
    assert not found & missed


def keys_of(kind: str) -> list[str]:
    return [key for key in everything() if kind_of(key) == kind and "/late/" not in key]


def rollout_of(key: str) -> str:
    return key.split("/")[2]


def entry_is_named(store, key):
    store.delete(keys_of("tokens packs"))  # a whole copy, which is read instead
    frozen = run(freeze(RUN, rollout_of(key)), store)
    assert frozen.incomplete
    assert "corrupt" in {one.kind for one in frozen.problems}


def pack_is_not_believed(store, key):
    assert run(freeze(RUN, "good"), store).entries == run(freeze(RUN, "good"), filled()).entries


def capture_has_no_text(store, key):
    found = run(captures.read(RUN, rollout_of(key)), store).captures
    damaged = [one for one in found if one.text is None]
    assert len(damaged) == 1
    with pytest.raises(Corrupt):
        captures.record_of(damaged[0])


def row_is_a_failure(store, key):
    (failure,) = run(ledger.manifest(RUN, rollout_of(key)), store).failures
    assert failure.reason == "invalid_manifest_row"


def receipt_is_masked(store, key):
    published = [one for one in run(list_published(RUN), store) if one.rollout_id == rollout_of(key)]
    (found,) = run(read_receipts(RUN, published), store)
    assert isinstance(found, Masked)


def staged_row_is_refused(store, key):
    rollout, _, name = key.removeprefix(f"staged/{RUN}/").partition("/rows/")
    row = StagingKey(rollout, parse_staged_name(name))
    committed = staged_call("c9", rollout_id="begun", extras=EXTRAS).extras_digest
    reads = [
        lambda: run(staging.fetch(RUN, [row.text]), store),
        lambda: run(staging.load_extras(RUN, {row.text: committed}), store),
        lambda: run(staging.load_attachments(RUN, row.text), store),
    ]
    refused = 0
    for read in reads if rollout == "begun" else reads[:1]:
        try:
            read()
        except Corrupt:
            refused += 1
    assert refused > 0


def descriptor_is_refused(store, key):
    with pytest.raises(Corrupt):
        run(describe_run(RUN), store)


READERS = {
    "tokens entries": entry_is_named,
    "tokens packs": pack_is_not_believed,
    "captures records": capture_has_no_text,
    "ledger rows": row_is_a_failure,
    "ledger failures": row_is_a_failure,
    "manifests receipts": receipt_is_masked,
    "manifests !run/descriptors": descriptor_is_refused,
    "staged rows": staged_row_is_refused,
}


@pytest.mark.parametrize("kind", READERS)
def test_a_reader_of_a_flipped_object_says_so(kind):
    for key in keys_of(kind):
        for seed in range(8):
            READERS[kind](filled(**{key: flipped(everything()[key], seed)}), key)


FORGERIES = {
    "tokens entries": (b"-0.25]", b"-0.75]"),
    "tokens packs": (b"-0.25]", b"-0.75]"),
    "tokens markers": (b'"at":1.0', b'"at":2.0'),
    "tokens refusals": (b"too_long", b"too_wide"),
    "tokens intents": (b'"c0"', b'"c7"'),
    "captures records": (b'"x":', b'"y":'),
    "captures markers": (b'"lost"', b'"kept"'),
    "ledger rows": (b'"weight_version":7', b'"weight_version":8'),
    "ledger failures": (b"model_call_failed", b"model_call_ended!"),
    "manifests receipts": (b'"reward":', b'"reward":9'),
    "manifests consumed": (b'"step-1"', b'"step-2"'),
    "manifests !run/descriptors": (b'"seed":1', b'"seed":2'),
    "tokens fences/drop": (b"c1.full", b"c7.full"),
}
"""What somebody writes over an object that is well-formed: only the name tells that it is not the one."""


def forged(key: str, body: bytes) -> bytes:
    kind = kind_of(key)
    if kind == "staged rows":
        return forged_row(key)
    packed = key.endswith(f".{FORMAT}")
    changed = (codec.unpack(body, FORMAT) if packed else body).replace(*FORGERIES[kind])
    return codec.encode(changed) if packed else changed


def forged_row(key: str) -> bytes:
    """Return another row of the call whose name says the same sizes."""
    sizes = parse_staged_name(key.rpartition("/")[2])[2:]
    calls = (staged_call("c9", generated=(21, one), rollout_id="begun", extras=EXTRAS) for one in range(100, 1_000))
    rows = (staged_rows.pack(one, ATTACHMENTS) for one in calls)
    return next(b"".join(row.body) for row in rows if row.key.name[2:] == sizes)


@pytest.mark.parametrize("kind", [*FORGERIES, "staged rows"])
def test_a_forgery_that_is_well_formed_is_found_by_its_name(kind, prefix):
    home = {"staged rows": "/begun/", "manifests receipts": "/good/"}.get(kind, "/")
    key = next(key for key in keys_of(kind) if home in key)
    forgery = forged(key, everything()[key])
    assert forgery != everything()[key]
    if kind in READERS:
        READERS[kind](filled(**{key: forgery}), key)
    filled(prefix, **{key: forgery})
    corrupt = [one for one in checked(prefix)[1] if one["kind"] == "corrupt"]
    assert [one["severity"] for one in corrupt] == ["warning" if kind == "tokens packs" else "error"]


def test_an_object_in_another_rollouts_place_is_no_object_of_that_rollout():
    """Digests do not say whose an object is; the records do, and every reader compares."""
    for kind in ("tokens entries", "ledger rows", "manifests receipts", "staged rows"):
        for key in keys_of(kind):
            if rollout_of(key) == "good":
                store, other = filled(), key.replace("/good/", "/other/")
                store.put(other, everything()[key])
                READERS[kind](store, other) if kind != "manifests receipts" else not_trained(store, "other")


def not_trained(store, rollout_id):
    (found,) = run(read_rows(RUN, [rollout_id]), store)
    assert isinstance(found, Masked)


def test_a_capture_in_another_rollouts_place_is_taken_for_its_own():
    """A capture does not name its rollout, as Gym's does not: who may write captures may forge them anyway."""
    store, (key, *_) = filled(), keys_of("captures records")
    store.put(key.replace("/good/", "/other/"), everything()[key])
    assert [one.text is None for one in run(captures.read(RUN, "other"), store).captures] == [False]


def test_a_second_payload_voids_both_and_says_conflict(prefix):
    """Whoever may write below ``tokens/`` cannot replace an entry: theirs is a second one."""
    store = filled(prefix)
    (key,) = [one for one in keys_of("tokens entries") if "/good/" in one and "/c1." in one]
    digest = key.rpartition(".")[0].rpartition(".")[2]
    store.put(key.replace(digest, "f" * 64), everything()[key])
    frozen = run(freeze(RUN, "good"), store)
    assert [one.model_call_id for one in frozen.entries] == ["c0", "c2"]
    assert "conflict" in {one.kind for one in frozen.problems}
    assert checked(prefix)[0] == 1


def test_two_descriptors_are_a_conflict_and_not_a_choice():
    store = filled()
    with pytest.raises(Conflict):
        run(create_run(RUN, {"seed": 2}), store)
