# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A local folder that keeps the writes a store could not take, until it can.

One file per write: a JSON line that says where it belongs, then the body. Files are complete or absent
(written aside, fsynced, renamed), so several processes may share the folder, and a replay that is
interrupted or done twice is harmless: every write here is idempotent. A file is locked while it is written aside, so
that what a killed process left can be told from what another one is writing, in whatever container that is.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import orjson

from gym_objstore.errors import Corrupt, Unavailable
from gym_objstore.flow import Flow, Put
from gym_objstore.keys import parse
from gym_objstore.objects import write_fenced
from gym_objstore.store import check_key, joined

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_BYTES = 1 << 30
"""What one store's spill may hold before it refuses more, loudly."""

UNFINISHED_SECONDS = 3_600
"""How old an unfinished file has to be before it may go: its writer locks it right after it made it, not before."""

_UNFINISHED = ".part"


class Spilled(NamedTuple):
    """One kept write. ``at`` is when it was kept, in Unix seconds by this machine's clock."""

    path: Path
    put: Put
    at: float


class Spill:
    """The kept writes of one store. Its folder is made at the first write."""

    def __init__(self, directory: str | Path, url: str) -> None:
        name = hashlib.sha256(url.encode()).hexdigest()[:16]
        self.url = url
        self.folder = Path(directory) / name
        self._measured, self._measured_at, self._depth = 0, -math.inf, 0

    def keep(self, put: Put) -> Path:
        """Keep a write. Returns when it is on disk; raises ``Unavailable`` when the folder cannot take it."""
        body = joined(put.body)
        header = orjson.dumps({"url": self.url, "key": put.key, "size": len(body)})
        path = self.folder / f"{time.time_ns():020d}-{secrets.token_hex(4)}.write"
        try:
            # Whoever could write here could write to the store, and kept bodies hold what was said.
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._size() + len(body) > LIMIT_BYTES:
                raise OSError(f"the spill is full, limit={LIMIT_BYTES}")
            _write_whole(path, header + b"\n" + body)
            self._measured += len(body)
            self._depth += 1
        except OSError as error:
            raise Unavailable(f"the spill cannot keep a write: {error}", kind="spill_failed", key=put.key) from error
        return path

    def kept(self) -> Iterator[Spilled]:
        """Yield what is kept, oldest first. One that cannot be read, or is not ours, holds up no other.

        It is ``Corrupt`` at the end.
        """
        damaged: Corrupt | None = None
        for path in self._files():
            try:
                yield _read(path)
            except FileNotFoundError:
                continue
            except Corrupt as error:
                damaged = damaged or error
            except OSError as error:
                reason = f"a kept write cannot be read, path={path}: {error}"
                damaged = damaged or Corrupt(reason, kind="spill_damaged", hint="see to the disk, or move it away")
        if damaged is not None:
            raise damaged

    def __len__(self) -> int:
        """Return how many writes are kept."""
        return len(self._files())

    @property
    def depth(self) -> int:
        """How many writes are kept, by all processes as of a second before the last ``keep``; costs nothing."""
        return self._depth

    def _size(self) -> int:
        """Return the bytes kept, by all processes as of a second ago: an outage keeps thousands of files."""
        if time.monotonic() > self._measured_at + 1:
            _remove_abandoned(self.folder)
            files = self._files()
            self._measured_at, self._depth = time.monotonic(), len(files)
            self._measured = sum(_size_of(file) for file in files)
        return self._measured

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.write")) if self.folder.is_dir() else []


def forget(path: Path) -> None:
    """Remove a kept write that the store now has."""
    path.unlink(missing_ok=True)


def _size_of(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def replay(put: Put) -> Flow[None]:
    """Store a kept write behind its rollout's fence; raises ``Retired`` when nobody needs it any more."""
    parts = parse(put.key)
    yield from write_fenced(f"{parts.family}/{parts.run}/{parts.rollout}/", [put])


def _write_whole(path: Path, data: bytes) -> None:
    aside = path.with_suffix(_UNFINISHED)
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
        try:
            _lock(file.fileno())
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            aside.rename(path)
        except BaseException:
            aside.unlink(missing_ok=True)  # a full disk would be full of parts
            raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; False if another process has it, or this file system knows no locks."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl  # not everywhere, and so not at the top: what keeps nothing on a disk works without

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _remove_abandoned(folder: Path) -> None:
    """Remove what processes left that were killed while they wrote here. What cannot be judged stays."""
    for aside in folder.glob(f"*{_UNFINISHED}"):
        with contextlib.suppress(OSError), open(os.open(aside, os.O_RDWR | os.O_NOFOLLOW), "rb") as file:  # noqa: PTH123
            old = os.fstat(file.fileno()).st_mtime < time.time() - UNFINISHED_SECONDS
            if old and _lock(file.fileno()):
                aside.unlink()  # names are not used again: a file that was finished meanwhile has another one


def _read(path: Path) -> Spilled:
    header, _, body = path.read_bytes().partition(b"\n")
    try:
        said = orjson.loads(header)
        if said["size"] != len(body) or not parse(check_key(said["key"])):
            raise ValueError(said["size"])
        return Spilled(path, Put(said["key"], body), int(path.name.split("-")[0]) / 1e9)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "move it away"
        raise Corrupt(f"not a kept write, path={path}", kind="spill_damaged", hint=hint) from error
