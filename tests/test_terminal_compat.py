# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Scored responses are attributed here as the installed nemo-gym attributes them."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from nemo_gym.token_id_capture import staging as gym
from nemo_gym.token_id_capture.fingerprint import assistant_fingerprint as gym_fingerprint
from nemo_gym.token_id_capture.records import TokenEntry as GymTokenEntry

from gym_objstore import terminal
from gym_objstore import wire_ledger as ledger
from gym_objstore.records import TokenEntry
from gym_objstore.testing.staged_rollouts import ledger_row, staged_call
from tests.alike import outcome, plain, quickly

CHILD = staged_call("call-1", after=[staged_call("call-0")])

SAID: list[dict[str, Any]] = [
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "one"}]},
    {"type": "message", "role": "assistant", "content": "two"},
    {"type": "function_call", "call_id": "f", "name": "look", "arguments": '{"b": 1, "a": 2}'},
    {"type": "reasoning", "summary": []},
    {"type": "function_call_output", "call_id": "f", "output": "seen"},
    {"role": "assistant", "content": 3},
]
ITEMS = st.lists(st.sampled_from(SAID), max_size=4)
RESPONSE_IDS = st.sampled_from(["resp-0", "resp-1", "resp-2", None])
RESPONSES = st.one_of(
    st.none(),
    st.fixed_dictionaries({}, optional={"id": RESPONSE_IDS, "output": st.one_of(st.none(), ITEMS, st.just("text"))}),
)
CALL_IDS = st.sampled_from([None, "call-0", "call-1", "stranger"])


def fingerprint_of(items: list[dict[str, Any]]) -> str:
    found = outcome(lambda: gym_fingerprint(items))
    return "" if found == "refused" else str(found)


@st.composite
def entry_fields(draw: st.DrawFn, number: int) -> dict[str, Any]:
    ids = draw(st.sampled_from([[1], [2]]))
    output = draw(ITEMS)
    return {
        "rollout_id": "r",
        "model_call_id": f"call-{number}",
        "prompt_token_ids": [9],
        "generation_token_ids": ids,
        "generation_log_probs": [-0.5],
        "response_id": draw(RESPONSE_IDS),
        "output_items": output,
        "continuation_fingerprint": fingerprint_of(draw(ITEMS) + output),
        "fingerprint_version": draw(st.sampled_from([None, 1, 2])),
        **draw(st.sampled_from([{}, {"digest": f"{ids}", "cum_len": 2}])),
    }


@st.composite
def row_fields(draw: st.DrawFn, number: int) -> dict[str, Any]:
    output = draw(ITEMS)
    return {
        **plain(ledger_row(staged_call(f"call-{number}", generated=[draw(st.integers(1, 2))]))),
        "response_id": draw(st.sampled_from(["resp-0", "resp-1", "resp-2"])),
        "output_fingerprint": fingerprint_of(output) or None,
        "continuation_fingerprint": fingerprint_of(draw(ITEMS) + output) or None,
        "fingerprint_version": draw(st.sampled_from([0, 1, 2, 2, 2])),
    }


def attributed(resolve: Any, calls: list[Any], case: tuple[Any, Any, Any]) -> tuple[Any, str, str]:
    response, explicit, declared = case
    found = resolve(calls, response, explicit, declared_response_id=declared)
    return found.model_call_id, found.method, found.reason


ASKED = st.tuples(RESPONSES, CALL_IDS, RESPONSE_IDS)


@settings(quickly, max_examples=200)
@given(st.integers(0, 4).flatmap(lambda count: st.tuples(*map(entry_fields, range(count)))), ASKED)
def test_entries_are_attributed_alike(fields: tuple[dict[str, Any], ...], case: tuple[Any, Any, Any]) -> None:
    ours = attributed(terminal.resolve_terminal, [TokenEntry(**one) for one in fields], case)
    assert ours == attributed(gym.resolve_terminal, [GymTokenEntry(**one) for one in fields], case)


@settings(quickly, max_examples=200)
@given(st.integers(0, 4).flatmap(lambda count: st.tuples(*map(row_fields, range(count)))), ASKED)
def test_manifest_rows_are_attributed_alike(fields: tuple[dict[str, Any], ...], case: tuple[Any, Any, Any]) -> None:
    ours = attributed(terminal.resolve_terminal, [ledger.CallRecord(**one) for one in fields], case)
    assert ours == attributed(gym.resolve_terminal, [gym.CallRecord(**one) for one in fields], case)


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    template = {name: value for name, value in plain(ledger_row(CHILD)).items() if name != "admitted_at"}
    rows = []
    for number in range(draw(st.integers(0, 6))):
        parent = draw(st.sampled_from([None, *(f"call-{other}" for other in range(6))]))
        place = {"parent_call_id": parent, "mode": "text" if parent is None else "token_in"}
        lengths = {"prev_len": 0 if parent is None else 1, "delta_len": 1, "cum_len": 1 if parent is None else 2}
        call_id = f"call-{draw(st.integers(0, 5)) if draw(st.integers(0, 9)) == 0 else number}"
        admitted = draw(st.sampled_from([None, 1.0, 2.0, -0.0]))
        rows.append({**template, **place, **lengths, "model_call_id": call_id, "admitted_at": admitted})
    return rows


@settings(quickly, max_examples=200)
@given(graphs())
def test_parent_links_lead_to_the_same_call(rows: list[dict[str, Any]]) -> None:
    ours = terminal.select_terminal_call([ledger.CallRecord(**one) for one in rows])
    theirs = gym.select_terminal_call([gym.CallRecord(**one) for one in rows])
    assert (ours.terminal_model_call_id, ours.reason) == (theirs.terminal_model_call_id, theirs.reason)
