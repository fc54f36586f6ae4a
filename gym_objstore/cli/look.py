# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``ls`` and ``check``: what is in a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gym_objstore.cli.options import Json, Run, on_a_store, require_run
from gym_objstore.cli.printing import print_json, print_table, say, tracked
from gym_objstore.errors import NotFound
from gym_objstore.flow import run
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions

if TYPE_CHECKING:
    from gym_objstore.checking import Report
    from gym_objstore.store import Store

_FAMILY = "tokens"


@on_a_store
def ls(
    place: StoreOptions,
    run_id: Run = None,
    json: Json = False,  # noqa: FBT002
) -> None:
    """List the runs of a store or, with --run-id, the rollouts of a run with their state and counts."""
    from gym_objstore.checking import overview, rollouts, runs

    store = open_store(place)
    if run_id is None:
        found = run(runs(), store)
        if json:
            print_json([{"run_id": name, "families": families} for name, families in found.items()])
        else:
            print_table(f"runs in {store.url}", ["run", "families"], [(name, " ".join(f)) for name, f in found.items()])
        return
    prefixes = run(rollouts(_FAMILY, run_id), store)
    listed = [run(overview(*item), store) for item in tracked(list(prefixes.items()), "listing rollouts")]
    rows = [row for row in listed if row.state != "empty"]
    if json:
        print_json([jsonable(row) for row in rows])
        return
    shown = [
        (r.rollout_id, r.state, r.entries, r.intents, ", ".join(sorted({p.kind for p in r.problems}))) for r in rows
    ]
    print_table(f"rollouts of {run_id}", ["rollout", "state", "entries", "intents", "problems"], shown)


@on_a_store
def check(
    place: StoreOptions,
    rollout_id: Annotated[str | None, typer.Argument(help="One rollout; all of the run without it.")] = None,
    run_id: Run = None,
    json: Json = False,  # noqa: FBT002
) -> None:
    """Re-read and re-hash a rollout or a run. Exits with 1 if anything is damaged; losses are warnings."""
    from gym_objstore.checking import check_rollout, rollouts

    store = open_store(place)
    run_id = require_run(run_id)
    if rollout_id is not None:
        reports = [_report(store, run_id, rollout_id)]
    else:
        prefixes = run(rollouts(_FAMILY, run_id), store)
        reports = [run(check_rollout(*item), store) for item in tracked(list(prefixes.items()), "checking")]
    damaged = any(finding.severity == "error" for report in reports for finding in report.findings)
    if json:
        findings = [finding for report in reports for finding in findings_of(report)]
        print_json({"run_id": run_id, "rollouts": len(reports), "damaged": damaged, "findings": findings})
    else:
        print_findings(reports)
        say(f"{len(reports)} rollouts checked: {'damage found' if damaged else 'no damage'}")
    raise typer.Exit(int(damaged))


def _report(store: Store, run_id: str, rollout_id: str) -> Report:
    from gym_objstore.checking import check_rollout, rollouts

    prefix = run(rollouts(_FAMILY, run_id), store).get(rollout_id)
    if prefix is None:
        raise no_rollout(run_id, rollout_id)
    return run(check_rollout(rollout_id, prefix), store)


def no_rollout(run_id: str, rollout_id: str) -> NotFound:
    """Return the error for a rollout that is not there."""
    hint = "list them: gym-objstore ls --run-id ..."
    return NotFound(f"no such rollout, run_id={run_id}, rollout_id={rollout_id}", kind="no_rollout", hint=hint)


def findings_of(report: Report) -> list[dict[str, str]]:
    """Return what a check found, as plain fields."""
    return [finding._asdict() for finding in report.findings]


def print_findings(reports: list[Report]) -> None:
    """Print what checks found as a table."""
    rows = [tuple(finding) for report in reports for finding in report.findings]
    print_table("findings", ["severity", "kind", "rollout", "call", "detail"], rows)


def jsonable(row: Any) -> dict[str, Any]:
    """Return an overview as plain fields."""
    return {**row._asdict(), "problems": [problem._asdict() for problem in row.problems]}
