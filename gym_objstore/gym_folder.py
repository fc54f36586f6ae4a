# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Gym's capture, token and lineage files in a local folder: which there are, their lines, writing them.

Owns the names of the files, where their lines end, and that a file is whole or absent. What a line says is for
``importing`` and ``exporting``.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gym_objstore.errors import Conflict, Corrupt, Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CAPTURES = ".capture.jsonl"
CAPTURES_INCOMPLETE = ".capture.incomplete"
TOKENS = ".tokens.jsonl"
TOKENS_INCOMPLETE = ".tokens.incomplete"
INTENTS = ".tokens.intents"
STATE = ".tokens.state.json"
LEDGER = ".lineage.jsonl"
LEDGER_RETIRED = ".lineage.retired"
KINDS = (CAPTURES, CAPTURES_INCOMPLETE, TOKENS, TOKENS_INCOMPLETE, INTENTS, STATE, LEDGER, LEDGER_RETIRED)

_OF_NO_MEANING = (".tokens.lock",)
"""Gym's files that say nothing of a rollout."""
_GYM_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")
"""The rollout ids that Gym's stores take, as far as file names can be long."""
_BLOCK = 1 << 20


class FoundFiles(NamedTuple):
    """What is in a folder: each rollout's files by kind, and the names of everything that is none."""

    rollouts: dict[str, dict[str, Path]]
    foreign: tuple[str, ...]


class FileLine(NamedTuple):
    """A line with the blank lines around it, without its end, so that all of them, each with an end, are the file.

    ``number`` counts from 1 and is that of the text; ``last`` is whether only blank lines follow, ``ended`` whether
    the line has its end: a writer that was killed leaves one without.
    """

    text: bytes
    number: int
    last: bool
    ended: bool


class Written(NamedTuple):
    """A file that was written: its path, its bytes, and whether it already was just that."""

    path: Path
    size: int
    unchanged: bool


def find_files(folder: Path) -> FoundFiles:
    """Return Gym's files in a folder; deeper ones are not looked for.

    Raises ``Invalid`` for a folder that does not exist or has none of them, for links that lead out of it, and for
    files that are named like them but after no rollout id.
    """
    if not folder.is_dir():
        raise Invalid(f"there is no such folder, folder={folder}", kind="no_folder")
    _require_inside(folder)
    rollouts: dict[str, dict[str, Path]] = {}
    foreign, unnamed = [], []
    for path in sorted(folder.iterdir()):
        kind = next((kind for kind in KINDS if path.name.endswith(kind)), None)
        if kind is None or not path.is_file():
            foreign += [path.name] if not path.name.endswith(_OF_NO_MEANING) else []
        elif is_gym_id(rollout_id := path.name.removesuffix(kind)):
            rollouts.setdefault(rollout_id, {})[kind] = path
        else:
            unnamed.append(path.name)
    if unnamed:
        hint = "rename them or move them away; ids have letters, digits, '.', '_' and '-' only"
        raise Invalid(f"files are named after no rollout id, files={unnamed}", kind="bad_id", hint=hint)
    if not rollouts:
        hint = f"name the folder that holds <rollout id>{CAPTURES}, {TOKENS} or {LEDGER}"
        raise Invalid(f"the folder has none of Gym's files, folder={folder}", kind="no_files", hint=hint)
    return FoundFiles(rollouts, tuple(foreign))


def _require_inside(folder: Path) -> None:
    """Raise ``Invalid`` for links that lead elsewhere: whoever can write to a folder may not choose what is read."""
    root = folder.resolve()
    away = [path.name for path in sorted(folder.iterdir()) if not path.resolve().is_relative_to(root)]
    if away:
        hint = "put the files themselves there, or remove the links"
        raise Invalid(f"links lead out of the folder, files={away}", kind="link", hint=hint)


def is_gym_id(rollout_id: str) -> bool:
    """Say whether Gym's stores, and a file's name, take this id."""
    return _GYM_ID.fullmatch(rollout_id) is not None


def read_lines(path: Path) -> Iterator[FileLine]:
    """Yield a file's lines, one at a time in memory."""
    pending, blank = None, b""
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.strip():
                blank += raw
                continue
            if pending is not None:
                yield pending
            text, blank = blank + raw, b""
            pending = FileLine(text.removesuffix(b"\n"), number, last=False, ended=raw.endswith(b"\n"))
    if pending is not None:
        yield pending._replace(text=pending.text + _tail(blank), last=True)


def _tail(blank: bytes) -> bytes:
    """Return blank lines at the end of a file as they follow a line whose own end is left out."""
    return b"\n" + blank.removesuffix(b"\n") if blank else b""


def write_file(path: Path, lines: Iterable[bytes]) -> Written:
    """Write lines, each with its end, to a file that is then whole or absent; read it back.

    A file that is there may be a beginning of the new one, and is then replaced. Raises ``Conflict`` for any other,
    which is kept; ``Corrupt`` if what is read back is not what was written.
    """
    aside = path.with_name(f".{path.name}.part")
    digest, size = hashlib.sha256(), 0
    try:
        aside.unlink(missing_ok=True)  # left by a writer that was killed; or a link, which must not be followed
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:  # noqa: PTH123 - a descriptor
            for line in lines:
                file.write(line + b"\n")
                digest.update(line + b"\n")
                size += len(line) + 1
            file.flush()
            os.fsync(file.fileno())
        unchanged = path.exists() and _require_beginning(path, aside) == size
        if not unchanged:
            aside.replace(path)
    finally:
        with suppress(FileNotFoundError):
            aside.unlink()
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").digest() != digest.digest():
            raise Corrupt(f"the file is not what was written, file={path}", kind="not_verified")
    return Written(path, size, unchanged)


def sync_folder(folder: Path) -> None:
    """Make the names of a folder's files durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_beginning(old: Path, new: Path) -> int:
    """Return the size of a file that another one begins with; raise ``Conflict`` if it does not."""
    size = 0
    with old.open("rb") as before, new.open("rb") as after:
        while block := before.read(_BLOCK):
            if after.read(len(block)) != block:
                hint = "export into an empty folder"
                raise Conflict(f"the file is there with other contents, file={old}", kind="other_file", hint=hint)
            size += len(block)
    return size
