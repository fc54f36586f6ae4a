# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``spill``: what this machine keeps because a store could not take it."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from gym_objstore.cli.options import Json, on_a_store
from gym_objstore.cli.printing import print_json, print_table, say, tracked
from gym_objstore.errors import Retired
from gym_objstore.flow import run
from gym_objstore.settings import SPILL_VARIABLE, default_spill_dir
from gym_objstore.spill import Spill, forget
from gym_objstore.spill import replay as replay_flow
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions


@on_a_store
def spill(
    place: StoreOptions,
    replay: Annotated[bool, typer.Option("--replay", help="Store the kept writes now.")] = False,  # noqa: FBT002
    spill_dir: Annotated[
        str | None, typer.Option("--spill-dir", envvar=SPILL_VARIABLE, help="The local folder.")
    ] = None,
    json: Json = False,  # noqa: FBT002
) -> None:
    """List the writes that wait on this machine's disk for a store, or replay them."""
    store = open_store(place)
    kept = list(Spill(spill_dir or default_spill_dir(), store.url).kept())
    outcomes = ["kept"] * len(kept)
    if replay:
        for index, one in enumerate(tracked(kept, "replaying")):
            outcomes[index] = "stored"
            try:
                run(replay_flow(one.put), store)
            except Retired:
                outcomes[index] = "discarded: the rollout is retired"
            forget(one.path)
    rows = [
        (one.put.key, len(one.put.body), time.time() - one.at, outcome)
        for one, outcome in zip(kept, outcomes, strict=True)
    ]
    if json:
        print_json([dict(zip(("key", "bytes", "age_seconds", "outcome"), row, strict=True)) for row in rows])
    elif not rows:
        say(f"nothing is kept for {store.url}")
    else:
        print_table(
            f"kept for {store.url}",
            ["key", "bytes", "age s", "outcome"],
            [(k, b, f"{a:.0f}", o) for k, b, a, o in rows],
        )
