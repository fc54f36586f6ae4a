# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A run with a bit of everything, what its readers make of it, and a store whose user ends at any write."""

from __future__ import annotations

import itertools
import threading

import pytest

from gym_objstore import captures, ledger, tokens
from gym_objstore.errors import ObjstoreError, Retired
from gym_objstore.flow import run
from gym_objstore.objects import announcement
from gym_objstore.receipts_published import list_published, publish
from gym_objstore.retirement import retire
from gym_objstore.runs import create_run
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.wrapping import WrappedStore
from gym_objstore.tokens import freeze, mark, put_entry
from tests.entries import make_chain, make_entry
from tests.finished import RUN, finish, receipt_for

ROLLOUTS = ("good", "twice", "marked", "late", "ended")
LINES = [captures.line_of({"model_call_id": f"c{n}", "completed_at": float(n), "x": n * "y"}, 0.0) for n in range(3)]


def make_run(store=None):
    """A run with a whole rollout, one with two receipts, a marked one, a late write and one that was retired."""
    store = store or MemoryStore()
    run(create_run(RUN, {"seed": 1}), store)
    for entry in make_chain("good", 3):
        run(put_entry(RUN, entry, [announcement("tokens", RUN), announcement("captures", RUN)]), store)
    for line in LINES:
        put = captures.capture_put(RUN, "good", line)
        store.put(put.key, put.body)
    finish(store, "good")
    finish(store, "twice", calls=1)
    run(publish(RUN, receipt_for(store, "twice", 0.5)), store)
    run(put_entry(RUN, make_entry("marked", "c0")), store)
    note = mark(RUN, "marked", "c1", {"at": 1.0})
    store.put(note.key, note.body)
    run(retire(tokens.FAMILY, RUN, ["late", "ended"]), store)
    with pytest.raises(Retired):
        run(put_entry(RUN, make_entry("late", "c0")), store)
    return store


def contents(store):
    return {meta.key: store.get(meta.key) for meta in store.scan("")}


def tried(flow, store):
    try:
        return run(flow, store)
    except ObjstoreError as error:
        return type(error).__name__


def views(store, run_id=RUN):
    """Return what readers make of each rollout of a run, by what they read."""
    found = {}
    for rollout in ROLLOUTS:
        frozen = tried(freeze(run_id, rollout), store)
        if not isinstance(frozen, str):
            frozen = sorted(one.model_call_id for one in frozen.entries), [one.kind for one in frozen.problems]
        listed = tried(ledger.manifest(run_id, rollout), store)
        if not isinstance(listed, str):
            listed = [one.model_call_id for one in listed.records], [one.reason for one in listed.failures]
        captured = tried(captures.read(run_id, rollout), store)
        if not isinstance(captured, str):
            captured = [one.text for one in captured.captures], captured.incomplete
        found[rollout] = {"tokens": frozen, "ledger": listed, "captures": captured}
    published = tried(list_published(run_id), store)
    for one in [] if isinstance(published, str) else published:
        found[one.rollout_id]["receipts"] = one.receipts if one.finished else ()
    return found


ABSENT = (([], []), "NotFound", "Retired", ([], False), None, ())


def partial(whole, now):
    """Return the views that are neither those of the whole run, nor absent, nor marked as incomplete."""
    wrong = []
    for rollout, what in itertools.product(ROLLOUTS, ("tokens", "ledger", "captures", "receipts")):
        seen, expected = now[rollout].get(what), whole[rollout].get(what)
        marked = what == "captures" and isinstance(seen, tuple) and seen[1]
        if seen != expected and seen not in ABSENT and not marked:
            wrong.append((rollout, what, seen, expected))
    return wrong


class Crash(BaseException):
    """The end of a process."""


class Crashing(WrappedStore):
    """A store whose user ends at the write after ``left`` writes."""

    def __init__(self, store, left):
        super().__init__(store)
        self.left, self.lock = left, threading.Lock()

    def put(self, key, body):
        self._write()
        super().put(key, body)

    def delete(self, keys):
        for key in keys:
            self._write()
            super().delete([key])

    def _write(self):
        with self.lock:
            self.left -= 1
            if self.left < 0:
                raise Crash
