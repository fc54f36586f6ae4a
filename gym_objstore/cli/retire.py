# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``retire`` and ``delete``: the end of rollouts, in batches that may be interrupted and repeated."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import typer

from gym_objstore import retirement
from gym_objstore.cli.options import Json, Run, on_a_store, require_known_run, require_run
from gym_objstore.cli.printing import print_json, say, tracked
from gym_objstore.errors import Invalid
from gym_objstore.flow import Flow, run
from gym_objstore.ids import require_ids
from gym_objstore.retirement import Removal
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions

if TYPE_CHECKING:
    from gym_objstore.store import Store

BATCH = 256
"""Rollouts between two steps of the progress bar; an interruption costs at most one batch of work."""


class Family(StrEnum):
    """Which records of a rollout a command ends."""

    TOKENS = "tokens"
    LEDGER = "ledger"
    BOTH = "both"


_FAMILIES: dict[Family, tuple[str, ...]] = {
    Family.TOKENS: ("tokens",),
    Family.LEDGER: ("ledger",),
    Family.BOTH: ("tokens", "ledger"),
}

End: TypeAlias = Callable[[str, str, Sequence[str]], Flow[Removal]]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ROLLOUT_ID...", help="The rollouts.", show_default=False)]
FromFile = Annotated[
    str | None, typer.Option("--from-file", help="A file with one rollout id in each line; - for standard input.")
]
Which = Annotated[Family, typer.Option("--family", help="Which records; staged rows and captures stay.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class Ending(NamedTuple):
    """One command: what it does to which rollouts of which run."""

    verb: str
    end: End
    run_id: str
    families: tuple[str, ...]
    rollout_ids: tuple[str, ...]

    def batches(self) -> list[tuple[str, ...]]:
        """Return the rollouts in the portions that are ended together."""
        return [self.rollout_ids[start : start + BATCH] for start in range(0, len(self.rollout_ids), BATCH)]


@on_a_store
def retire(
    place: StoreOptions,
    rollout_ids: Ids = None,
    from_file: FromFile = None,
    family: Which = Family.BOTH,
    yes: Yes = False,  # noqa: FBT002
    run_id: Run = None,
    json: Json = False,  # noqa: FBT002
) -> None:
    """Fence rollouts and remove what they hold: later writes fail. Repeat it to finish an interrupted one."""
    store = open_store(place)
    found = _ids(rollout_ids, from_file, asking=not yes)
    ending = Ending("retire", retirement.retire, require_run(run_id), _FAMILIES[family], found)
    _end(ending, store, yes=yes, json=json)


@on_a_store
def delete(
    place: StoreOptions,
    rollout_ids: Ids = None,
    from_file: FromFile = None,
    family: Which = Family.BOTH,
    yes: Yes = False,  # noqa: FBT002
    run_id: Run = None,
    json: Json = False,  # noqa: FBT002
) -> None:
    """Remove rollouts and their fences, so that their ids can be used again. Only once nothing writes to them."""
    store = open_store(place)
    found = _ids(rollout_ids, from_file, asking=not yes)
    ending = Ending("delete", retirement.delete_rollouts, require_run(run_id), _FAMILIES[family], found)
    _end(ending, store, yes=yes, json=json)


def _ids(rollout_ids: Sequence[str] | None, from_file: str | None, *, asking: bool) -> tuple[str, ...]:
    """Return the distinct rollout ids that a command names, all of them checked."""
    if from_file == "-" and asking:
        raise Invalid("standard input holds the ids and cannot answer a question", kind="bad_option", hint="pass --yes")
    found = require_ids([*(rollout_ids or ()), *_lines(from_file)], "a rollout id")
    if not found:
        raise Invalid("no rollout was named", kind="bad_option", hint="pass rollout ids or --from-file")
    return found


def _lines(from_file: str | None) -> list[str]:
    if from_file is None:
        return []
    try:
        text = sys.stdin.read() if from_file == "-" else Path(from_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"the file of rollout ids cannot be read, file={from_file}, error={error}") from error
    return [line for line in text.split("\n") if line.strip()]


def _end(ending: Ending, store: Store, *, yes: bool, json: bool) -> None:
    require_known_run(ending.run_id, store)
    count, families = len(ending.rollout_ids), " and ".join(ending.families)
    if not yes:
        question = f"{ending.verb} {families} of {count} rollouts of run {ending.run_id} in {store.url}?"
        typer.confirm(question, abort=True, err=True)
    removed = _play(ending, store)
    absent = [one for one in ending.rollout_ids if one not in removed]
    if json:
        print_json({"run_id": ending.run_id, "removed": list(removed), "absent": absent})
    else:
        say(f"{ending.verb} of {count} rollouts: {len(removed)} had objects, {len(absent)} had none")


def _play(ending: Ending, store: Store) -> dict[str, None]:
    """End all batches and return the rollouts that had objects in any family, in the order given."""
    removed: dict[str, None] = {}
    done = 0
    try:
        for batch in tracked(ending.batches(), f"{ending.verb} rollouts"):
            ended = [run(ending.end(family, ending.run_id, batch), store) for family in ending.families]
            present = {one for removal in ended for one in removal.removed}
            removed |= dict.fromkeys(one for one in batch if one in present)
            done += len(batch)
    finally:
        if done < len(ending.rollout_ids):
            typer.echo(f"interrupted, done={done} of {len(ending.rollout_ids)}; repeat the command to finish", err=True)
    return removed
