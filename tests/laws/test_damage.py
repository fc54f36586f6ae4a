# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Nothing damaged is trained: every stored object damaged in turn, and every read in trouble, by seed."""

from __future__ import annotations

import contextlib
import random
from functools import cache

import pytest

from gym_objstore import codec, ledger, staging, tokens
from gym_objstore.checking import check_rollout, rollouts
from gym_objstore.checking_objects import Reading, check_page
from gym_objstore.errors import Corrupt, Denied, NotFound, Retired, Unavailable
from gym_objstore.flow import run
from gym_objstore.index import read_index
from gym_objstore.keys import rollout_prefix
from gym_objstore.objects import write_object
from gym_objstore.receipts_published import list_published
from gym_objstore.receipts_reading import Masked, read_rows, read_tokens
from gym_objstore.retirement import Claim, drop, retire
from gym_objstore.store import retrying
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.retrying import RetryingStore
from gym_objstore.sweeping import find_orphans, remove_orphans
from gym_objstore.testing.faulty import Faults, FaultyStore
from gym_objstore.testing.staged_rollouts import staged_call
from gym_objstore.testing.wrapping import WrappedStore
from gym_objstore.tokens import begin_call, freeze, put_entry
from tests.entries import make_chain
from tests.finished import RUN, finish
from tests.laws.troubled import DAMAGING, in_groups

ROLLOUTS = ("rollout-1", "rollout-2", "rollout-3")


@cache
def finished() -> dict[str, bytes]:
    """Return what a bucket holds of three finished rollouts, in token entries and in staged rows."""
    store = MemoryStore()
    for rollout in ROLLOUTS:
        for entry in make_chain(rollout, 3, delta=True):
            run(begin_call(RUN, rollout, entry.model_call_id), store)
            run(put_entry(RUN, entry), store)
        finish(store, rollout, calls=3)
    return {meta.key: store.get(meta.key) for meta in store.scan("")}


def filled():
    store = MemoryStore()
    for key, body in finished().items():
        store.put(key, body)
    return store


def trained(store):
    """Return what a trainer takes of each rollout, by every way there is; None for what it masks."""
    published = run(list_published(RUN), store)
    rows, ids = run(read_rows(RUN, published), store), run(read_tokens(RUN, published), store)
    entries = [run(freeze(RUN, rollout), store) for rollout in ROLLOUTS]
    return {
        **{("row", one.receipt.rollout_id): one.row for one in rows if not isinstance(one, Masked)},
        **{("ids", one.receipt.rollout_id): one.token_ids for one in ids if not isinstance(one, Masked)},
        **{("entries", one.rollout_id): one.entries for one in entries if not one.incomplete},
    }


@cache
def everything():
    return trained(filled())


def flip(body, draw):
    place = draw.randrange(len(body))
    return body[:place] + bytes([body[place] ^ (1 << draw.randrange(8))]) + body[place + 1 :]


