# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A local folder that keeps the writes a store could not take, until it can.

One file per write: a JSON line that says where it belongs, then the body. Files are complete or absent
(written aside, fsynced, renamed), so several processes may share the folder, and a replay that is
interrupted or done twice is harmless: every write here is idempotent.
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
        """Yield what is kept, oldest first. A file that is not ours holds up no other: it is ``Corrupt`` at the end."""
        damaged: Corrupt | None = None
        for path in self._files():
            try:
                yield _read(path)
            except FileNotFoundError:
                continue
            except Corrupt as error:
                damaged = damaged or error
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
    aside = path.with_suffix(".part")
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


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
