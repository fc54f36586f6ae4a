# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""How commands print: tables for people, one JSON document for machines, progress on stderr."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from gym_objstore.flow import All, Delete, Page, Put, run

if TYPE_CHECKING:
    from rich.console import Console

    from gym_objstore.errors import ObjstoreError
    from gym_objstore.flow import Flow, Operation
    from gym_objstore.store import Store

T = TypeVar("T")

_FILE_WIDTH = 200
"""Characters of a table's line in a file or pipe, where ids that are folded cannot be searched for."""


@cache
def _console(*, stderr: bool = False) -> Console:
    """Return the console of a stream; rich is loaded when there is something to print."""
    from rich.console import Console

    found = Console(stderr=stderr, highlight=False, soft_wrap=True, emoji=False)
    if not (found.is_terminal or "COLUMNS" in os.environ):
        found.width = _FILE_WIDTH
    return found


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.flush()


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table on stdout. Cells are shown as they are, never read as markup."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_plain(cell) for cell in row))
    _console().print(table)


def print_line(document: Any) -> None:
    """Print one JSON document as one line on stdout, at once."""
    sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.flush()


def say(text: str, style: str | None = None) -> None:
    """Print lines for people on stdout. Control characters and lone surrogates are shown, never sent."""
    _console().print(_visible(text), style=style, markup=False)


def complain(error: ObjstoreError) -> None:
    """Print an error on stderr, in one line."""
    _console(stderr=True).print(_visible(f"gym-objstore: {error}", also=""), style="red", markup=False)


def remark(text: str) -> None:
    """Print a line for people on stderr, beside what machines read."""
    _console(stderr=True).print(_visible(text), markup=False)


def tracked(items: Iterable[T], doing: str, total: int | None = None) -> Iterable[T]:
    """Yield the items with a progress bar on stderr, where that is a terminal; ``total`` is how many will come."""
    from rich.progress import track

    console = _console(stderr=True)
    shown = console.is_terminal
    return track(items, description=doing, total=total, console=console, transient=True, disable=not shown)


def watched(flow: Flow[T], store: Store, doing: str) -> T:
    """Play a flow; on stderr, where that is a terminal, stands what it has listed, written and removed."""
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    console, counts = _console(stderr=True), Counter[str]()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(doing)

        def seen(operation: Operation, answer: Any) -> None:
            counts.update(_done(operation, answer))
            progress.update(task, description=", ".join([doing, *(f"{n:,} {what}" for what, n in counts.items())]))

        return run(flow, store, seen=seen)


def _done(operation: Operation, answer: Any) -> dict[str, int]:
    match operation:
        case Page():
            return {"listed": len(answer or ())}
        case Delete(keys):
            return {"removed": len(keys)}
        case All(operations):
            return {"written": sum(isinstance(one, Put) for one in operations)}
    return {}


def _plain(cell: object) -> str:
    return _visible(str(cell), also="").replace("[", "\\[")


def _visible(text: str, also: str = "\n\t") -> str:
    """Return a text without anything a terminal would obey, but for the characters of ``also``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in also else f"\\x{ord(c):02x}" for c in text)
