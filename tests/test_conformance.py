# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The laws of a token transport hold for ours on every store, and the suite itself can tell."""

from __future__ import annotations

from functools import partial

import pytest

from gym_objstore import LineageResolver, TokenSink, TokenSource
from gym_objstore.testing.conformance import LAWS, Broken, Transport, assert_conformance, run_conformance
from tests.places import PLACES, place_of


def transport(place, **changes) -> Transport:
    made = {"sink": partial(TokenSink, **place), "source": partial(TokenSource, **place)}
    return Transport(**{**made, "resolver": partial(LineageResolver, **place), **changes})


@pytest.mark.parametrize("kind", PLACES)
async def test_every_law_holds(kind, request):
    outcomes = await assert_conformance(transport(place_of(kind, request)))
    assert {one.law for one in outcomes if one.verdict == "passed"} == set(LAWS)
    assert len(outcomes) == 26


async def test_a_sink_that_forgets_is_found_out(request):
    class Forgetful(TokenSink):
        async def put(self, entry):
            """Acknowledge and do nothing."""

    outcomes = await run_conformance(transport(place := place_of("memory", request), sink=partial(Forgetful, **place)))
    failed = {one.law for one in outcomes if one.verdict == "failed"}
    assert {
        "an_entry_is_visible_and_exact",
        "a_faithful_continuation_resolves",
        "many_calls_at_once_all_land",
    } <= failed


async def test_an_error_that_is_no_refusal_is_a_failure(request):
    class Broke(TokenSink):
        async def begin_call(self, rollout_id, model_call_id):
            raise AttributeError("not a refusal")

    place = place_of("memory", request)
    with pytest.raises(Broken, match="an_intent_after_freeze_is_refused_or_seen"):
        await assert_conformance(transport(place, sink=partial(Broke, **place)))


async def test_what_a_transport_does_not_offer_is_skipped_with_the_reason(request):
    outcomes = await run_conformance(transport(place_of("memory", request), resolver=None))
    skipped = {one.law: one.detail for one in outcomes if one.verdict == "skipped"}
    assert skipped["a_faithful_continuation_resolves"] == "no resolver"
    assert len(skipped) == 5
