# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""How commands print: tables for people, one JSON document for machines, progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table

if TYPE_CHECKING:
    from gym_objstore.errors import ObjstoreError

T = TypeVar("T")

_out = Console(highlight=False, soft_wrap=True)
_err = Console(stderr=True, highlight=False, soft_wrap=True)

__all__ = ["Progress", "complain", "print_json", "print_table", "say", "tracked"]


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.flush()


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table on stdout. Cells are shown as they are, never read as markup."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_plain(cell) for cell in row))
    _out.print(table)


def say(text: str) -> None:
    """Print a line for people on stdout."""
    _out.print(text, markup=False)


def complain(error: ObjstoreError) -> None:
    """Print an error on stderr, in one line."""
    _err.print(f"gym-objstore: {error}", style="red", markup=False)


def tracked(items: Sequence[T], doing: str) -> Iterable[T]:
    """Yield the items with a progress bar on stderr, where that is a terminal."""
    return track(items, description=doing, console=_err, transient=True, disable=not _err.is_terminal)


def _plain(cell: object) -> str:
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(cell)).replace("[", "\\[")
