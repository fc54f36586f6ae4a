# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``sweep``: find what nothing refers to any more and, when told so, remove it."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gym_objstore.cli.options import Json, Run, on_a_store, require_known_run, require_run
from gym_objstore.cli.printing import print_json, print_table, say, tracked
from gym_objstore.errors import Invalid
from gym_objstore.flow import run
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gym_objstore.store import Store
    from gym_objstore.sweeping import Orphans, Rest

BATCH = 1000
"""Objects between two steps of the progress bar: one bulk removal."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

Delete = Annotated[bool, typer.Option("--delete", help="Remove what was found; without it nothing is changed.")]
Grace = Annotated[str, typer.Option("--grace", help="Leave alone what is younger: 90s, 30m, 24h, 7d.")]
Checkpoint = Annotated[
    list[Path] | None,
    typer.Option(
        "--checkpoint",
        help="A file with one staging key or rollout id in each line, which a checkpoint may restore. Repeatable.",
        show_default=False,
    ),
]


@on_a_store
def sweep(
    place: StoreOptions,
    grace: Grace = "24h",
    checkpoint: Checkpoint = None,
    delete: Delete = False,  # noqa: FBT002
    run_id: Run = None,
    json: Json = False,  # noqa: FBT002
) -> None:
    """Find staged rows that nothing refers to and late writes of retired rollouts; remove them with --delete."""
    from gym_objstore.sweeping import find_orphans, unlisted

    files, period, wanted = checkpoint or [], seconds(grace), require_run(run_id)
    kept = _kept(files)
    store = open_store(place)
    require_known_run(wanted, store)
    found = run(find_orphans(wanted, now=time.time(), grace=period), store)
    # A checkpoint that was saved while the store was listed counts too.
    kept |= _kept(files)
    removed = _remove(found, kept, store) if delete else []
    rests = unlisted(found.rests, kept)
    if json:
        print_json(_document(found, rests, removed))
        return
    shown = removed if delete else rests
    print_table("removed" if delete else "may be removed", ["kind", "bytes", "key"], map(_row, shown))
    say(_summary(found, rests, removed if delete else None))


def seconds(grace: str) -> float:
    """Return a period such as ``24h`` in seconds."""
    found = re.fullmatch(r"(\d+)([smhd])", grace)
    if found is None:
        raise Invalid(f"not a period, grace={grace}", kind="bad_option", hint="write 90s, 30m, 24h or 7d")
    return float(int(found[1]) * _SECONDS[found[2]])


def _kept(files: Sequence[Path]) -> set[str]:
    names: set[str] = set()
    for file in files:
        try:
            lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            reason = f"nothing is swept, because the list of a checkpoint cannot be read, file={file}, error={error}"
            raise Invalid(reason, kind="unreadable_list") from error
        if not lines:
            reason = f"nothing is swept, because the list of a checkpoint is empty, file={file}"
            raise Invalid(reason, kind="unreadable_list", hint="write it again, or leave the option out")
        names.update(lines)
    return names


def _remove(found: Orphans, kept: set[str], store: Store) -> list[Rest]:
    from gym_objstore.sweeping import remove_orphans

    batches = [found.rests[start : start + BATCH] for start in range(0, len(found.rests), BATCH)]
    removed: list[Rest] = []
    for batch in tracked(batches, "removing"):
        removed += run(remove_orphans(found._replace(rests=batch), kept), store)
    return removed


def _row(rest: Rest) -> tuple[str, int, str]:
    return rest.kind, rest.meta.size, rest.meta.key


def _document(found: Orphans, rests: Sequence[Rest], removed: Sequence[Rest]) -> dict[str, object]:
    return {
        "staged_rows": found.staged_rows,
        "young_rows": found.young_rows,
        "kept_by_checkpoints": len(found.rests) - len(rests),
        "found": [{"kind": kind, "bytes": size, "key": key} for kind, size, key in map(_row, rests)],
        "removed": [rest.meta.key for rest in removed],
    }


def _summary(found: Orphans, rests: Sequence[Rest], removed: Sequence[Rest] | None) -> str:
    size = sum(rest.meta.size for rest in rests)
    text = f"{found.staged_rows} staged rows, {found.young_rows} of them too young to judge; "
    text += f"{len(rests)} objects of {size} bytes have no referrer"
    listed = len(found.rests) - len(rests)
    text += f", {listed} more are kept by a checkpoint" if listed else ""
    if removed is None:
        return f"{text}; nothing was changed, pass --delete to remove them"
    return f"{text}; {len(removed)} removed"
