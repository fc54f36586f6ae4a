# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``doctor``: whether a store can be used from here, as whom, and what to do if not."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from gym_objstore.cli.options import Json, Run, on_a_store
from gym_objstore.cli.printing import print_json, print_table, say
from gym_objstore.errors import ObjstoreError
from gym_objstore.settings import SPILL_VARIABLE, default_spill_dir
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import Setting, StoreOptions

if TYPE_CHECKING:
    from gym_objstore.diagnosis import Probe
    from gym_objstore.preflight import Preflight

RETRY_SECONDS = 10.0
"""How long one check goes on trying: whoever waits for a verdict can run it again."""


class Identity(StrEnum):
    """The identities of ``preflight.JOBS``."""

    MODEL_SERVER = "model-server"
    INFERENCE_WORKER = "inference-worker"
    TRAINER = "trainer"
    SWEEPER = "sweeper"
    VIEWER = "viewer"


@on_a_store
def doctor(
    options: StoreOptions,
    identity: Annotated[
        Identity | None, typer.Option("--identity", help="Try exactly what this identity needs, and nothing else.")
    ] = None,
    run_id: Run = None,
    spill_dir: Annotated[
        str | None, typer.Option("--spill-dir", envvar=SPILL_VARIABLE, help="The local folder.")
    ] = None,
    json: Json = False,  # noqa: FBT002
) -> None:
    """Try a store: reach, permissions, clocks, versioning; without --identity also visibility under concurrency.

    With --identity, what the identity's policy must allow is tried without harm, and --run-id is looked at, too.
    Exits with 0 if nothing failed, with 1 if something did; --json prints one document whose "ok" says the same.
    """
    import asyncio

    from gym_objstore.diagnosis import verdict
    from gym_objstore.preflight import Preflight

    spill = spill_dir or str(default_spill_dir())
    plan = Preflight(identity.value, options, run_id, spill) if identity else None
    checks = asyncio.run(_examine(options, plan))
    ok, settings = verdict(checks) != "failed", _settings(options)
    if json:
        print_json(
            {
                "ok": ok,
                "identity": identity.value if identity else "",
                "checks": [_plain(one) for one in checks],
                "settings": [one._asdict() for one in settings],
            }
        )
    else:
        print_table("effective settings", ["setting", "value", "source"], settings)
        rows = [(one.name, one.verdict, one.detail, one.hint) for one in checks]
        print_table(f"checks of {options.url}", ["check", "verdict", "detail", "next step"], rows)
        say(f"verdict: {verdict(checks)}")
    raise typer.Exit(int(not ok))


async def _examine(options: StoreOptions, plan: Preflight | None) -> list[Probe]:
    from gym_objstore.diagnosis import diagnose
    from gym_objstore.preflight import fly

    store = open_store(replace(options, retry_seconds=min(options.retry_seconds, RETRY_SECONDS)))
    try:
        return [probe async for probe in (fly(plan, store) if plan else diagnose(store, options))]
    finally:
        await store.close_async()


def _plain(check: Probe) -> dict[str, object]:
    """Return a check for machines. ``kind`` is an error's, or the verdict where there was none."""
    return {
        "name": check.name,
        "ok": check.verdict != "failed",
        "kind": check.kind or check.verdict,
        "detail": check.detail,
        "hint": check.hint,
    }


def _settings(options: StoreOptions) -> list[Setting]:
    """Return every setting with its source; on S3, with what the AWS configuration adds."""
    found = {one.name: one for one in options.describe()}
    if options.location.scheme == "s3":
        from gym_objstore.store.description import describe

        found["bucket"] = Setting("bucket", options.location.bucket, found["url"].source)
        try:
            found.update({one.name: one for one in describe(options)})
        except ObjstoreError as error:
            found["identity"] = Setting("identity", "unknown", error.message)
    return list(found.values())
