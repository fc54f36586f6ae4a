# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Ways to look behind a store's back: a folder, an S3 bucket through boto3, a memory store's dictionary."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gym_objstore.store.memory import MemoryStore


@dataclass(frozen=True, slots=True)
class BehindFolder:
    """A file system folder. A folder marker is an empty folder, and ``keys`` names files only."""

    root: Path

    def read(self, key: str) -> bytes | None:
        path = self.root / key
        return path.read_bytes() if path.is_file() else None

    def keys(self, prefix: str) -> set[str]:
        files = (self.root / prefix).rglob("*")
        return {path.relative_to(self.root).as_posix() for path in files if not path.is_dir()}

    def write(self, key: str, body: bytes) -> None:
        path = self.root / key
        if key.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)

    def delete(self, key: str) -> None:
        (self.root / key).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class BehindS3:
    """An S3 bucket through a boto3 client. ``root`` is empty or ends in ``/``."""

    client: Any
    bucket: str
    root: str = ""

    def read(self, key: str) -> bytes | None:
        try:
            found = self.client.get_object(Bucket=self.bucket, Key=self.root + key)
        except self.client.exceptions.NoSuchKey:
            return None
        body: bytes = found["Body"].read()
        return body

    def keys(self, prefix: str) -> set[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.root + prefix)
        return {found["Key"].removeprefix(self.root) for page in pages for found in page.get("Contents", ())}

    def write(self, key: str, body: bytes) -> None:
        # An empty Body makes botocore send "Expect: 100-continue" and lose count of the answers on that connection.
        stored = {"Body": body} if body else {}
        self.client.put_object(Bucket=self.bucket, Key=self.root + key, **stored)

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=self.root + key)


@dataclass(frozen=True, slots=True)
class BehindMemory:
    """The dictionary of a memory store, read and written without its methods."""

    store: MemoryStore

    @property
    def _objects(self) -> dict[str, tuple[bytes, float]]:
        return self.store._objects  # noqa: SLF001 - looking behind the back is the purpose

    def read(self, key: str) -> bytes | None:
        found = self._objects.get(key)
        return found[0] if found else None

    def keys(self, prefix: str) -> set[str]:
        return {key for key in self._objects if key.startswith(prefix)}

    def write(self, key: str, body: bytes) -> None:
        self._objects[key] = (body, time.time())

    def delete(self, key: str) -> None:
        self._objects.pop(key, None)
