# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``stats``, ``tail`` and ``grep``: what a run's captures say."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gym_objstore.cli.options import Json, Run, on_a_store, require_known_run, require_run
from gym_objstore.cli.printing import complain, print_json, print_line, print_table, remark, say, tracked
from gym_objstore.cli.show import headline
from gym_objstore.errors import Invalid, NotFound, Unavailable
from gym_objstore.flow import run
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions

if TYPE_CHECKING:
    from gym_objstore.calls import ModelCallRecord
    from gym_objstore.calls_stats import RunStats
    from gym_objstore.calls_turns import Turn
    from gym_objstore.captures_following import Following, Found
    from gym_objstore.reading import ReadCall
    from gym_objstore.store import Store

_AROUND = 60
"""Characters that are shown on each side of what was searched for."""
_SKEW_SECONDS = 10
"""How far a writer's clock may be behind, so that ``tail`` does not take its calls for old ones."""

_UNNAMED = "{} rollouts have ids too long to be read from their keys and were left out; name one to see it"

Lines = Annotated[bool, typer.Option("--json", help="Print JSON for machines, one document a line.")]
Rollout = Annotated[str | None, typer.Option("--rollout", help="Only this rollout.")]


@on_a_store
def stats(
    place: StoreOptions,
    run_id: Run = None,
    json: Json = False,  # noqa: FBT002
) -> None:
    """Add up a run: calls, tokens, latency percentiles (within 1 %), error rates per model and dialect, losses."""
    from gym_objstore.calls_stats import RunStats
    from gym_objstore.reading import named_rollouts, overlapped

    store, run_id = open_store(place), require_run(run_id)
    require_known_run(run_id, store)
    rollouts, hashed = named_rollouts(store, run_id)
    total = RunStats()
    counted = overlapped(partial(_counted, store, run_id), rollouts)
    for part in tracked(counted, "reading", len(rollouts)):
        total.merge(part)
    found = {"run_id": run_id, **total.summary(), "unnamed_rollouts": hashed}
    if json:
        print_json(found)
    else:
        _say_stats(found)


def _counted(store: Store, run_id: str, rollout_id: str) -> RunStats:
    from gym_objstore.calls_stats import RunStats
    from gym_objstore.reading import open_rollout

    rollout = open_rollout(store, run_id, rollout_id)
    found = RunStats(rollouts=1, incomplete=int(rollout.incomplete))
    for call in rollout.calls():
        if call.record is None:
            found.unreadable += 1
        else:
            found.add(call.record)
    return found


def _say_stats(found: dict[str, Any]) -> None:
    say(
        f"{found['run_id']}: {found['rollouts']} rollouts, {found['incomplete_rollouts']} incomplete, "
        f"{found['calls']} calls, {found['unreadable_captures']} unreadable captures"
    )
    columns = {
        "model": "model",
        "dialect": "dialect",
        "calls": "calls",
        "tokens_in": "in",
        "tokens_out": "out",
        "cached_tokens": "cached",
        "tokens_reasoning": "reasoning",
        "latency_p50_ms": "p50 ms",
        "latency_p90_ms": "p90 ms",
        "latency_p99_ms": "p99 ms",
        "error_rate": "errors",
    }
    groups = [*found["groups"], {"model": "all", "dialect": "", **found}]
    rows = [[_figure(one[name], whole=name.endswith("_ms")) for name in columns] for one in groups]
    print_table("calls", list(columns.values()), rows)
    if found["error_categories"]:
        say("errors: " + ", ".join(f"{name} {count}" for name, count in found["error_categories"].items()))
    if hashed := found["unnamed_rollouts"]:
        say(_UNNAMED.format(len(hashed)))


def _figure(value: Any, *, whole: bool) -> Any:
    """Return a figure as it is shown: a latency is known within 1 %, so more digits would say nothing."""
    if value is None:
        return "?"
    return f"{value:.0f}" if whole and value >= 100 else value  # noqa: PLR2004 - three digits


@on_a_store
def tail(
    place: StoreOptions,
    run_id: Run = None,
    rollout: Rollout = None,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print all calls that are there, and end.")] = False,  # noqa: FBT002
    json: Lines = False,  # noqa: FBT002
) -> None:
    """Follow a run: a line for each call when its capture comes.

    A look costs one listing of the run's rollouts and at most 64 of single rollouts, the busy ones first. An idle one
    of thousands may take minutes to be noticed when it goes on; --rollout follows one for a listing a look.
    """
    from gym_objstore.captures_following import BUDGET, Following

    store, run_id = open_store(place), require_run(run_id)
    try:
        require_known_run(run_id, store)
    except NotFound as error:
        if once:
            raise
        complain(error)  # it may be about to begin
    since = 0 if once else int((time.time() - _SKEW_SECONDS) * 1e6)
    following = Following(run_id, since, rollout, None if once else BUDGET)
    while True:
        try:
            _look(following, store, json=json)
        except Unavailable as error:
            if once:
                raise
            complain(error)
        if once:
            return
        time.sleep(interval)


