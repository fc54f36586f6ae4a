# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The command tree, and how errors become exit codes."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from gym_objstore import errors
from gym_objstore.cli import captures, cp, demo, doctor, du, gc, look, moving, proxy, retire, runs, show, spill, up
from gym_objstore.cli.printing import complain

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


class _Commands(TyperGroup):
    """Turns this package's errors into one line on stderr and their exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except errors.ObjstoreError as error:
            complain(error)
            raise typer.Exit(EXIT_CODES.get(type(error), EXIT_FINDINGS)) from error


app = typer.Typer(
    name="gym-objstore",
    cls=_Commands,
    help="Look at, check and try the object-storage data plane of reinforcement-learning rollouts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (
    look.ls,
    show.show,
    look.check,
    captures.stats,
    captures.tail,
    captures.grep,
    moving.export,
    retire.retire,
    retire.delete,
    du.du,
    gc.gc,
    cp.cp,
    doctor.doctor,
    spill.spill,
    demo.demo,
    up.up,
    proxy.proxy,
):
    app.command()(command)
app.command("import")(moving.import_)
app.add_typer(runs.app)
