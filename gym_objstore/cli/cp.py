# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``cp``: a run to another bucket or folder."""

from __future__ import annotations

from typing import Annotated

import typer

from gym_objstore.cli.options import Json, on_a_store, require_known_run
from gym_objstore.cli.printing import print_json, print_table, say, watched
from gym_objstore.errors import Invalid
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions

_TO = "Where the copy goes"

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run to copy.", show_default=False)]
To = Annotated[str, typer.Option("--to", help="The url to copy to.", show_default=False, rich_help_panel=_TO)]
ToRun = Annotated[
    str | None, typer.Option("--to-run-id", help="The copy's run id; the same without it.", rich_help_panel=_TO)
]
ToEndpoint = Annotated[
    str | None,
    typer.Option(
        "--to-endpoint", help="Its S3-compatible server; without it that of the variables.", rich_help_panel=_TO
    ),
]
ToRegion = Annotated[str | None, typer.Option("--to-region", help="Its bucket's region.", rich_help_panel=_TO)]
ToProfile = Annotated[str | None, typer.Option("--to-profile", help="Its AWS profile.", rich_help_panel=_TO)]


@on_a_store
def cp(
    place: StoreOptions,
    run_id: RunId,
    to: To,
    to_run_id: ToRun = None,
    to_endpoint: ToEndpoint = None,
    to_region: ToRegion = None,
    to_profile: ToProfile = None,
    json: Json = False,  # noqa: FBT002
) -> None:
    """Copy a run, each object verified; what is there already is skipped, so repeating finishes. Exits with 1 on loss.

    While it runs, what is not whole in the copy looks retired or incomplete there. Nothing may write to, train on
    or sweep the copy before it has ended, and nothing may delete rollouts of the source.
    """
    from gym_objstore.copying import copy_run
    from gym_objstore.store.joined_store import JoinedStore

    goal = to_run_id or run_id
    source = open_store(place)
    there = StoreOptions.of(url=to, endpoint=to_endpoint, region=to_region, profile=to_profile)
    target = open_store(there)
    if (source.url, run_id, place.endpoint) == (target.url, goal, there.endpoint):
        raise Invalid("a run cannot be copied onto itself", kind="bad_option", hint="pass another --to or --to-run-id")
    require_known_run(run_id, source)
    both = JoinedStore({"source": source, "target": target})
    copied = watched(copy_run(run_id, goal), both, f"copying {run_id}")
    if json:
        failures = [one._asdict() for one in copied.failures]
        print_json({"run_id": run_id, "to": target.url, "to_run_id": goal, **copied._asdict(), "failures": failures})
    else:
        if copied.failures:
            print_table("not copied", ["key", "reason"], copied.failures)
        say(
            f"{copied.objects} objects of {copied.bytes} bytes copied to {target.url} as run {goal}, "
            f"{copied.present} were there, {copied.failed} failures"
        )
    raise typer.Exit(int(copied.failed > 0))
