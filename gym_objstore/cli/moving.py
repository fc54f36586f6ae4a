# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``import`` and ``export``: between Gym's files in a folder and a run in the bucket, and calls as Parquet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gym_objstore.cli.look import no_rollout
from gym_objstore.cli.options import Json, Run, on_a_store, require_known_run, require_run
from gym_objstore.cli.printing import print_json, say, tracked
from gym_objstore.errors import Invalid, ObjstoreError
from gym_objstore.flow import run
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions

if TYPE_CHECKING:
    from gym_objstore.reading import Rollout
    from gym_objstore.store import Store

_NAMES_SHOWN = 5


class Format(StrEnum):
    """What a run is written as."""

    GYM = "gym"
    PARQUET = "parquet"


def _total(function: Callable[[Any], Counter[str]], items: Sequence[Any], doing: str) -> Counter[str]:
    """Return what a function counts over all items, a few of them at a time."""
    from gym_objstore.reading import overlapped

    total: Counter[str] = Counter()
    for found in tracked(overlapped(function, items), doing, len(items)):
        total.update(found)
    return total


@on_a_store
def import_(
    place: StoreOptions,
    folder: Annotated[Path, typer.Argument(help="The folder with <rollout>.capture.jsonl, .tokens.jsonl, ...")],
    run_id: Run = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only look, store nothing.")] = False,  # noqa: FBT002
    json: Json = False,  # noqa: FBT002
) -> None:
    """Store Gym's capture, token and lineage files in a run. Repeat it to go on, or to add what is new."""
    from gym_objstore.gym_folder import find_files
    from gym_objstore.gym_import import bring, look
    from gym_objstore.gym_pieces import RolloutFiles
    from gym_objstore.importing import announce

    run_id = require_run(run_id)
    found = find_files(folder)
    store = open_store(place)
    sources = [RolloutFiles(run_id, rollout_id, files) for rollout_id, files in found.rollouts.items()]
    seen = _total(partial(look, store=store), sources, "looking")
    done: Counter[str] = Counter()
    if not dry_run:
        run(announce(run_id, sorted({family for one in sources for family in one.families()})), store)
        done = _total(partial(bring, store=store), sources, "importing")
    summary = _import_summary(run_id, seen, done, dry_run=dry_run)
    summary |= {"rollouts": len(sources), "foreign_files": list(found.foreign)}
    if json:
        print_json(summary)
    else:
        _say_import(summary, dry_run=dry_run)


def _import_summary(run_id: str, seen: Counter[str], done: Counter[str], *, dry_run: bool) -> dict[str, Any]:
    names = ("lines", "objects", "damaged_captures", "unfinished_lines", "without_counterpart", "retired")
    return {
        "run_id": run_id,
        "dry_run": dry_run,
        **{name: seen[name] for name in names},
        "already_there": seen["objects"] - seen["missing"],
        "missing": seen["missing"],
        "stored": done["stored"],
        "verified": done["verified"],
    }


def _say_import(found: dict[str, Any], *, dry_run: bool) -> None:
    say(f"{found['rollouts']} rollouts, {found['lines']} lines, {found['objects']} objects")
    if dry_run:
        say(f"{found['missing']} would be stored, {found['already_there']} are there; nothing was changed")
    else:
        say(
            f"{found['stored']} stored, {found['already_there']} were there, {found['verified']} read back and verified"
        )
    notes = {
        "damaged_captures": "capture lines are no JSON object: stored as they are, readers count them as damaged",
        "unfinished_lines": "files end in a line without an end, whose writer was interrupted",
        "without_counterpart": "lineage rows without a staged call have no counterpart in a ledger and were left out",
        "retired": "token captures or ledgers are retired in the files, and so in the bucket",
    }
    for name, note in notes.items():
        if found[name]:
            say(f"{found[name]} {note}")
    if foreign := found["foreign_files"]:
        more = f" and {len(foreign) - _NAMES_SHOWN} more" if len(foreign) > _NAMES_SHOWN else ""
        say(f"{len(foreign)} foreign files were left alone: {', '.join(foreign[:_NAMES_SHOWN])}{more}")


