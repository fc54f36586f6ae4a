# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A scored response is attributed to one call by agreeing witnesses, or to none with the reasons why."""

from __future__ import annotations

from typing import Any

import pytest

from gym_objstore.fingerprint import FINGERPRINT_VERSION, assistant_fingerprint
from gym_objstore.records import TokenEntry
from gym_objstore.terminal import TerminalAttribution, resolve_terminal, select_terminal_call
from gym_objstore.testing.staged_rollouts import ledger_row, staged_call
from gym_objstore.wire_ledger import CallRecord


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


LOOK = {"type": "function_call", "call_id": "f", "name": "look", "arguments": "{}"}
SEEN = {"type": "function_call_output", "call_id": "f", "output": "a cat"}


def entry(call_id: str, *, tokens: int = 1, **fields: Any) -> TokenEntry:
    obvious = {"rollout_id": "r", "prompt_token_ids": [9], "generation_token_ids": [tokens]}
    return TokenEntry(**{**obvious, "model_call_id": call_id, "generation_log_probs": [-0.5], **fields})


def row(call_id: str, *, tokens: int = 1, output: list[dict[str, Any]] | None = None, **fields: Any) -> CallRecord:
    prints = {
        "fingerprint_version": FINGERPRINT_VERSION,
        "output_fingerprint": assistant_fingerprint(output or []) or None,
    }
    return ledger_row(staged_call(call_id, generated=[tokens]), **{**prints, **fields})


FIRST = entry("first", tokens=1, response_id="resp-1", output_items=[LOOK])
LAST = entry(
    "last",
    tokens=2,
    response_id="resp-2",
    output_items=[said("a cat")],
    continuation_fingerprint=assistant_fingerprint([LOOK, SEEN, said("a cat")]),
    fingerprint_version=FINGERPRINT_VERSION,
)
ENTRIES = [FIRST, LAST]


class TestOneWitness:
    def test_the_caller_names_the_call(self) -> None:
        assert resolve_terminal(ENTRIES, None, "first") == TerminalAttribution(
            "first", "explicit", "no_response_object"
        )

    def test_the_harness_declares_the_response_it_kept(self) -> None:
        found = resolve_terminal(ENTRIES, None, declared_response_id="resp-1")
        assert found == TerminalAttribution("first", "declared", "no_response_object")

    def test_the_response_has_the_id_one_call_served(self) -> None:
        found = resolve_terminal(ENTRIES, {"id": "resp-1"})
        assert found == TerminalAttribution("first", "response_id", "response_has_no_output")

    def test_a_whole_transcript_is_the_call_that_completed_it(self) -> None:
        found = resolve_terminal(ENTRIES, {"output": [LOOK, SEEN, said("a cat")]})
        assert found == TerminalAttribution("last", "content_cumulative", "response_has_no_id")

    def test_one_turn_is_the_call_that_said_it(self) -> None:
        assert resolve_terminal(ENTRIES, {"output": [said("a cat")]}).method == "content_output"
        assert resolve_terminal(ENTRIES, {"output": [LOOK]}).model_call_id == "first"

    def test_the_last_turn_of_a_rewritten_transcript_is_the_call_that_said_it(self) -> None:
        found = resolve_terminal(ENTRIES, {"output": [said("rewritten"), SEEN, said("a cat")]})
        assert (found.model_call_id, found.method) == ("last", "content_output")

    def test_ledger_rows_are_matched_by_their_recorded_fingerprints(self) -> None:
        rows = [row("first", tokens=1, output=[LOOK]), row("last", tokens=2, output=[said("a cat")])]
        found = resolve_terminal(rows, {"output": [LOOK, SEEN, said("a cat")]})
        assert found == TerminalAttribution("last", "content", "response_has_no_id")


