# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A bound on what a client may send before its request is passed on: uvicorn's fastest protocol has none.

Bodies are passed on piece by piece. What is neither passed on nor part of a body (the line of a request, its headers,
the sizes of chunks and what follows the last one) waits in memory, before anybody was asked for a key.
"""

from __future__ import annotations

from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES: Final = 64 * 2**10
"""What may wait, beside the piece that was read last; h11 and most servers take as much."""


class BoundedHeads(HttpToolsProtocol):
    """HTTP as uvicorn speaks it with httptools; a head without end is answered with 400 and its connection closed."""

    _waiting = 0

    def data_received(self, data: bytes) -> None:  # noqa: D102 - the protocol's
        self._waiting += len(data)
        super().data_received(data)
        if self._waiting > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The head of the request is longer than {HEAD_BYTES} bytes.")

    def on_headers_complete(self) -> None:  # noqa: D102
        self._waiting = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:  # noqa: D102
        self._waiting = 0
        super().on_body(body)

    def on_message_complete(self) -> None:  # noqa: D102
        self._waiting = 0
        super().on_message_complete()
