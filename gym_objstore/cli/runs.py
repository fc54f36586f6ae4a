# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``runs``: create, list, close and delete whole runs."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from gym_objstore.cli.options import Checkpoint, Json, listed_by, on_a_store, read_table, require_known_run
from gym_objstore.cli.printing import print_json, print_table, say, tracked, watched
from gym_objstore.errors import Invalid
from gym_objstore.flow import run
from gym_objstore.settings import RUN_VARIABLE
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gym_objstore.store import Store

app = typer.Typer(
    name="runs", help="Create, list, close and delete whole runs.", no_args_is_help=True, add_completion=False
)

RunId = Annotated[str, typer.Argument(metavar="RUN", envvar=RUN_VARIABLE, help="The run.", show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting", help="NAME=VALUE; a value that is JSON is taken as such. Repeatable.", show_default=False
    ),
]
FromFile = Annotated[Path | None, typer.Option("--from", help="A JSON or TOML file of settings.", show_default=False)]
Sizes = Annotated[bool, typer.Option("--bytes", help="Also count objects and bytes: one LIST per 1,000 objects.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command()
@on_a_store
def create(
    place: StoreOptions,
    run_id: RunId,
    setting: Settings = None,
    from_file: FromFile = None,
    json: Json = False,  # noqa: FBT002
) -> None:
    """Create a run with its settings. The same again is no error; exits with 8 if it exists with other settings."""
    from gym_objstore.runs import create_run

    settings = {**(read_table(from_file) if from_file else {}), **dict(map(_setting, setting or ()))}
    digest = run(create_run(run_id, settings), open_store(place))
    if json:
        print_json({"run_id": run_id, "descriptor": digest, "settings": settings})
    else:
        say(f"run {run_id} is there with these {len(settings)} settings, descriptor={digest[:16]}")


@app.command("list")
@on_a_store
def list_(
    place: StoreOptions,
    sizes: Sizes = False,  # noqa: FBT002
    json: Json = False,  # noqa: FBT002
) -> None:
    """List the runs: when they were created and closed, their families and settings, with --bytes their size."""
    from gym_objstore.checking import runs

    store = open_store(place)
    found = run(runs(), store)
    counted = _counted(store) if sizes else {}
    rows = [_row(one, found[one], store) | counted.get(one, {}) for one in tracked(list(found), "looking at runs")]
    if json:
        print_json(rows)
        return
    columns = ["run", "created", "closed", "families", "settings", *(["objects", "bytes"] if sizes else [])]
    print_table(f"runs in {store.url}", columns, map(_shown, rows))


@app.command()
@on_a_store
def close(
    place: StoreOptions,
    run_id: RunId,
    json: Json = False,  # noqa: FBT002
) -> None:
    """Say that nobody writes to a run any more, so that writers that ask are refused and gc may let it expire."""
    from gym_objstore.runs import close_run

    store = open_store(place)
    require_known_run(run_id, store)
    now = run(close_run(run_id), store)
    if json:
        print_json({"run_id": run_id, "closed_now": now})
    else:
        say(f"run {run_id} is closed" if now else f"run {run_id} was closed before")


@app.command()
@on_a_store
def delete(
    place: StoreOptions,
    run_id: RunId,
    checkpoint: Checkpoint = None,
    yes: Yes = False,  # noqa: FBT002
    json: Json = False,  # noqa: FBT002
) -> None:
    """Remove everything of a run, fences last, but for what the list of a --checkpoint names. Repeat it to finish.

    Only once nothing writes to the run or reads it. Without --yes the run's id must be typed.
    """
    from gym_objstore.run_removal import remove_run, spares

    spared = spares(listed_by(checkpoint or []))
    store = open_store(place)
    require_known_run(run_id, store)
    if not yes and typer.prompt(f"everything of run {run_id} in {store.url} goes; type its id", err=True) != run_id:
        raise Invalid(f"not the id of the run, nothing was deleted, run_id={run_id}", kind="bad_option")
    removed = watched(remove_run(run_id, doomed=lambda meta: not spared(meta)), store, f"deleting {run_id}")
    if json:
        print_json({"run_id": run_id, "removed": removed})
    else:
        say(f"{removed} objects of run {run_id} removed")


def _setting(text: str) -> tuple[str, Any]:
    name, given, value = text.partition("=")
    if not name or not given:
        raise Invalid(f"not a setting, setting={text}", kind="bad_option", hint="write NAME=VALUE")
    try:
        return name, orjson.loads(value)
    except orjson.JSONDecodeError:
        return name, value


def _row(run_id: str, families: Sequence[str], store: Store) -> dict[str, Any]:
    from gym_objstore.runs import describe_run

    described = run(describe_run(run_id), store)
    return {
        "run_id": run_id,
        "created": described.created,
        "closed": described.closed,
        "families": list(families),
        "settings": [one.settings for one in described.descriptors],
        "conflict": described.conflict,
    }


def _counted(store: Store) -> dict[str, dict[str, int]]:
    from gym_objstore.usage import usage

    objects, sizes = Counter[str](), Counter[str]()
    for one in watched(usage(now=time.time()), store, "counting"):
        objects[one.run_id] += one.objects
        sizes[one.run_id] += one.bytes
    return {one: {"objects": objects[one], "bytes": sizes[one]} for one in objects}


def _shown(row: dict[str, Any]) -> tuple[object, ...]:
    settings = "; ".join(" ".join(f"{name}={value}" for name, value in one.items()) for one in row["settings"])
    conflict = "CONFLICT: " if row["conflict"] else ""
    sizes = (row.get("objects", 0), row.get("bytes", 0)) if "objects" in row else ()
    return (
        row["run_id"],
        _at(row["created"]),
        _at(row["closed"]),
        " ".join(row["families"]),
        conflict + settings,
        *sizes,
    )


def _at(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(" ", "seconds")
