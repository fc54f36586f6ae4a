# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The zstd compressor and decompressor of each thread: threads cannot share one, and to make one takes tables.

For a record of 300 tokens the tables cost more than what is done with them. What a frame holds is for ``codec``.
"""

from __future__ import annotations

import threading
from typing import Final

import zstandard

_LEVEL: Final = 1


class _Contexts(threading.local):
    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self.decompressor = zstandard.ZstdDecompressor()


contexts: Final = _Contexts()
"""What the calling thread works with, in one call from text to frame or back."""
