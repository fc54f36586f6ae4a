# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``Upstream``: where a proxy relays to, and ``Pools``: its connections there. Needs httpx, the extra ``proxy``."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from gym_objstore.errors import Invalid, Unusable
from gym_objstore.store.scopes import LoopResource

try:
    import httpx
except ModuleNotFoundError as missing:
    raise Unusable(
        "the proxy needs httpx and uvicorn", kind="missing_extra", hint="pip install 'gym-objstore[proxy]'"
    ) from missing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AsyncExitStack

    from gym_objstore.http_exchange import Headers

_CONNECT_SECONDS = 10.0

_KEEP_ALIVE_SECONDS = 2.0
"""How long an idle connection may be used again: well before uvicorn and Node.js close theirs, after 5 s, which
would fail the request that meets the closing."""

_POOL = 64
"""Connections of one pool: with every request httpcore looks at all of a pool, once for each idle one."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The server that requests are relayed to: plain values.

    ``url`` is its root, with or without the ``/v1`` that clients want. ``ca_file`` holds the certificates to
    trust instead of the system's. ``concurrency`` is the number of requests in flight, others wait;
    ``silence_seconds`` the longest the upstream may take to accept or to send another byte. Raises ``Invalid``.
    """

    url: str
    ca_file: str | None = None
    concurrency: int = 1024
    silence_seconds: float = 600.0

    def __post_init__(self) -> None:
        parts = _split(self.url)
        if "@" in parts.netloc:
            raise Invalid("the upstream's url holds credentials; clients send their own", kind="secret_in_url")
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise Invalid(f"the upstream must be http(s)://host[:port][/path], url={self.url[:200]!r}", kind="bad_url")
        if self.concurrency < 1 or not 0 < self.silence_seconds < float("inf"):
            raise Invalid("concurrency and silence_seconds must be more than 0", kind="bad_option")

    @property
    def root(self) -> SplitResult:
        """The url that request paths are appended to."""
        parts = _split(self.url)
        return parts._replace(path=parts.path.rstrip("/").removesuffix("/v1").rstrip("/"))

    def trusted(self) -> ssl.SSLContext:
        """Return what certificates are verified with. Raises ``Invalid`` for a file that holds none."""
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:  # SSLError is one too
            message = f"the CA file cannot be read, ca_file={self.ca_file}: {error}"
            raise Invalid(message, kind="bad_ca_file") from error


class Pools:
    """The connections to an upstream, on each event loop that uses them."""

    def __init__(self, upstream: Upstream) -> None:
        self.url = httpx.URL(upstream.root.geturl())
        silence = upstream.silence_seconds
        self._timeout = httpx.Timeout(silence, connect=min(_CONNECT_SECONDS, silence), pool=None).as_dict()
        self._concurrency = upstream.concurrency
        self._trusted = upstream.trusted()
        self._of_loop = LoopResource(self._open)

    @asynccontextmanager
    async def exchange(
        self, method: str, target: bytes, headers: Headers, body: httpx.AsyncByteStream
    ) -> AsyncIterator[httpx.Response]:
        """Send a request, its target and headers to the byte; the response's body is still to come.

        Leaving ends the exchange; a connection whose response was not read to its end is closed. Raises
        httpx's errors.
        """
        request = httpx.Request(
            method, self.url, headers=headers, stream=body, extensions={"target": target, "timeout": self._timeout}
        )
        pool = min(await self._of_loop(), key=lambda one: one.in_flight)
        pool.in_flight += 1
        try:
            response = await pool.handle_async_request(request)
            try:
                yield response
            finally:
                await response.aclose()
        finally:
            pool.in_flight -= 1

    async def close(self) -> None:
        """Close the running loop's connections. Idempotent; the next request opens others."""
        await self._of_loop.close()

    async def _open(self, stack: AsyncExitStack) -> list[_Pool]:
        count = -(-self._concurrency // _POOL)
        limits = httpx.Limits(
            max_connections=-(-self._concurrency // count),
            max_keepalive_connections=_POOL,
            keepalive_expiry=_KEEP_ALIVE_SECONDS,
        )
        proxies = {} if proxy_bypass(self.url.host) else getproxies()
        proxy = proxies.get(self.url.scheme) or proxies.get("all")
        pools = [_Pool(verify=self._trusted, limits=limits, proxy=proxy) for _ in range(count)]
        for pool in pools:
            stack.push_async_callback(pool.aclose)
        return pools


class _Pool(httpx.AsyncHTTPTransport):
    """A transport and not a client, which would keep cookies and look into redirects."""

    in_flight = 0


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
        httpx.URL(url)
    except (ValueError, TypeError, AttributeError, httpx.InvalidURL) as error:
        raise Invalid("the upstream's url cannot be read", kind="bad_url") from error
    return parts