def _look(following: Following, store: Store, *, json: bool) -> None:
    from gym_objstore.captures_following import look
    from gym_objstore.reading import overlapped

    fresh = run(look(following), store)
    for found, call in zip(fresh, overlapped(partial(_read, following.run_id, store), fresh), strict=True):
        if json:
            print_line({"rollout_id": found.rollout_id, **_fields(call)})
        else:
            said = headline(call.record) if call.record else f"call {call.call_index}  damaged capture"
            say(f"{found.rollout_id}  {said}  {_last_words(call.record)}".rstrip())


def _read(run_id: str, store: Store, found: Found) -> ReadCall:
    from gym_objstore.captures import read_some
    from gym_objstore.reading import read_call

    (stored,) = run(read_some(run_id, found.rollout_id, [found.name]), store)
    return read_call(found.call_index, stored)


def _fields(call: ReadCall) -> dict[str, Any]:
    """Return a call without its payloads."""
    if call.record is None:
        return {"call_index": call.call_index, "unreadable": True}
    payloads = {"request", "response", "request_raw", "response_raw", "tool_calls", "reasoning_content"}
    return {**call.record.model_dump(mode="json", exclude=payloads), "said": _last_words(call.record)}


def _last_words(record: ModelCallRecord | None) -> str:
    """Return the beginning of what the model answered."""
    from gym_objstore.calls_turns import response_turns

    turns = [turn for turn in response_turns(record) if turn.kind != "reasoning"] if record else []
    words = " ".join(f"{turn.name}({turn.text})" if turn.kind == "tool_call" else turn.text for turn in turns)
    flat = " ".join(words[: 4 * _AROUND].split())
    return flat if len(flat) <= _AROUND else f"{flat[:_AROUND]}..."


class Search(NamedTuple):
    """What is searched for, and where."""

    pattern: re.Pattern[str]
    model: str | None
    role: str | None


@on_a_store
def grep(
    place: StoreOptions,
    pattern: Annotated[str, typer.Argument(help="A regular expression, as Python has them.")],
    run_id: Run = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Upper case is lower case.")] = False,  # noqa: FBT002
    rollout: Rollout = None,
    model: Annotated[str | None, typer.Option("--model", help="Only calls of this model.")] = None,
    role: Annotated[
        str | None, typer.Option("--role", help="Only what this role said: system, user, tool, ...")
    ] = None,
    json: Lines = False,  # noqa: FBT002
) -> None:
    """Search what was said in a run; what calls repeat is searched once. Exits with 1 if nothing was found."""
    from gym_objstore.reading import Named, named_rollouts, overlapped

    try:
        search = Search(re.compile(pattern, re.IGNORECASE if ignore_case else 0), model, role)
    except re.error as error:
        raise Invalid(f"not a regular expression: {error}, pattern={pattern!r}", kind="bad_option") from error
    store, run_id = open_store(place), require_run(run_id)
    require_known_run(run_id, store)
    rollouts, hashed = Named([rollout], []) if rollout else named_rollouts(store, run_id)
    matches = unreadable = 0
    for found, damaged in tracked(
        overlapped(partial(_searched, store, run_id, search), rollouts), "searching", len(rollouts)
    ):
        matches, unreadable = matches + len(found), unreadable + damaged
        for one in found:
            if json:
                print_line(one)
            else:
                say("{rollout_id}  call {call_index}  {role} {kind}: {excerpt}".format(**one))
    if unreadable:
        remark(f"{unreadable} captures are damaged and were not searched")
    if hashed:
        remark(_UNNAMED.format(len(hashed)))
    raise typer.Exit(int(not matches))


def _searched(store: Store, run_id: str, search: Search, rollout_id: str) -> tuple[list[dict[str, Any]], int]:
    """Return what was found in a rollout, and how many of its captures are damaged."""
    from gym_objstore.calls_turns import Conversation
    from gym_objstore.reading import open_rollout

    try:
        rollout = open_rollout(store, run_id, rollout_id)
    except NotFound:
        return [], 0
    talk, found, damaged = Conversation(), [], 0
    for call in rollout.calls():
        if call.record is None:
            damaged += 1
            continue
        if search.model in (None, call.record.model):
            said = talk.add(call.record)
            place = {"rollout_id": rollout_id, "call_index": call.call_index, "model": call.record.model}
            found += [{**place, **one} for turn in (*said.request, *said.response) for one in _matches(search, turn)]
    return found, damaged


def _matches(search: Search, turn: Turn) -> Iterator[dict[str, str]]:
    if search.role is not None and turn.role != search.role:
        return
    for text in (turn.name, turn.text):
        if match := search.pattern.search(text):
            before, after = text[max(match.start() - _AROUND, 0) : match.start()], text[match.end() :][:_AROUND]
            excerpt = " ".join(f"{before}{match.group()}{after}".split())
            yield {"role": turn.role, "kind": turn.kind, "match": match.group(), "excerpt": excerpt}
