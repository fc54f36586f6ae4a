# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``gc``: report what may go, and remove what was reported and still may."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gym_objstore.cli.gc_report import Report, read_report, writing_report
from gym_objstore.cli.options import Checkpoint, Json, Run, listed_by, on_a_store, require_known_run, seconds
from gym_objstore.cli.printing import print_json, print_table, say, watched
from gym_objstore.errors import Invalid
from gym_objstore.flow import run
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gym_objstore.garbage import Doomed, Policy
    from gym_objstore.store import Store

Grace = Annotated[str, typer.Option("--grace", help="Leave alone what is younger: 90s, 30m, 24h, 7d.")]
ExpireAfter = Annotated[
    str | None,
    typer.Option(
        "--expire-after",
        help="Also whole runs that were closed, or if never closed written to for the last time, so long ago: 30d.",
        show_default=False,
    ),
]
KeepCaptures = Annotated[bool, typer.Option("--keep-captures", help="Leave the captures of expired runs.")]
ReportFile = Annotated[Path, typer.Option("--report", help="Where to write what may go: a JSON document in each line.")]
Apply = Annotated[
    Path | None,
    typer.Option("--apply", help="Remove what this report names and still may go; repeat it to finish."),
]
Delete = Annotated[bool, typer.Option("--delete", help="Report, and remove what was reported at once.")]


@on_a_store
def gc(
    place: StoreOptions,
    grace: Grace = "24h",
    expire_after: ExpireAfter = None,
    keep_captures: KeepCaptures = False,  # noqa: FBT002
    checkpoint: Checkpoint = None,
    report: ReportFile = Path("gc-report.jsonl"),
    apply: Apply = None,
    delete: Delete = False,  # noqa: FBT002
    run_id: Run = None,
    json: Json = False,  # noqa: FBT002
) -> None:
    """Find what may go of a run, or of every run, and write a report; remove it with --apply REPORT or --delete.

    What may go: staged rows that nothing refers to (orphan), writes behind a tombstone (late_write), drop-intents that
    were left there (stale_drop), and whole runs by --expire-after (expired). Nothing goes that the list of a
    --checkpoint names, or while a reference cannot be read. Without --apply or --delete nothing is changed.
    """
    from gym_objstore.garbage import Policy

    files = checkpoint or []
    listed_by(files)
    if apply and delete:
        raise Invalid("a report is applied or a new one is, not both", kind="bad_option")
    policy = Policy(seconds(grace), seconds(expire_after) if expire_after else None, keep_captures)
    store = open_store(place)
    if apply:
        found = read_report(apply, store.url)
        document: dict[str, Any] = {"report": str(apply)}
    else:
        document = _find(store, _runs(run_id, store), policy, files, report)
        found = read_report(report, store.url)
    if apply or delete:
        document["removed"] = _remove(store, found, files)
    if json:
        print_json(document)
    else:
        _print(document, found)


def _runs(run_id: str | None, store: Store) -> list[str]:
    from gym_objstore.checking import runs

    if run_id is None:
        return list(run(runs(), store))
    require_known_run(run_id, store)
    return [run_id]


def _find(store: Store, runs: Sequence[str], policy: Policy, files: Sequence[Path], report: Path) -> dict[str, Any]:
    from gym_objstore.garbage import find_garbage

    rows, young, counts, sizes = 0, 0, Counter[str](), Counter[str]()

    with writing_report(report, store.url, runs, policy) as write:

        def found(some: Sequence[Doomed]) -> None:
            for one in some:
                write(one._asdict())
                counts[one.reason] += 1
                sizes[one.reason] += one.bytes

        for one in runs:
            flow = find_garbage(one, policy, found, now=time.time(), kept=_after_listing(files))
            looked = watched(flow, store, f"looking at {one}")
            rows, young = rows + looked.staged_rows, young + looked.young_rows
    kinds = {reason: {"objects": counts[reason], "bytes": sizes[reason]} for reason in sorted(counts)}
    return {"report": str(report), "runs": len(runs), "staged_rows": rows, "young_rows": young, "found": kinds}


def _remove(store: Store, report: Report, files: Sequence[Path]) -> int:
    from gym_objstore.garbage import remove_garbage

    removed = 0
    for one in report.runs:
        flow = remove_garbage(one, report.policy, report.reported, now=time.time(), kept=_after_listing(files))
        removed += watched(flow, store, f"removing of {one}")
    return removed


def _after_listing(files: Sequence[Path]) -> Callable[[], Collection[str]]:
    """Return what reads the lists of checkpoints, once, when it is called first: one saved meanwhile counts too."""
    read: list[set[str]] = []

    def kept() -> Collection[str]:
        if not read:
            read.append(listed_by(files))
        return read[0]

    return kept


def _print(document: dict[str, Any], report: Report) -> None:
    if "found" in document:
        rows = [(reason, one["objects"], one["bytes"]) for reason, one in document["found"].items()]
        print_table("may go", ["reason", "objects", "bytes"], rows)
        say(f"{document['staged_rows']} staged rows, {document['young_rows']} of them too young to judge")
    if "removed" in document:
        say(f"{document['removed']} objects removed of {len(report.reported)} reported in {document['report']}")
    else:
        say(
            f"nothing was changed; {len(report.reported)} objects are named in {document['report']}, pass it to --apply"
        )
