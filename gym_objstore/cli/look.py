# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``ls`` and ``check``: what is in a bucket."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gym_objstore.cli.options import Json, Run, on_a_store, require_known_run, require_run
from gym_objstore.cli.printing import print_json, print_table, say, tracked
from gym_objstore.errors import NotFound
from gym_objstore.flow import run
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gym_objstore.checking import Finding, Report
    from gym_objstore.checking_objects import Checked, Reading
    from gym_objstore.store import Store

_FAMILY = "tokens"


@on_a_store
def ls(
    place: StoreOptions,
    run_id: Run = None,
    json: Json = False,  # noqa: FBT002
) -> None:
    """List the runs of a store or, with --run-id, the rollouts of a run with the state of their tokens."""
    from gym_objstore.checking import runs

    store = open_store(place)
    if run_id is None:
        found = run(runs(), store)
        if json:
            print_json([{"run_id": name, "families": families} for name, families in found.items()])
        else:
            print_table(f"runs in {store.url}", ["run", "families"], [(name, " ".join(f)) for name, f in found.items()])
        return
    rows = _rollouts(store, run_id)
    if not rows:
        require_known_run(run_id, store)
    if json:
        print_json(rows)
        return
    shown = [
        (r["rollout_id"], " ".join(r["families"]), r["state"], r["entries"], r["intents"], " ".join(_kinds(r)))
        for r in rows
    ]
    print_table(f"rollouts of {run_id}", ["rollout", "families", "state", "entries", "intents", "problems"], shown)


def _rollouts(store: Store, run_id: str) -> list[dict[str, Any]]:
    """Return a run's rollouts: the families that hold something of each, and what its listing says of its tokens."""
    from gym_objstore.checking import overview, rollouts
    from gym_objstore.keys import FAMILIES

    found = {family: run(rollouts(family, run_id), store) for family in FAMILIES}
    holding: dict[str, list[str]] = {}
    for family, prefixes in found.items():
        for rollout_id in prefixes:
            holding.setdefault(rollout_id, []).append(family)
    rows = []
    for rollout_id in tracked(sorted(holding), "listing rollouts"):
        prefix = found[_FAMILY].get(rollout_id)
        row = jsonable(run(overview(rollout_id, prefix), store)) if prefix else _without_tokens(rollout_id)
        if row["state"] != "empty" or holding[rollout_id] != [_FAMILY]:
            rows.append({**row, "families": holding[rollout_id]})
    return rows


def _without_tokens(rollout_id: str) -> dict[str, Any]:
    return {"rollout_id": rollout_id, "state": "", "entries": 0, "intents": 0, "version": 0, "problems": []}


def _kinds(row: dict[str, Any]) -> list[str]:
    return sorted({problem["kind"] for problem in row["problems"]})


@on_a_store
def check(
    place: StoreOptions,
    rollout_id: Annotated[str | None, typer.Argument(help="One rollout; all of the run without it.")] = None,
    run_id: Run = None,
    json: Json = False,  # noqa: FBT002
) -> None:
    """Re-read and re-hash a rollout or a run. Exits with 1 if anything is damaged; losses are warnings."""
    store = open_store(place)
    run_id = require_run(run_id)
    known = _prefixes(store, run_id, rollout_id)
    reports, objects = _token_reports(store, known), 0
    findings = [finding for report in reports for finding in report.findings]
    for checked in _other_objects(store, run_id, rollout_id):
        objects += checked.objects
        findings += checked.findings
    if not reports and not objects:
        require_known_run(run_id, store)
    damaged = any(finding.severity == "error" for finding in findings)
    if json:
        listed = [finding._asdict() for finding in findings]
        counts = {"rollouts": len(reports), "objects": objects}
        print_json({"run_id": run_id, **counts, "damaged": damaged, "findings": listed})
    else:
        print_findings(findings)
        verdict = "damage found" if damaged else "no damage"
        say(f"tokens of {len(reports)} rollouts and {objects} other objects checked: {verdict}")
    raise typer.Exit(int(damaged))


def _prefixes(store: Store, run_id: str, rollout_id: str | None) -> dict[str, str]:
    """Return the token prefixes to check by rollout. Raises ``NotFound`` for a rollout that no family holds."""
    from gym_objstore.checking import rollouts
    from gym_objstore.ids import known_as
    from gym_objstore.keys import FAMILIES

    found = run(rollouts(_FAMILY, run_id), store)
    if rollout_id is None:
        return found
    names = known_as(rollout_id)
    if known := [found[one] for one in names if one in found]:
        return {rollout_id: known[0]}
    others = (run(rollouts(family, run_id), store) for family in FAMILIES if family != _FAMILY)
    if not any(names & set(one) for one in others):
        raise no_rollout(run_id, rollout_id)
    return {}


def _token_reports(store: Store, prefixes: dict[str, str]) -> list[Report]:
    from gym_objstore.checking import check_rollout

    return [run(check_rollout(*item), store) for item in tracked(list(prefixes.items()), "checking tokens")]


def _other_objects(store: Store, run_id: str, rollout_id: str | None) -> Iterator[Checked]:
    from gym_objstore.checking_objects import Reading
    from gym_objstore.keys import FAMILIES

    for family in FAMILIES:
        reading = Reading(family, run_id, rollout_id)
        yield from tracked(iter(partial(_page, reading, store), None), f"checking {family}")


def _page(reading: Reading, store: Store) -> Checked | None:
    from gym_objstore.checking_objects import check_page

    return run(check_page(reading), store)


def no_rollout(run_id: str, rollout_id: str) -> NotFound:
    """Return the error for a rollout that is not there."""
    hint = "list the run's rollouts: gym-objstore ls --run-id RUN"
    return NotFound(f"no such rollout, run_id={run_id}, rollout_id={rollout_id}", kind="no_rollout", hint=hint)


def print_findings(findings: Sequence[Finding]) -> None:
    """Print what a check found as a table."""
    print_table("findings", ["severity", "kind", "rollout", "call", "detail"], [tuple(one) for one in findings])


def jsonable(row: Any) -> dict[str, Any]:
    """Return an overview as plain fields."""
    return {**row._asdict(), "problems": [problem._asdict() for problem in row.problems]}
