# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""In no schedule of a copy, beside a writer or a removal of its source, does the copy show a part of a rollout."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gym_objstore.copying import SOURCE, TARGET, copy_run
from gym_objstore.flow import All, Compute, Delete, fold, run
from gym_objstore.keys import rollout_prefix, tombstone_key
from gym_objstore.retirement import retire
from gym_objstore.store.marks import Marks
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.actors import Actor
from gym_objstore.testing.explorer import Bounds, explore
from gym_objstore.tokens import put_entry
from tests.entries import make_chain, make_entry

RUN = "run-1"
ROLLOUT = rollout_prefix("tokens", RUN, "r")
COPY = TARGET + ROLLOUT
CHAIN = make_chain("r", 2)


@pytest.fixture(autouse=True)
def _one_family(monkeypatch):
    """The other families of these scenarios are empty, and each would cost the search a minute."""
    monkeypatch.setattr("gym_objstore.copying.ORDER", ("tokens",))


def start() -> dict[str, bytes]:
    store = MemoryStore()
    for entry in CHAIN:
        run(put_entry(RUN, entry), store)
    return {SOURCE + meta.key: store.get(meta.key) for meta in store.scan("")}


def at_the_source(flow):
    """Play a flow on the source's place in the bucket."""

    def placed(operation):
        match operation:
            case All(operations):
                return All(tuple(map(placed, operations)))
            case Compute():
                return operation
            case Delete(keys):
                return Delete(tuple(SOURCE + key for key in keys))
        field = "prefix" if hasattr(operation, "prefix") else "key"
        return replace(operation, **{field: SOURCE + getattr(operation, field)})

    operation = next(flow)
    while True:
        answer = yield placed(operation)
        try:
            operation = flow.send(_renamed(answer))
        except StopIteration as done:
            return done.value


def _renamed(answer):
    if isinstance(answer, tuple) and hasattr(answer, "key"):
        return answer._replace(key=answer.key.removeprefix(SOURCE))
    return tuple(map(_renamed, answer)) if isinstance(answer, tuple) else answer


def copier():
    def stage(log, _):
        copied = yield from copy_run(RUN, RUN)
        log.answered("copied", copied.failed)

    return Actor("copier", (stage,))


def retirer():
    def stage(log, _):
        yield from at_the_source(retire("tokens", RUN, ["r"]))

    return Actor("retirer", (stage,))


def writer():
    def stage(log, _):
        yield from at_the_source(put_entry(RUN, make_entry("r", "c9")))
        log.answered("wrote")

    return Actor("writer", (stage,))


def visible(bucket):
    """Return the entries that readers of the copy take for the rollout."""
    if tombstone_key(COPY) in bucket:
        return frozenset()
    return frozenset(key.removeprefix(COPY) for key in bucket if key.startswith(f"{COPY}entries/"))


WHOLE = frozenset(key.removeprefix(SOURCE + ROLLOUT) for key in start())


def no_part_is_shown(world):
    """A reader of the copy sees nothing, or at least what was whole when the copy began."""
    seen = visible(world.bucket)
    return f"a part is shown: {sorted(seen)}" if seen and not seen >= WHOLE else None


def a_copy_without_failures_is_there(world):
    """A copy that says nothing failed shows the rollout or its retirement."""
    ended = any(event.what == "copied" and event.value == 0 for event in world.log)
    gone = tombstone_key(COPY) in world.bucket
    return "the copy is said to be whole and is not" if ended and not gone and not visible(world.bucket) else None


LAWS = (no_part_is_shown, a_copy_without_failures_is_there)


@pytest.mark.parametrize("other", [retirer, writer])
@pytest.mark.parametrize("bounds", [Bounds(crashes=1, lost=0), Bounds(crashes=0, lost=1)])
def test_a_copy_beside_others(other, bounds):
    result = explore([copier(), other()], start(), LAWS, bounds)
    assert not result.violations, str(result)
    assert result.schedules > 1_000


def test_a_copy_beside_a_removal_when_listings_have_pages():
    bounds = Bounds(crashes=0, lost=0, second_page=lambda key: "/entries/c1" in key or "fences" in key)
    result = explore([copier(), retirer()], start(), LAWS, bounds)
    assert not result.violations, str(result)


def test_a_copy_without_guards_is_found_wrong(monkeypatch):
    monkeypatch.setattr("gym_objstore.copying.guard", lambda *_: None)
    result = explore([copier()], start(), LAWS, Bounds(crashes=1, lost=0))
    assert [one.law for one in result.violations] == ["no_part_is_shown"]


def test_a_copy_that_does_not_list_twice_is_found_wrong(monkeypatch):
    def believing(pair, _):
        listed = Marks()
        yield from fold(pair.source, lambda metas: [listed.add(pair.name(one.key).split("/")[0]) for one in metas])
        return listed

    monkeypatch.setattr("gym_objstore.copying._prove", believing)
    bounds = Bounds(crashes=0, lost=0, second_page=lambda key: "/entries/c1" in key)
    result = explore([copier(), retirer()], start(), LAWS, bounds)
    assert "no_part_is_shown" in [one.law for one in result.violations]
