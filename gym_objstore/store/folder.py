# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A folder of the local file system used as a bucket, with blocking calls that raise ``OSError``.

Owns: durability (a file and every folder above it are on disk before ``write`` returns), atomicity (a file
appears whole under its name), and that no symbolic link leads out of the root. Does not own: keys, threads
and errors (``file_store``). obstore's own local store is not used because it syncs nothing to disk.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gym_objstore.store import Meta
from gym_objstore.store.parts import buffers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gym_objstore.store import Body

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_INSIDE = _FOLDER | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a named pipe must not hang the reader
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_PARTIAL = "\N{SECTION SIGN}"
"""Begins the name of a file that is being written; no key contains it, so no listing shows such a file."""

_RACES = 100


class Folder:
    """The files below one root. Every name is relative to it, and every file is a regular one."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def write(self, key: str, body: Body) -> None:
        """Store a file whole and durable, in place of one of the same name."""
        *folders, name = key.split("/")
        for _ in range(_RACES):
            # A concurrent removal may take a folder away between its making and its use.
            with suppress(FileNotFoundError), self._made(folders) as folder:
                _replace(folder, name, body)
                return
        raise FileNotFoundError(errno.ENOENT, "the folder vanishes as often as it is made", key)

    def read(self, key: str) -> bytes:
        """Return a file's bytes."""
        with self._opened(key) as file:
            return _read_exactly(file, 0, os.fstat(file).st_size)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return the bytes of a range that the file has."""
        with self._opened(key) as file:
            rest = max(0, os.fstat(file).st_size - start)
            return _read_exactly(file, start, min(length, rest))

    def meta(self, key: str) -> Meta:
        """Return a file's size and time of change."""
        with self._opened(key) as file:
            found = os.fstat(file)
        return Meta(key, found.st_size, found.st_mtime)

    def pages(self, prefix: str) -> Iterator[list[Meta]]:
        """Yield the files below a prefix, those of one folder at a time."""
        waiting = [prefix]
        while waiting:
            folder = waiting.pop()
            files, folders = self._entries(folder)
            yield files
            waiting.extend(f"{folder}{name}/" for name in folders)

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders directly below a prefix that contain a file at any depth."""
        _, names = self._entries(prefix)
        return [name for name in names if any(self.pages(f"{prefix}{name}/"))]

    def remove(self, keys: Sequence[str]) -> PermissionError | None:
        """Remove files durably, and the folders they leave empty; return the first refusal, after all others."""
        refused: PermissionError | None = None
        touched = set()
        for key in keys:
            path, _, name = key.rpartition("/")
            try:
                with suppress(FileNotFoundError, NotADirectoryError), self._within(path.split("/")) as folder:
                    _unlink(folder, name)
                    touched.add(path)
            except PermissionError as error:
                error.filename = key
                refused = refused or error
        for path in touched:
            self._settle(path)
        return refused

    def _settle(self, path: str) -> None:
        """Make removals in a folder durable and take away what they left empty, up to the root."""
        parts = [part for part in path.split("/") if part]
        while True:
            with suppress(FileNotFoundError, NotADirectoryError), self._within(parts) as folder:
                os.fsync(folder)
            if not parts:
                return
            *parts, name = parts
            try:
                with self._within(parts) as above:
                    os.rmdir(name, dir_fd=above)
            except OSError:  # not empty, or gone already
                return

    def _entries(self, prefix: str) -> tuple[list[Meta], list[str]]:
        """Return the files and the names of the folders directly below a prefix; nothing where there is none."""
        files, folders = [], []
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            self._within(prefix.split("/")) as folder,
            os.scandir(folder) as entries,
        ):
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(_PARTIAL):
                    with suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        files.append(Meta(prefix + entry.name, found.st_size, found.st_mtime))
        return files, folders

    @contextmanager
    def _opened(self, key: str) -> Iterator[int]:
        *folders, name = key.split("/")
        with self._within(folders) as folder:
            file = os.open(name, _READ, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise FileNotFoundError(errno.ENOENT, "not a file", key)
            yield file
        finally:
            os.close(file)

    @contextmanager
    def _within(self, folders: Sequence[str]) -> Iterator[int]:
        """Open a folder without following a link below the root."""
        descriptor = os.open(self._root, _FOLDER)
        try:
            for name in filter(None, folders):
                descriptor = _step(descriptor, os.open(name, _INSIDE, dir_fd=descriptor))
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _made(self, folders: Sequence[str]) -> Iterator[int]:
        """Open a folder that is made if need be. Each one on the way is synced: another process may have made it."""
        _make_durably(self._root)
        descriptor = os.open(self._root, _FOLDER)
        try:
            for name in folders:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
                child = os.open(name, _INSIDE, dir_fd=descriptor)
                try:
                    os.fsync(descriptor)
                finally:
                    descriptor = _step(descriptor, child)
            yield descriptor
        finally:
            os.close(descriptor)


def _make_durably(path: Path) -> None:
    """Make a folder and those above it, each synced into its parent."""
    if path.is_dir():
        return
    above = path.parent
    _make_durably(above)
    path.mkdir(exist_ok=True)
    descriptor = os.open(above, _FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _step(descriptor: int, child: int) -> int:
    os.close(descriptor)
    return child


def _replace(folder: int, name: str, body: Body) -> None:
    partial = f"{_PARTIAL}{secrets.token_hex(8)}"
    try:
        with open(os.open(partial, _WRITE, 0o666, dir_fd=folder), "wb") as file:  # noqa: PTH123 - a descriptor
            file.writelines(buffers(body))
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=folder)
        raise
    os.fsync(folder)


def _unlink(folder: int, name: str) -> None:
    if stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)


def _read_exactly(file: int, start: int, length: int) -> bytes:
    pieces = []
    while length and (piece := os.pread(file, length, start)):
        pieces.append(piece)
        start, length = start + len(piece), length - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
