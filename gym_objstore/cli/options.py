# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The options that every command shares, and the store they open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gym_objstore.errors import Invalid
from gym_objstore.settings import RUN_VARIABLE, URL_VARIABLE
from gym_objstore.store.opening import open_store as open_with
from gym_objstore.store.options import StoreOptions

if TYPE_CHECKING:
    from gym_objstore.store import Store

_WHERE = "Where the store is"
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar=URL_VARIABLE,
        help="s3://bucket/prefix, gs://, az://, file:///folder ...",
        rich_help_panel=_WHERE,
    ),
]
Endpoint = Annotated[
    str | None, typer.Option("--endpoint", help="Address of an S3-compatible server.", rich_help_panel=_WHERE)
]
Region = Annotated[str | None, typer.Option("--region", help="Region of the bucket.", rich_help_panel=_WHERE)]
Profile = Annotated[
    str | None, typer.Option("--profile", help="Profile of the AWS configuration.", rich_help_panel=_WHERE)
]
Backend = Annotated[str | None, typer.Option("--backend", help="obstore, boto or fsspec.", rich_help_panel=_WHERE)]
Run = Annotated[str | None, typer.Option("--run-id", envvar=RUN_VARIABLE, help="The run.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines, one document.")]


def store_options(
    url: str | None, endpoint: str | None, region: str | None, profile: str | None, backend: str | None
) -> StoreOptions:
    """Return the settings that the options and the environment name."""
    return StoreOptions.of(url, endpoint=endpoint, region=region, profile=profile, backend=backend)


def open_store(
    url: str | None, endpoint: str | None, region: str | None, profile: str | None, backend: str | None
) -> Store:
    """Open the store that the options and the environment name."""
    return open_with(store_options(url, endpoint, region, profile, backend))


def require_run(run_id: str | None) -> str:
    """Return the run id, or say where to get one."""
    if not run_id:
        raise Invalid(
            "a run id is missing", kind="no_run_id", hint=f"pass --run-id or set {RUN_VARIABLE}; see: gym-objstore ls"
        )
    return run_id