class TestAbstention:
    @pytest.mark.parametrize(
        ("response", "reason"),
        [
            (None, "no_response_object"),
            ("resp-1", "no_response_object"),
            ({}, "response_has_no_id,response_has_no_output"),
            ({"id": "resp-9", "output": "text"}, "response_id_no_match,response_has_no_output"),
            ({"id": 0, "output": []}, "response_has_no_id,response_has_no_output"),
            ({"output": [SEEN, "text", None]}, "response_has_no_id,no_model_authored_output"),
            ({"output": [said("something else")]}, "response_has_no_id,no_content_match"),
            ({"output": [{"role": "assistant", "content": 3}]}, "response_has_no_id,response_output_unfingerprintable"),
            ({"output": [said("lone \ud800")]}, "response_has_no_id,response_output_unfingerprintable"),
            ({"output": [{**said("x"), "tool_calls": "no"}]}, "response_has_no_id,response_output_unfingerprintable"),
        ],
    )
    def test_without_a_witness_nothing_is_attributed(self, response: Any, reason: str) -> None:
        found = resolve_terminal(ENTRIES, response)
        assert found == TerminalAttribution(None, reason=reason)
        assert not found.attributed

    def test_a_transcript_that_ends_in_a_tool_result_has_no_last_turn(self) -> None:
        found = resolve_terminal(ENTRIES, {"output": [said("rewritten"), said("a cat"), SEEN]})
        assert found.reason == "response_has_no_id,no_content_match"

    def test_an_explicit_call_that_was_not_captured_leaves_it_to_the_others(self) -> None:
        found = resolve_terminal(ENTRIES, {"id": "resp-2"}, "stranger")
        assert (found.model_call_id, found.method) == ("last", "response_id")
        assert found.reason == "explicit_terminal_not_captured,response_has_no_output"

    def test_a_declared_response_that_was_not_captured_attributes_nothing(self) -> None:
        found = resolve_terminal(ENTRIES, {"id": "resp-2"}, "last", declared_response_id="resp-9")
        assert found == TerminalAttribution(None, reason="declared_terminal_not_captured")

    def test_a_declared_response_of_two_different_calls_attributes_nothing(self) -> None:
        calls = [entry("a", tokens=1, response_id="same"), entry("b", tokens=2, response_id="same")]
        found = resolve_terminal(calls, {"id": "same"}, declared_response_id="same")
        assert found == TerminalAttribution(None, reason="declared_ambiguous")

    def test_a_response_id_of_two_different_calls_is_no_witness(self) -> None:
        calls = [entry("a", tokens=1, response_id="same"), entry("b", tokens=2, response_id="same")]
        assert resolve_terminal(calls, {"id": "same"}).reason == "response_id_ambiguous,response_has_no_output"

    def test_content_of_two_different_calls_is_no_witness(self) -> None:
        calls = [entry("a", tokens=1, output_items=[LOOK]), entry("b", tokens=2, output_items=[LOOK])]
        assert resolve_terminal(calls, {"output": [LOOK]}).reason == "response_has_no_id,content_ambiguous"

    def test_fingerprints_of_another_version_are_no_witness(self) -> None:
        rows = [row("a", output=[LOOK], fingerprint_version=FINGERPRINT_VERSION - 1)]
        assert resolve_terminal(rows, {"output": [LOOK]}).reason == "response_has_no_id,no_content_match"
        old = LAST.model_copy(update={"fingerprint_version": 1, "output_items": []})
        assert not resolve_terminal([old], {"output": [LOOK, SEEN, said("a cat")]}).attributed

    def test_an_entry_with_unreadable_output_is_passed_over(self) -> None:
        odd = entry("odd", tokens=3, output_items=[{"role": "assistant", "content": 3}])
        assert resolve_terminal([odd, *ENTRIES], {"output": [LOOK]}).model_call_id == "first"

    def test_a_rollout_without_calls_is_unattributed(self) -> None:
        assert resolve_terminal([], {"id": "resp-1"}, "first").attributed is False