@on_a_store
def export(
    place: StoreOptions,
    to: Annotated[Path, typer.Option("--to", help="The folder to write into; made if it is absent.")],
    run_id: Run = None,
    rollout: Annotated[list[str] | None, typer.Option("--rollout", help="Only this rollout; may be repeated.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="Gym's files, or calls as Parquet.")] = Format.GYM,
    payloads: Annotated[bool, typer.Option("--payloads", help="Requests and responses, too.")] = False,  # noqa: FBT002
    json: Json = False,  # noqa: FBT002
) -> None:
    """Write a run as Gym's files, or its calls as Parquet. Exits with 1 if something could not be written as it is."""
    run_id = require_run(run_id)
    if payloads and format_ is not Format.PARQUET:
        raise Invalid("--payloads is for --format parquet; Gym's files always have them", kind="bad_option")
    if to.exists() and not to.is_dir():
        raise Invalid(f"not a folder, to={to}", kind="bad_option", hint="name a folder that is empty or absent")
    store = open_store(place)
    require_known_run(run_id, store)
    try:
        to.mkdir(parents=True, exist_ok=True)
        if format_ is Format.PARQUET:
            summary = _to_parquet(store, run_id, rollout, to=to, payloads=payloads)
        else:
            summary = _to_files(store, run_id, rollout, to=to)
    except OSError as error:
        if isinstance(error, ObjstoreError):  # some are both
            raise
        hint = "repeat the command once it can"
        raise Invalid(f"the folder cannot be written, to={to}, error={error}", kind="bad_option", hint=hint) from error
    if json:
        print_json(summary)
    else:
        say(", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in summary.items() if value))
    raise typer.Exit(int(bool(summary["damaged_captures"] or summary["left_out"] or summary["unnamed_rollouts"])))


def _to_files(store: Store, run_id: str, chosen: list[str] | None, *, to: Path) -> dict[str, Any]:
    from gym_objstore.gym_export import FAMILIES, export_rollout
    from gym_objstore.gym_folder import is_gym_id, sync_folder
    from gym_objstore.reading import Named, named_rollouts

    known, hashed = named_rollouts(store, run_id, FAMILIES) if chosen is None else Named(chosen, [])
    named = [one for one in known if is_gym_id(one)]

    def exported(rollout_id: str) -> Counter[str]:
        written = export_rollout(run_id, rollout_id, to, store=store)
        if chosen is not None and not written["files"]:
            raise no_rollout(run_id, rollout_id)
        return written

    done = _total(exported, named, "exporting")
    sync_folder(to)
    names = ("files", "unchanged", "bytes", "captures", "damaged_captures", "entries", "rows", "left_out", "retired")
    unnamed = [one for one in known if not is_gym_id(one)]
    return {
        "run_id": run_id,
        "format": "gym",
        "folder": str(to),
        "rollouts": len(named),
        **{name: done[name] for name in names},
        "unnamed_rollouts": [*unnamed, *hashed],
    }


def _to_parquet(store: Store, run_id: str, chosen: list[str] | None, *, to: Path, payloads: bool) -> dict[str, Any]:
    from gym_objstore import parquet
    from gym_objstore.reading import Named, named_rollouts, open_rollout

    known, hashed = named_rollouts(store, run_id) if chosen is None else Named(chosen, [])

    def opened() -> Iterator[Rollout]:
        for one in tracked(known, "exporting", len(known)):
            found = open_rollout(store, run_id, one)
            if chosen is not None and not (found.names or found.incomplete):
                raise no_rollout(run_id, one)
            yield found

    path = to / parquet.FILE_NAME
    written = parquet.write_calls(path, opened(), payloads=payloads)
    place = {"run_id": run_id, "format": "parquet", "file": str(path), "rollouts": len(known)}
    return {**place, **written._asdict(), "left_out": 0, "unnamed_rollouts": hashed}
