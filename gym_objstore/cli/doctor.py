# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``doctor``: whether a store can be used from here, and what to do if not."""

from __future__ import annotations

import asyncio

import typer

from gym_objstore.cli.options import Json, on_a_store
from gym_objstore.cli.printing import print_json, print_table, say
from gym_objstore.diagnosis import Probe, diagnose, verdict
from gym_objstore.errors import ObjstoreError
from gym_objstore.store.description import describe
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import Setting, StoreOptions


@on_a_store
def doctor(
    options: StoreOptions,
    json: Json = False,  # noqa: FBT002
) -> None:
    """Try a store: reach, permissions, visibility under concurrency, clocks, versioning. Exits with 1 if it failed."""
    probes: list[Probe] = []

    async def examine() -> None:
        store = open_store(options)
        probes.extend([probe async for probe in diagnose(store, options)])
        await store.close_async()

    asyncio.run(examine())
    found, settings = verdict(probes), _settings(options)
    if json:
        document = {
            "verdict": found,
            "probes": [one._asdict() for one in probes],
            "settings": [one._asdict() for one in settings],
        }
        print_json(document)
    else:
        print_table("effective settings", ["setting", "value", "source"], settings)
        print_table(f"probes of {options.url}", ["probe", "verdict", "detail", "next step"], probes)
        say(f"verdict: {found}")
    raise typer.Exit(int(found == "failed"))


def _settings(options: StoreOptions) -> list[Setting]:
    """Return every setting with its source; on S3, with what the AWS configuration adds."""
    found = {one.name: one for one in options.describe()}
    if options.location.scheme == "s3":
        try:
            found.update({one.name: one for one in describe(options)})
        except ObjstoreError as error:
            found["identity"] = Setting("identity", "unknown", error.message)
    return list(found.values())