DAMAGES = {
    "a bit": flip,
    "a bit again": flip,
    "an end": lambda body, draw: body[: draw.randrange(len(body))],
    "nothing left": lambda body, draw: b"",
    "zeros": lambda body, draw: bytes(len(body)),
    "more": lambda body, draw: body + b"\n",
    "another object": lambda body, draw: draw.choice([one for one in finished().values() if one != body]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damaged_object_is_trained_and_every_damage_is_named(damage):
    assert len(everything()) == 9
    for number, (key, body) in enumerate(sorted(finished().items())):
        store = filled()
        store.put(key, DAMAGES[damage](body, random.Random(f"{damage} {number}")))
        taken = trained(store)
        assert taken.items() <= everything().items(), key
        if "/entries/" in key or "/receipts/" in key:
            assert len(taken) < 9, key
        if "/entries/" in key:
            (rollout,) = [one for one in ROLLOUTS if f"/{one}/" in key]
            found = run(check_rollout(rollout, rollout_prefix(tokens.FAMILY, RUN, rollout)), store).findings
            assert "corrupt" in {finding.kind for finding in found}, key


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_ledger_row_fails_its_call(damage):
    for number, (key, body) in enumerate(sorted(finished().items())):
        if key.startswith("ledger/") and "/rows/" in key:
            store = filled()
            store.put(key, DAMAGES[damage](body, random.Random(f"{damage} {number}")))
            (rollout,) = [one for one in ROLLOUTS if f"/{one}/" in key]
            manifest = run(ledger.manifest(RUN, rollout), store)
            assert len(manifest.failures) == 1
            assert len(manifest.records) == 2


def troubled(seed, store, kinds=DAMAGING):
    chance = random.Random(seed)
    faults = Faults(**{kind: chance.choice((0.02, 0.1, 0.3)) for kind in chance.sample(kinds, 3)})
    return RetryingStore(FaultyStore(store, seed=seed, faults=faults), seconds=30.0 if seed % 2 else 0.0, limit=64)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(retrying, "_FIRST_PAUSE", 0.0)


@pytest.mark.parametrize("seeds", in_groups(200, often=2_200))
def test_a_trainer_in_trouble_takes_what_is_right_or_fails(seeds):
    outcomes = set()
    for seed in seeds:
        try:
            taken = trained(troubled(seed, filled()))
        except (Unavailable, Denied) as error:
            outcomes.add(error.kind)
        else:
            outcomes.add("some" if len(taken) < 9 else "all")
            assert taken.items() <= everything().items(), seed
    assert outcomes >= {"some", "all"}


@pytest.mark.parametrize("seeds", in_groups(200, often=2_200))
def test_a_sweep_in_trouble_removes_nothing_that_is_needed(seeds):
    """Whatever it could not read it does not take for absent."""
    outcomes = set()
    for seed in seeds:
        store = filled()
        run(staging.stage(RUN, staged_call("orphan")), store)
        try:
            swept = troubled(seed, store)
            run(remove_orphans(run(find_orphans(RUN, now=4e9, grace=0.0), swept)), swept)
            outcomes.add("swept")
        except (Unavailable, Denied, Corrupt) as error:
            outcomes.add(error.kind)
        left = {meta.key for meta in store.scan("")}
        assert left >= finished().keys(), seed
    assert "swept" in outcomes
    assert len(outcomes) > 1


@pytest.mark.parametrize("referrer", ["ledger", "manifests"])
def test_a_damaged_referrer_stops_a_sweep(referrer):
    """One bit changed in the name of a row would hide the row, were the referrer believed."""
    store = filled()
    run(retire(tokens.FAMILY, RUN, ROLLOUTS), store)
    if referrer == "manifests":
        run(retire(ledger.FAMILY, RUN, ROLLOUTS), store)
    else:
        for rollout in ROLLOUTS:  # a second row of a call: only its ledger row tells which is meant
            run(staging.stage(RUN, staged_call("c0", rollout_id=rollout, generated=(1, 2))), store)
    staged = {meta.key for meta in store.scan("staged/")}
    for key in sorted(
        meta.key for meta in store.scan(f"{referrer}/") if "/rows/c0/" in meta.key or "/receipts/" in meta.key
    ):
        body = store.get(key)
        for place in range(0, len(body), 7):
            store.put(key, body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :])
            with pytest.raises(Corrupt):
                run(find_orphans(RUN, now=4e9, grace=0.0), store)
        store.put(key, body)
    found = run(find_orphans(RUN, now=4e9, grace=0.0), store)
    assert len(found.rests) == (3 if referrer == "ledger" else 0)
    assert staged == {meta.key for meta in store.scan("staged/")}


@pytest.mark.parametrize("seeds", in_groups(200, often=2_200))
def test_a_check_in_trouble_never_calls_a_damaged_rollout_sound(seeds):
    for seed in seeds:
        store = filled()
        key = next(key for key in finished() if "/rollout-2/entries/" in key)
        damaged = flip(store.get(key), random.Random(seed))
        if says_the_same(damaged, store.get(key)):
            continue
        store.put(key, damaged)
        with contextlib.suppress(Unavailable, Denied):
            found = run(rollouts(tokens.FAMILY, RUN), troubled(seed, store))
            report = run(check_rollout("rollout-2", found["rollout-2"]), troubled(seed, store))
            assert any(finding.severity == "error" for finding in report.findings), seed


def says_the_same(damaged, body):
    """Say whether a bit was changed that zstd does not look at."""
    with contextlib.suppress(Corrupt):
        return codec.unpack(damaged, codec.FORMAT) == codec.unpack(body, codec.FORMAT)
    return False


def drop_of(snapshot, store):
    """Drop what a freeze showed."""
    prefix = rollout_prefix(tokens.FAMILY, RUN, snapshot.rollout_id)
    return run(drop(Claim(prefix, snapshot.snapshot_id, snapshot.version, "f" * 16)), store)


@pytest.mark.parametrize("lies_again", [False, True])
def test_what_a_silently_short_listing_froze_is_not_dropped(lies_again):
    """Such a freeze may look clean: of these rollouts, whole calls are missing with their intents."""
    looked_clean = []
    for seed in range(60):
        store = filled()
        lying = FaultyStore(store, seed=seed, faults=Faults(short=0.2))
        for rollout in ROLLOUTS:
            with contextlib.suppress(NotFound):  # not even the writer's marker was shown
                frozen = run(freeze(RUN, rollout), lying)
                if len(frozen.entries) < 3:
                    looked_clean += [] if frozen.incomplete else [seed]
                    assert not drop_of(frozen, lying if lies_again else store)
                    assert {meta.key for meta in store.scan("")} == finished().keys()
                    assert len(run(freeze(RUN, rollout), store).entries) == 3
    assert {32, 45} <= set(looked_clean)


class Hiding(WrappedStore):
    """A store whose listings never show some keys."""

    def scan(self, prefix):
        return (meta for meta in self.store.scan(prefix) if "/c1." not in meta.key and not meta.key.endswith("/c1"))


def test_what_no_listing_showed_is_kept_behind_the_fence_and_reported():
    store, rollout = filled(), ROLLOUTS[0]
    frozen = run(freeze(RUN, rollout), Hiding(store))
    assert ([entry.model_call_id for entry in frozen.entries], frozen.incomplete) == (["c0", "c2"], False)
    hidden = {meta.key for meta in store.scan("")} - {meta.key for meta in Hiding(store).scan("")}
    assert drop_of(frozen, Hiding(store))
    prefix = rollout_prefix(tokens.FAMILY, RUN, rollout)
    left = {meta.key for meta in store.scan(prefix)}
    assert left == {key for key in hidden if key.startswith(prefix)} | {f"{prefix}fences/tombstone"}
    assert {finding.kind for finding in run(check_rollout(rollout, prefix), store).findings} == {"late_write"}


def interrupted(rollout, consumers=1):
    """Return what a bucket holds when consumers of one snapshot died after the tombstone, and their claims."""
    store, prefix = filled(), rollout_prefix(tokens.FAMILY, RUN, rollout)
    index = run(read_index(prefix), store)
    claims = [Claim(prefix, index.snapshot_id, index.version, f"{number:016x}") for number in range(consumers)]
    for claim in claims:
        store.put(claim.intent, write_object(objects=index.state))
    store.put(f"{prefix}fences/tombstone", claims[0].tombstone)
    return store, claims


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_drop_intent_removes_nothing_and_is_named(damage):
    """The names in it are those of the snapshot in its own name, or it is not believed."""
    rollout = ROLLOUTS[0]
    for number in range(40):
        store, (claim,) = interrupted(rollout)
        body = store.get(claim.intent)
        store.put(claim.intent, DAMAGES[damage](body, random.Random(f"{damage} {number}")))
        before = contents(store)
        with pytest.raises(Corrupt) as caught:
            run(drop(claim._replace(consumer="f" * 16)), store)
        assert caught.value.kind in ("foreign_object", "not_json")
        assert contents(store) == before
        reading = Reading(tokens.FAMILY, RUN, rollout)
        found = [one for one in run(check_page(reading), store).findings if one.kind == "corrupt"]
        assert ["fences/drop." in one.detail for one in found] == [True]
    run(retire(tokens.FAMILY, RUN, [rollout]), store)
    assert [meta.key for meta in store.scan(claim.rollout)] == [f"{claim.rollout}fences/tombstone"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_tombstone_still_retires_and_finishes_no_drop(damage):
    store, (claim,) = interrupted(ROLLOUTS[0])
    stone = f"{claim.rollout}fences/tombstone"
    store.put(stone, DAMAGES[damage](store.get(stone), random.Random(damage)))
    before = contents(store)
    with pytest.raises(Retired):
        run(freeze(RUN, ROLLOUTS[0]), store)
    assert not run(drop(claim._replace(consumer="f" * 16)), store)
    assert contents(store) == before


@pytest.mark.parametrize("whole", [0, 1])
def test_one_whole_drop_intent_of_several_finishes_the_drop(whole):
    store, claims = interrupted(ROLLOUTS[0], consumers=2)
    store.put(claims[1 - whole].intent, b"no")
    assert run(drop(claims[0]._replace(consumer="f" * 16)), store)
    prefix = claims[0].rollout
    assert [meta.key for meta in store.scan(prefix)] == [f"{prefix}fences/tombstone"]


@pytest.mark.parametrize("more", ["fences/tombstone", "packs/x", "../rollout-2/intents/c0", "intents/c7"])
def test_a_forged_drop_intent_takes_nothing_with_it(more):
    """Somebody who may write fences adds a name to those of a snapshot."""
    store, (claim,) = interrupted(ROLLOUTS[0])
    state = run(read_index(claim.rollout), store).state
    store.put(claim.intent, write_object(objects=[*state, more]))
    before = contents(store)
    with pytest.raises(Corrupt):
        run(drop(claim._replace(consumer="f" * 16)), store)
    assert contents(store) == before


def contents(store):
    return {meta.key: store.get(meta.key) for meta in store.scan("")}