class TestAgreement:
    def test_witnesses_that_agree_corroborate_the_first(self) -> None:
        response = {"id": "resp-2", "output": [said("a cat")]}
        found = resolve_terminal(ENTRIES, response, "last", declared_response_id="resp-2")
        expected = "corroborated_by=declared+response_id+content_output"
        assert found == TerminalAttribution("last", "explicit", expected)

    def test_witnesses_that_disagree_attribute_nothing_and_are_named(self) -> None:
        found = resolve_terminal(ENTRIES, {"id": "resp-1", "output": [said("a cat")]})
        assert found == TerminalAttribution(None, reason="witness_disagreement[response_id=first;content_output=last]")

    def test_retries_with_the_same_tokens_are_one_call(self) -> None:
        calls = [entry("b", response_id="same"), entry("a", response_id="same")]
        assert resolve_terminal(calls, {"id": "same"}).model_call_id == "a"
        assert resolve_terminal(calls, {"id": "same"}, "b") == TerminalAttribution(
            "b", "explicit", "response_has_no_output,corroborated_by=response_id"
        )

    def test_recorded_digests_identify_sequences_of_entries(self) -> None:
        alike = {"digest": "d", "cum_len": 2, "response_id": "same"}
        assert resolve_terminal(
            [entry("a", tokens=1, **alike), entry("b", tokens=2, **alike)], {"id": "same"}
        ).attributed

    def test_rows_with_the_same_sequence_are_one_call(self) -> None:
        rows = [row("b", response_id="same"), row("a", response_id="same")]
        assert resolve_terminal(rows, {"id": "same"}).model_call_id == "a"
        other = [rows[0], row("a", tokens=2, response_id="same")]
        assert resolve_terminal(other, {"id": "same"}).reason.startswith("response_id_ambiguous")


def links(*pairs: tuple[str, str | None], **admitted: float) -> list[CallRecord]:
    """Return rows with these parent links, as a ledger might hold them; lengths are beside the point here."""
    root, child = ledger_row(staged_call("x")), ledger_row(staged_call("y", after=[staged_call("x")]))
    return [
        (root if parent is None else child).model_copy(
            update={"model_call_id": call, "parent_call_id": parent, "admitted_at": admitted.get(call)}
        )
        for call, parent in pairs
    ]


@pytest.mark.parametrize(
    ("rows", "selected", "reason"),
    [
        (links(), None, "no_records"),
        (links(("a", None), ("a", None)), None, "duplicate_call_id"),
        (links(("a", None), ("b", "gone")), None, "orphaned_row"),
        (links(("a", "b"), ("b", "a")), None, "no_root"),
        (links(("a", None)), "a", "selected"),
        (links(("a", None), ("b", "a"), ("c", "b")), "c", "selected"),
        (links(("a", None), ("b", "a"), ("abandoned", "a"), ("c", "b")), "c", "selected"),
        (links(("a", None), ("b", "a"), ("c", "a")), None, "ambiguous_terminal"),
        (links(("a", None), ("b", "a"), ("c", "a"), ("d", "b"), ("e", "c")), None, "ambiguous_terminal"),
        (links(("auxiliary", None), ("a", None), ("b", "a")), "b", "selected"),
        (links(("late", None), ("early", None), late=2.0, early=1.0), "early", "selected"),
        (links(("unstamped", None), ("stamped", None), stamped=9.0), "stamped", "selected"),
        (links(("first", None), ("second", None)), "first", "selected"),
        (links(("first", None), ("second", None), first=1.0, second=1.0), "first", "selected"),
        (links(("a", None), ("b", "c"), ("c", "b")), "a", "selected"),
    ],
)
def test_parent_links_lead_to_the_call_at_their_end(rows: list[CallRecord], selected: str | None, reason: str) -> None:
    found = select_terminal_call(rows)
    assert (found.terminal_model_call_id, found.reason) == (selected, reason)


def test_a_chain_of_thousands_of_calls_is_followed() -> None:
    rows = links(("0", None), *((str(number), str(number - 1)) for number in range(1, 5000)))
    assert select_terminal_call(rows).terminal_model_call_id == "4999"
