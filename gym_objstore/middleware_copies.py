# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A copy of an HTTP body that is made while the body passes: small ones in memory, others on disk, none endless."""

from __future__ import annotations

from tempfile import SpooledTemporaryFile

MEMORY_BYTES = 2**20
"""Bytes of one copy that are kept in memory; a longer one goes to a temporary file."""

COPY_BYTES = 128 * 2**20
"""Bytes of a body that are copied; a longer one has no copy, so that an endless one fills no disk."""


class Copy:
    """The bytes of one body so far. ``size`` counts them all; ``whole`` is false once they could not be kept.

    Not thread-safe: read it after the last ``add``. Close it, or its file stays open.
    """

    def __init__(self) -> None:
        self.size = 0
        self.whole = True
        self._file = SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115 - open as long as the call

    def add(self, chunk: bytes) -> None:
        """Keep the next bytes. Never raises: a disk that is full costs the copy, and nothing else."""
        self.size += len(chunk)
        if not self.whole:
            return
        try:
            if self.size > COPY_BYTES:
                raise OSError(f"the body is too long to be copied, limit={COPY_BYTES}")
            self._file.write(chunk)
        except OSError:
            self.whole = False
            self._file.close()

    def read(self) -> bytes:
        """Return all bytes; none if they could not be kept."""
        if not self.whole:
            return b""
        self._file.seek(0)
        return self._file.read()

    def close(self) -> None:
        """Give the memory and the file back."""
        self._file.close()
