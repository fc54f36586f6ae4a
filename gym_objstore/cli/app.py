# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The command tree, and how errors become exit codes. A command's module is loaded when the command is called."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from gym_objstore import errors

EXIT_FINDINGS = 1
EXIT_CODES: dict[type[Exception], int] = {
    errors.Invalid: 2,
    errors.NotFound: 3,
    errors.Retired: 4,
    errors.Denied: 5,
    errors.Unavailable: 6,
    errors.Corrupt: 7,
    errors.Conflict: 8,
    errors.Unusable: 9,
}
"""The exit code of each error. 0 is success, 1 a finding or a broken promise, 2 also a wrong command line."""


_FINISHED_BY_REPEATING = {"import", "export", "cp", "gc", "runs"}
"""Commands that say so when they are interrupted; ``retire`` and ``delete`` also say how far they came."""


class Entry(NamedTuple):
    """A command in the list of all: where its function or its group stands, and what it does in one line."""

    name: str
    module: str
    attribute: str
    summary: str


ENTRIES = (
    Entry("ls", "look", "ls", "List the runs of a store, or the rollouts of a run."),
    Entry("show", "show", "show", "Show a rollout: what was said, its token entries, what is wrong."),
    Entry("check", "look", "check", "Re-read and re-hash a rollout or a run."),
    Entry("stats", "captures", "stats", "Add up a run: calls, tokens, latencies, errors, losses."),
    Entry("tail", "captures", "tail", "Follow a run: a line for each call."),
    Entry("grep", "captures", "grep", "Search what was said in a run."),
    Entry("import", "moving", "import_", "Store Gym's capture, token and lineage files in a run."),
    Entry("export", "moving", "export", "Write a run as Gym's files, or its calls as Parquet."),
    Entry("retire", "retire", "retire", "Fence rollouts and remove what they hold: later writes fail."),
    Entry("delete", "retire", "delete", "Remove rollouts and their fences: their ids can be used again."),
    Entry("du", "du", "du", "Count objects and bytes, with what they cost a month."),
    Entry("gc", "gc", "gc", "Report what may go, and remove what was reported."),
    Entry("cp", "cp", "cp", "Copy a run to another bucket or folder, each object verified."),
    Entry("doctor", "doctor", "doctor", "Try a store: reach, permissions, clocks, versioning."),
    Entry("spill", "spill", "spill", "List or replay the writes that wait on this machine for a store."),
    Entry("demo", "demo", "demo", "Capture, damage, train on and retire rollouts, to see it work."),
    Entry("up", "up", "up", "Run a real S3 server on this machine until Ctrl-C."),
    Entry("proxy", "proxy", "proxy", "Relay model calls to a server and capture them."),
    Entry("runs", "runs", "app", "Create, list, close and delete whole runs."),
)


class Command(TyperCommand):
    """Stands for a command in the list of all and in completions; the command itself takes over when called."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.name, short_help=entry.summary)
        self.entry = entry

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the command line as the command itself."""
        return self.itself().make_context(info_name, args, parent, **extra)

    def itself(self) -> Any:
        """Load the command."""
        found = getattr(import_module(f"gym_objstore.cli.{self.entry.module}"), self.entry.attribute)
        if isinstance(found, typer.Typer):
            return get_command(found)
        alone = typer.Typer(add_completion=False)
        alone.command(self.entry.name)(found)
        return get_command(alone)


class _Commands(TyperGroup):
    """Lists the commands, and turns this package's errors into one line on stderr and their exit code."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for entry in ENTRIES:
            self.add_command(Command(entry))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except errors.ObjstoreError as error:
            from gym_objstore.cli.printing import complain

            complain(error)
            raise typer.Exit(EXIT_CODES.get(type(error), EXIT_FINDINGS)) from error
        except KeyboardInterrupt:
            if ctx.invoked_subcommand in _FINISHED_BY_REPEATING:
                typer.echo("interrupted; what was done stays, repeat the command to finish", err=True)
            raise


app = typer.Typer(name="gym-objstore", cls=_Commands, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def about() -> None:
    """Look at, check and try the object-storage data plane of reinforcement-learning rollouts."""
