# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a reverse proxy passes on of an HTTP message beside its body: header lists, the target, redirects.

Everything is bytes as they were on the wire; what is not said here passes unchanged. No I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from gym_objstore.errors import Invalid
from gym_objstore.http_exchange import header

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gym_objstore.http_exchange import Headers

_OF_A_CONNECTION = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""Headers about one connection, which end at each proxy (RFC 9110, section 7.6.1)."""

# The server in front of us answers Expect itself, before it reads the body.
_NEVER_SENT = frozenset((b"host", b"expect"))
_PORTS = {"http": 80, "https": 443}


def request_headers(headers: Iterable[tuple[bytes, bytes]], host: bytes) -> Headers:
    """Return a client's headers as they are sent on to ``host``."""
    given = list(headers)
    names = {name for name, _ in given}
    kept = [pair for pair in end_to_end(given) if pair[0] not in _NEVER_SENT]
    if b"transfer-encoding" in names:
        # A length beside it is void, and must not be sent on: two servers could read two different bodies.
        kept = [pair for pair in kept if pair[0] != b"content-length"]
        kept.append((b"transfer-encoding", b"chunked"))
    return [(b"host", host), *kept]


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers that are not about the connection they came on. Names become lower case."""
    lower = [(name.lower(), value) for name, value in headers]
    listed = [value for name, value in lower if name == b"connection"]
    named = {one.strip().lower() for value in listed for one in value.split(b",")}
    return [(name, value) for name, value in lower if name not in _OF_A_CONNECTION and name not in named]


def target(scope: Mapping[str, Any], base_path: str) -> bytes:
    """Return the request target below ``base_path``, escapes exactly as the client wrote them.

    Raises ``Invalid`` for a web socket, a target that is no path, and one that would climb out of ``base_path``.
    """
    if header(scope["headers"], b"upgrade").lower() == "websocket":
        raise Invalid("web sockets are not relayed", kind="bad_target")
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or quote(path.encode("utf-8", "surrogatepass")).encode()
    if not raw.startswith(b"/"):
        raise Invalid("the request target must be a path", kind="bad_target")
    if base_path and ".." in path.replace("\\", "/").split("/"):
        raise Invalid("the request target leaves the upstream's base path", kind="bad_target")
    query: bytes = scope.get("query_string", b"")
    return base_path.encode() + raw + (b"?" + query if query else b"")


def redirects(headers: Headers, upstream: SplitResult) -> Headers:
    """Return an answer's headers with redirects to the upstream itself leading back through this proxy."""
    return [(name, _location(value, upstream) if name == b"location" else value) for name, value in headers]


def _location(value: bytes, upstream: SplitResult) -> bytes:
    try:
        parts = urlsplit(value.decode("ascii"))
        ours = not parts.netloc or _same_host(parts, upstream)
    except ValueError:
        return value
    base = upstream.path.rstrip("/")
    if not ours or not f"{parts.path}/".startswith(f"{base}/") or not parts.path.startswith("/"):
        return value
    below = parts.path.removeprefix(base) or "/"
    if below.startswith("//"):
        return value  # as a relative reference it would name another host
    return urlunsplit(("", "", below, parts.query, parts.fragment)).encode()


def _same_host(parts: SplitResult, upstream: SplitResult) -> bool:
    """Whether two URLs name one host. A server behind TLS may not know it, and redirect to http."""
    if parts.netloc.lower() == upstream.netloc.lower():
        return True
    return _origin(parts) == _origin(upstream)


def _origin(parts: SplitResult) -> tuple[str | None, int | None]:
    return parts.hostname, parts.port or _PORTS.get(parts.scheme)
