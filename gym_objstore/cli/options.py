# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The options that commands share."""

from __future__ import annotations

import inspect
import os
import re
import tomllib
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from gym_objstore.errors import Invalid, NotFound
from gym_objstore.flow import run
from gym_objstore.settings import RUN_VARIABLE, URL_VARIABLE
from gym_objstore.store.options import StoreOptions

if TYPE_CHECKING:
    from gym_objstore.store import Store

_WHERE = "Where the store is"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _where(flag: str, about: str, variable: str | None = None) -> Any:
    return Annotated[str | None, typer.Option(flag, envvar=variable, help=about, rich_help_panel=_WHERE)]


_PLACE = {
    "url": _where("--url", "s3://bucket/prefix, gs://, az://, file:///folder ...", URL_VARIABLE),
    "endpoint": _where("--endpoint", "Address of an S3-compatible server."),
    "region": _where("--region", "Region of the bucket."),
    "profile": _where("--profile", "Profile of the AWS configuration."),
    "backend": _where("--backend", "obstore, boto or fsspec."),
}
Run = Annotated[str | None, typer.Option("--run-id", envvar=RUN_VARIABLE, help="The run.", show_default=False)]
Checkpoint = Annotated[
    list[Path] | None,
    typer.Option(
        "--checkpoint",
        help="A file with one staging key or rollout id in each line, which a checkpoint may restore. Repeatable.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines, one document.")]


def on_a_store(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where the store is; the command gets them as ``StoreOptions``, its first argument."""
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    place = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in _PLACE.items()]
    ours = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own]

    @wraps(command)
    def with_place(**given: Any) -> None:
        said = {name: given.pop(name) for name in _PLACE}
        if said["url"] == os.environ.get(URL_VARIABLE):
            said["url"] = None  # so that its source is the variable, as typer does not say
        command(StoreOptions.of(**said), **given)

    with_place.__signature__ = Signature([*ours, *place])  # type: ignore[attr-defined]
    with_place.__annotations__ = {one.name: one.annotation for one in (*ours, *place)}
    return with_place


def seconds(period: str) -> float:
    """Return a period such as ``24h`` in seconds."""
    found = re.fullmatch(r"(\d+)([smhd])", period)
    if found is None:
        raise Invalid(f"not a period, period={period}", kind="bad_option", hint="write 90s, 30m, 24h or 7d")
    return float(int(found[1]) * _SECONDS[found[2]])


def listed_by(files: Sequence[Path]) -> set[str]:
    """Return the staging keys and rollout ids that the lists of checkpoints name; an unreadable one stops all."""
    names: set[str] = set()
    for file in files:
        try:
            lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            reason = f"nothing is removed, because the list of a checkpoint cannot be read, file={file}, error={error}"
            raise Invalid(reason, kind="unreadable_list") from error
        if not lines:
            reason = f"nothing is removed, because the list of a checkpoint is empty, file={file}"
            raise Invalid(reason, kind="unreadable_list", hint="write it again, or leave the option out")
        names.update(lines)
    return names


def read_table(file: Path) -> dict[str, Any]:
    """Return the table in a JSON or TOML file."""
    try:
        text = file.read_text(encoding="utf-8")
        found = tomllib.loads(text) if file.suffix == ".toml" else orjson.loads(text)
    except (OSError, ValueError) as error:
        raise Invalid(f"the file cannot be read as JSON or TOML, file={file}, error={error}") from error
    if not isinstance(found, dict):
        raise Invalid(f"the file holds no table, file={file}")
    return found


def require_known_run(run_id: str, store: Store) -> None:
    """Raise ``NotFound`` for a run that the store has nothing of, so that a mistyped id ends nothing."""
    from gym_objstore.checking import runs
    from gym_objstore.ids import known_as

    if not known_as(run_id) & set(run(runs(), store)):
        hint = "check the url and the run id; list the runs: gym-objstore runs list"
        raise NotFound(f"no such run in this store, run_id={run_id}", kind="no_run", hint=hint)


def require_run(run_id: str | None) -> str:
    """Return the run id, or say where to get one."""
    if not run_id:
        raise Invalid(
            "a run id is missing",
            kind="no_run_id",
            hint=f"pass --run-id or set {RUN_VARIABLE}; see: gym-objstore runs list",
        )
    return run_id
