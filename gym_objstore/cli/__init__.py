# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The ``gym-objstore`` command: thin commands over the library."""

from __future__ import annotations

import sys
from io import TextIOWrapper

NAME = "gym-objstore"
"""What the command calls itself, also as ``python -m gym_objstore``: a shell completes no other name."""


def main() -> None:
    """Run the command line; says what to install where the ``cli`` extra is missing."""
    try:
        import typer  # noqa: F401 - the extra may be absent
    except ModuleNotFoundError:
        sys.exit("gym-objstore: the command line needs its extra: pip install 'gym-objstore[cli]'")
    from gym_objstore.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what models write is not limited to a terminal's encoding
    app(prog_name=NAME)
