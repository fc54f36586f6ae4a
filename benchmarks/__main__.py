# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Measure the package beside its rivals and judge every target: ``python -m benchmarks [WORKLOAD...]``.

Ratios within one run count, not absolutes: server, rivals and package share the machine. Without ``--url`` a SeaweedFS
is started; with one, credentials and endpoint come from the environment. A latency is added each way by a relay before
the server, which obstore, boto3 and everything else passes alike. Ends with 0 whatever the verdicts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.places import FULL, QUICK, place
from benchmarks.report import as_json, judged, machine, markdown, medians
from benchmarks.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Row, Workload
    from benchmarks.places import Place, Sizes


def measured(workloads: Sequence[Workload], where: Place) -> list[tuple[Workload, list[Row]]]:
    """Return the rows of the workloads, each printed as it comes."""
    from rich.console import Console
    from rich.table import Table

    console, found = Console(width=None if sys.stdout.isatty() else 160), []
    for workload in workloads:
        console.print(f"[bold]{workload.name}[/]: {workload.target}", highlight=False)
        table = Table("case", "medians", "judged")
        rows = []
        with console.status(f"{workload.name} ..."):
            for row in workload.rows(where):
                rows.append(row)
                shown = as_json({}, (), [(workload, [row])])["workloads"][0]["rows"][0]
                table.add_row(row.case, medians(shown), judged(shown).replace("MISSED", "[red]MISSED[/]"))
        console.print(table)
        found.append((workload, rows))
    return found


def run(workloads: Sequence[Workload], sizes: Sizes, url: str, latencies: Sequence[float]) -> dict[str, object]:
    """Measure workloads at a place and return the report."""
    about = machine()
    with place(url, sizes, latencies) as where:
        found = measured(workloads, where)
    return as_json(about, os.getloadavg(), found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [one.name for one in WORKLOADS]
    parser.add_argument("workload", nargs="*", help=f"of {', '.join(names)}; all of them without any")
    parser.add_argument("--quick", action="store_true", help="small sizes, under two minutes on two idle cores")
    parser.add_argument("--url", default="", help="a bucket or folder of your own instead of a SeaweedFS")
    parser.add_argument("--latency", default="", help="milliseconds each way, as 0,5,30")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the report as Markdown")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for; 2 for a workload that there is not."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    known = {one.name: one for one in WORKLOADS}
    if unknown := [name for name in asked.workload if name not in known]:
        parser.error(f"no such workload, workload={', '.join(unknown)}; there are {', '.join(known)}")
    latencies = [float(one) for one in (asked.latency or ("0,30" if asked.quick else "0,5,30")).split(",")]
    chosen = [known[name] for name in asked.workload] or list(WORKLOADS)
    report = run(chosen, QUICK if asked.quick else FULL, asked.url, latencies)
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if asked.markdown:
        asked.markdown.write_text(markdown(report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
