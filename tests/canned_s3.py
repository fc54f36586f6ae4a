# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A server that answers S3 requests as a test tells it to: refusals, half bodies, silence, pages of a proxy.

It checks nothing and stores nothing. Use a real server for what a real server can be made to do.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

OBJECT = {"ETag": '"0123"', "Last-Modified": "Mon, 30 Nov 2026 04:28:23 GMT"}


class Request(NamedTuple):
    """A request as it came; the names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """An answer. ``claimed`` is a length that the body does not have; ``cut`` resets the connection instead."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    claimed: int | None = None
    cut: bool = False
    hang: bool = False


class CannedS3:
    """Answers every request with what ``answer`` returns for it, and keeps the requests."""

    def __init__(self, answer: Callable[[Request], Reply], *, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.released = threading.Event()
        canned = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65_537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.command, self.path, headers, body)
                canned.requests.append(request)
                self._reply(canned.answer(request))

            def _reply(self, reply: Reply) -> None:
                if reply.hang:
                    canned.released.wait(30)
                if reply.hang or reply.cut:
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.close_connection = True
                    return
                body = b"" if self.command == "HEAD" else reply.body
                length = len(reply.body) if reply.claimed is None else reply.claimed
                lines = [f"HTTP/1.1 {reply.status} Canned", f"Content-Length: {length}"]
                lines += [f"{name}: {value}" for name, value in reply.headers.items()]
                self.close_connection = reply.claimed is not None
                # In one piece: a head sent before its body waits for the client's delayed acknowledgement.
                self.wfile.write("\r\n".join([*lines, "", ""]).encode() + body)

        self._server = _Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="canned-s3")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that hang up are what some tests are about."""


def refusal(status: int, code: str, said: str = "as the test wants", **headers: str) -> Reply:
    """Return an answer as S3 refuses a request."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{said}</Message></Error>"
    return Reply(status, body.encode(), {"Content-Type": "application/xml", **headers})


def listing(*keys: str, bucket: str = "bucket") -> Reply:
    """Return an answer that lists whole keys, one byte each."""
    entries = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-11-30T04:28:23.000Z</LastModified>"
        f"<ETag>0123</ETag><Size>1</Size></Contents>"
        for key in keys
    )
    body = f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
    return Reply(200, body.encode(), {"Content-Type": "application/xml"})
