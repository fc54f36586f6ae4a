# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a law of a token transport is tried with: the transport, fresh clients, and what counts as a refusal."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gym_objstore.errors import Conflict, Invalid, Retired
from gym_objstore.records import TokenEntry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@dataclass(frozen=True)
class Transport:
    """A transport under test. Each factory returns a new client of the same shared backend.

    ``entry`` builds the record class that the sink takes; ``refusals`` are the exceptions by which the
    transport refuses a write.
    """

    sink: Callable[[], Any]
    source: Callable[[], Any]
    resolver: Callable[[], Any] | None = None
    entry: Callable[..., Any] = TokenEntry
    refusals: tuple[type[Exception], ...] = (Retired, Conflict, Invalid)


class Broken(AssertionError):
    """A law does not hold."""


class NotOffered(Exception):
    """The transport does not offer what a law is about."""


LAWS: dict[str, Any] = {}


def law(check: Any) -> Any:
    """Add a check to the laws; its docstring is the promise."""
    LAWS[check.__name__] = check
    return check


@dataclass
class Trial:
    """One law being tried: fresh clients, closed at the end, and a rollout of its own."""

    transport: Transport
    rollout_id: str
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)

    def sink(self) -> Any:
        """Return a fresh sink."""
        return self._fresh(self.transport.sink)

    def source(self) -> Any:
        """Return a fresh source."""
        return self._fresh(self.transport.source)

    def resolver(self) -> Any:
        """Return a fresh resolver."""
        if self.transport.resolver is None:
            raise NotOffered("no resolver")
        return self._fresh(self.transport.resolver)

    def _fresh(self, factory: Callable[[], Any]) -> Any:
        client = factory()
        self.closing.push_async_callback(client.close)
        return client

    async def refuses(self, attempt: Awaitable[Any]) -> bool:
        """Say whether a write is refused. Any other exception is the law's failure."""
        try:
            await attempt
        except self.transport.refusals:
            return True
        return False


def require(holds: bool, complaint: str) -> None:  # noqa: FBT001 - reads as an assertion
    """Raise ``Broken`` unless something holds."""
    if not holds:
        raise Broken(complaint)
