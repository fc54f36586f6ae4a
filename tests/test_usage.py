# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What is counted, in which state, for how many requests, and what it costs."""

from __future__ import annotations

import time

import pytest

from gym_objstore import ledger, tokens
from gym_objstore.errors import Invalid, Retired
from gym_objstore.flow import run
from gym_objstore.objects import announcement
from gym_objstore.receipts_published import mark_consumed
from gym_objstore.retirement import retire
from gym_objstore.runs import create_run
from gym_objstore.store import Meta
from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.counting import Costs, CountingStore
from gym_objstore.tokens import put_entry
from gym_objstore.usage import Prices, Used, usage
from tests.entries import make_entry
from tests.finished import RUN, finish
from tests.places import store_of
from tests.synthetic import SyntheticStore, peak_of


@pytest.fixture(params=["memory", "file", "seaweedfs"])
def store(request):
    with store_of(request.param, request) as found:
        yield found


def counted(store, run_id=None, now=None):
    return run(usage(run_id, now=time.time() if now is None else now), store)


def test_states_are_those_that_a_listing_shows(store):
    finish(store, "finished")
    finish(store, "learned")
    run(mark_consumed(RUN, ["learned"], "step-1"), store)
    run(put_entry(RUN, make_entry("live", "c0"), [announcement("tokens", RUN)]), store)
    run(retire(tokens.FAMILY, RUN, ["ended"]), store)
    with pytest.raises(Retired):
        run(put_entry(RUN, make_entry("ended", "c0")), store)
    run(create_run("run-2", {}), store)
    found = {(one.run_id, one.family, one.state): one.objects for one in counted(store)}
    assert found == {
        (RUN, "ledger", "live"): 4,
        (RUN, "manifests", "consumed"): 2,
        (RUN, "manifests", "live"): 1,
        (RUN, "staged", "live"): 4,
        (RUN, "tokens", "late"): 1,
        (RUN, "tokens", "live"): 1,
        (RUN, "tokens", "retired"): 1,
        (RUN, "tokens", "run"): 1,
        ("run-2", "manifests", "run"): 1,
    }
    assert sum(one.bytes for one in counted(store)) == sum(meta.size for meta in store.scan(""))
    assert {one.run_id for one in counted(store, "run-2")} == {"run-2"}


def test_ages_are_counted_by_the_stores_clock():
    class Old(MemoryStore):
        def scan(self, prefix):
            for day, age in enumerate((0.5, 1.0, 2, 7.5, 31)):
                if prefix == "tokens/":
                    yield Meta(f"tokens/r/a/intents/{day}", 10, 1e9 - age * 86_400)

    assert counted(Old(), now=1e9) == [
        Used("r", "tokens", "live", "older", 1, 10),
        Used("r", "tokens", "live", "up to 1d", 2, 20),
        Used("r", "tokens", "live", "up to 30d", 1, 10),
        Used("r", "tokens", "live", "up to 7d", 1, 10),
    ]


def test_it_costs_one_listing_for_each_thousand_objects():
    store = MemoryStore()
    for number in range(2_001):
        store.put(f"staged/{RUN}/r{number}/rows/x", b"x")
    counting = CountingStore(store)
    counted(counting, RUN)
    assert counting.costs == Costs(7, {"LIST": 7})
    counting.reset()
    counted(counting)
    assert counting.costs == Costs(7, {"LIST": 7})


def test_what_is_not_ours_is_counted_with_its_run_or_not_at_all():
    store = MemoryStore()
    for key in ("tokens/stray", f"tokens/{RUN}/stray", "elsewhere/x"):
        store.put(key, b"x")
    assert [(one.run_id, one.state, one.objects) for one in counted(store)] == [(RUN, "run", 1), ("stray", "run", 1)]


def test_an_unusual_run_id_is_spoken():
    store = MemoryStore()
    run(create_run("Ünusual run", {}), store)
    assert [one.run_id for one in counted(store)] == ["Ünusual run"]


def test_memory_hardly_grows_with_the_store():
    small = peak_of(lambda: counted(SyntheticStore(6_000), now=1e9))
    large = peak_of(lambda: counted(SyntheticStore(60_000), now=1e9))
    assert large - small < 2 << 20


def test_prices_are_those_of_s3_standard_unless_a_table_says_otherwise():
    prices = Prices.of({})
    assert (prices.monthly(100 * 2**30), prices.written(1_000_000), prices.read(1_000_000)) == (2.3, 5.0, 0.4)
    assert Prices.of({"storage_gb_month": 1}).monthly(2**30) == 1.0
    for wrong in ({"storage": 1}, {"put_million": "5"}, {"put_million": -1}, {"get_million": True}):
        with pytest.raises(Invalid, match="not a price"):
            Prices.of(wrong)


def test_ledgers_have_states_too(store):
    finish(store, "ended")
    run(retire(ledger.FAMILY, RUN, ["ended"]), store)
    assert [one.state for one in counted(store, RUN) if one.family == "ledger"] == ["retired"]
