# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``du``: what a store or a run holds, and what that costs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gym_objstore.cli.options import Json, Run, on_a_store, read_table, require_known_run
from gym_objstore.cli.printing import print_json, print_table, say, watched
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gym_objstore.usage import Prices, Used

PriceTable = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        help="A JSON or TOML file with storage_gb_month, put_million, get_million in dollars; "
        "without it those of S3 Standard: 0.023, 5.00, 0.40.",
        show_default=False,
    ),
]


@on_a_store
def du(
    place: StoreOptions,
    prices: PriceTable = None,
    run_id: Run = None,
    json: Json = False,  # noqa: FBT002
) -> None:
    """Count objects and bytes by run, family, state and age, with what they cost a month; one LIST per 1,000 objects.

    States: live; consumed (a checkpoint has learned from it); retired (the fences of rollouts that ended); late
    (behind a fence, for gc); run (descriptors and markers of runs).
    """
    from gym_objstore.usage import Prices, usage

    table = Prices.of(read_table(prices) if prices else {})
    store = open_store(place)
    used = watched(usage(run_id, now=time.time()), store, "counting")
    if run_id and not used:
        require_known_run(run_id, store)
    total = _costs(used, table)
    if json:
        print_json({"url": store.url, "prices": table._asdict(), "used": [_row(one, table) for one in used], **total})
        return
    where = f"run {run_id} in {store.url}" if run_id else store.url
    rows = [(*one[:5], _human(one.bytes), f"{table.monthly(one.bytes):.4f}") for one in used]
    print_table(f"usage of {where}", ["run", "family", "state", "age", "objects", "bytes", "$/month"], rows)
    say(
        f"{total['objects']} objects, {_human(total['bytes'])}: ${total['usd_per_month']:.2f} a month; "
        f"writing them cost ${total['usd_written']:.2f}, reading each once costs ${total['usd_read']:.2f}"
    )


def _costs(used: Sequence[Used], prices: Prices) -> dict[str, Any]:
    objects, size = sum(one.objects for one in used), sum(one.bytes for one in used)
    return {
        "objects": objects,
        "bytes": size,
        "usd_per_month": prices.monthly(size),
        "usd_written": prices.written(objects),
        "usd_read": prices.read(objects),
    }


def _row(one: Used, prices: Prices) -> dict[str, Any]:
    return {**one._asdict(), "usd_per_month": prices.monthly(one.bytes)}


def _human(size: int) -> str:
    """Return a size in the unit that leaves it readable."""
    value, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:  # noqa: PLR2004 - of the units
        value /= 1024
        units.pop(0)
    return f"{value:.1f} {units[0]}" if units[0] != "B" else f"{size} B"
