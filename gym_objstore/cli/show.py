# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``show``: what was said in a rollout, and what its token entries are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gym_objstore.cli.look import jsonable, no_rollout, print_findings
from gym_objstore.cli.options import Json, Run, on_a_store, require_run
from gym_objstore.cli.printing import print_json, print_table, say
from gym_objstore.errors import NotFound, Retired
from gym_objstore.flow import run
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions

if TYPE_CHECKING:
    from gym_objstore.calls import ModelCallRecord
    from gym_objstore.calls_turns import Said, Turn
    from gym_objstore.checking import Report
    from gym_objstore.reading import Rollout
    from gym_objstore.store import Store
    from gym_objstore.tokens import Snapshot

_HEADER = (
    ("tokens_in", "in"),
    ("tokens_out", "out"),
    ("cached_tokens", "cached"),
    ("tokens_reasoning", "reasoning"),
)
_FOLDED = {"reasoning"}
_WIDTH = 200
"""Characters of a folded line."""


@on_a_store
def show(
    place: StoreOptions,
    rollout_id: Annotated[str, typer.Argument(help="The rollout.")],
    run_id: Run = None,
    full: Annotated[bool, typer.Option("--full", help="Show all of the reasoning.")] = False,  # noqa: FBT002
    json: Json = False,  # noqa: FBT002
) -> None:
    """Show a rollout: what was said in its calls, their tokens and parents, and what is wrong with it."""
    store = open_store(place)
    run_id = require_run(run_id)
    report, rollout = _report(store, run_id, rollout_id), _captured(store, run_id, rollout_id)
    ledger = _ledger(store, run_id, rollout_id)
    if report.overview.state == "empty" and rollout is None and ledger["state"] == "empty":
        raise no_rollout(run_id, rollout_id)
    if json:
        print_json({**_document(report, rollout), "ledger": ledger})
        return
    if rollout is not None:
        _say_conversation(rollout, full=full)
    if report.overview.state != "empty":
        _say_tokens(rollout_id, report)
    if ledger["state"] != "empty":
        _say_ledger(rollout_id, ledger)


def _report(store: Store, run_id: str, rollout_id: str) -> Report:
    from gym_objstore.checking import check_rollout, rollouts
    from gym_objstore.keys import rollout_prefix
    from gym_objstore.tokens import FAMILY

    known = run(rollouts(FAMILY, run_id), store)
    return run(check_rollout(rollout_id, known.get(rollout_id) or rollout_prefix(FAMILY, run_id, rollout_id)), store)


def _captured(store: Store, run_id: str, rollout_id: str) -> Rollout | None:
    """Return a rollout's captures; None if there are none and nothing says that one was lost."""
    from gym_objstore.reading import open_rollout

    try:
        found = open_rollout(store, run_id, rollout_id)
    except NotFound:
        return None
    return found if found.names or found.incomplete else None


def _ledger(store: Store, run_id: str, rollout_id: str) -> dict[str, Any]:
    """Return what the ledger says: the calls whose tokens workers staged, and those that did not commit."""
    from gym_objstore.ledger import manifest

    try:
        found = run(manifest(run_id, rollout_id), store)
    except Retired:
        return {"state": "retired", "calls": [], "failures": []}
    calls = [
        {
            "model_call_id": one.model_call_id,
            "parent_call_id": one.parent_call_id or "",
            "prefix_tokens": one.prev_len,
            "new_tokens": one.delta_len,
            "response_id": one.response_id,
            "staging_key": one.staging_key,
        }
        for one in found.records
    ]
    failures = [one.model_dump() for one in found.failures]
    state = "incomplete" if any(one.poisons for one in found.failures) else "complete"
    return {"state": state if calls or failures else "empty", "calls": calls, "failures": failures}


def _document(report: Report, rollout: Rollout | None) -> dict[str, Any]:
    from gym_objstore.calls_turns import Conversation

    talk, calls, unreadable = Conversation(), [], 0
    for call in rollout.calls() if rollout else ():
        if call.record is None:
            unreadable += 1
            continue
        said = talk.add(call.record)
        record = call.record.model_dump(mode="json", exclude={"request", "response", "request_raw", "response_raw"})
        turns = {"request": _plain(said.request), "response": _plain(said.response)}
        calls.append({**record, "continues": said.continues, "repeated_turns": said.repeated, **turns})
    return {
        **jsonable(report.overview),
        "calls": _calls(report.snapshot),
        "findings": [finding._asdict() for finding in report.findings],
        "model_calls": calls,
        "unreadable_captures": unreadable,
        "captures_incomplete": bool(rollout and rollout.incomplete),
    }


def _plain(turns: list[Turn]) -> list[dict[str, str]]:
    return [turn._asdict() for turn in turns]


def _say_conversation(rollout: Rollout, *, full: bool) -> None:
    from gym_objstore.calls_turns import Conversation

    talk, unreadable = Conversation(), 0
    say(f"{rollout.rollout_id}: {len(rollout.names)} calls captured")
    for call in rollout.calls():
        if call.record is None:
            unreadable += 1
            say(f"\ncall {call.call_index}  damaged capture, sha256={call.name.digest}", style="bold red")
            continue
        say(f"\n{headline(call.record)}", style="bold")
        _say_turns(talk.add(call.record), full=full)
    if unreadable:
        say(f"\n{unreadable} captures are damaged and cannot be read")
    if rollout.incomplete:
        say("\nincomplete: a marker says that a capture of this rollout was lost")


def headline(call: ModelCallRecord) -> str:
    """Return a call in one line: who answered, how it ended, how long it took, how many tokens it was."""
    parts = [f"call {call.call_index}", call.model or "?", call.dialect or "?", str(call.status_code or "no status")]
    if call.latency_total_ms is not None:
        parts.append(f"{call.latency_total_ms:.1f} ms")
    if call.latency_ttft_ms is not None:
        parts.append(f"first token {call.latency_ttft_ms:.1f} ms")
    counts = [f"{name} {count}" for field, name in _HEADER if (count := getattr(call, field)) is not None]
    parts += [" ".join(["tokens", *counts])] if counts else []
    parts += [call.finish_reason] if call.finish_reason else []
    parts += [f"error {call.error_category}"] if call.error_category else []
    return "  ".join(parts)


def _say_turns(said: Said, *, full: bool) -> None:
    if said.continues is not None:
        new = "" if said.request else ", nothing new asked"
        say(f"  ... {said.repeated} turns as in call {said.continues}{new}", style="dim")
    for turn in (*said.request, *said.response):
        _say_turn(turn, full=full)


def _say_turn(turn: Turn, *, full: bool) -> None:
    label = turn.role or "?"
    if turn.kind == "tool_call":
        label += f" calls {turn.name or '?'} [{turn.call_id}]"
    elif turn.kind == "tool_result":
        label += f" answers [{turn.call_id}]"
    elif turn.kind != "text":
        label += f" ({turn.kind if turn.kind != 'other' or not turn.name else turn.name})"
    lines = turn.text.splitlines() or [""]
    if turn.kind in _FOLDED and not full:
        lines = _folded(lines)
    say(f"  {label}: " + "\n    ".join(lines), style="dim" if turn.kind in _FOLDED else None)


def _folded(lines: list[str]) -> list[str]:
    """Return the beginning, and how much more there is."""
    head = lines[0] if len(lines[0]) <= _WIDTH else f"{lines[0][:_WIDTH]}... {len(lines[0]) - _WIDTH} more characters"
    return [head, *([f"... {len(lines) - 1} more lines"] if len(lines) > 1 else [])]


def _say_tokens(rollout_id: str, report: Report) -> None:
    say(f"{rollout_id}: {report.overview.state}, version {report.overview.version}")
    columns = ["call", "parent", "resolution", "prompt", "generated", "digest"]
    if report.snapshot is not None:
        print_table("calls", columns, [tuple(call.values()) for call in _calls(report.snapshot)])
    if report.findings:
        print_findings(report.findings)


def _say_ledger(rollout_id: str, ledger: dict[str, Any]) -> None:
    say(f"{rollout_id}: ledger {ledger['state']}")
    if calls := ledger["calls"]:
        columns = ["call", "parent", "prefix", "new", "response", "staging key"]
        print_table("staged calls", columns, [tuple(one.values()) for one in calls])
    if failures := ledger["failures"]:
        print_table("calls that did not commit", ["call", "reason"], [tuple(one.values()) for one in failures])


def _calls(snapshot: Snapshot | None) -> list[dict[str, Any]]:
    return [
        {
            "model_call_id": entry.model_call_id,
            "parent_call_id": entry.parent_call_id or "",
            "parent_resolution": str(entry.parent_resolution or ""),
            "prompt_tokens": len(entry.prompt_token_ids),
            "generated_tokens": len(entry.generation_token_ids),
            "digest": entry.digest or "",
        }
        for entry in (snapshot.entries if snapshot else ())
    ]
