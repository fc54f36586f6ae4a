# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The laws of a token transport, one check each, for ours and for anybody's.

``run_conformance(transport)`` plays every law with fresh clients and its own rollouts and reports all
outcomes, not only the first failure. A refusal counts only if it is one of the transport's declared
refusals: an ``AttributeError`` is a failure, not a refusal. ``assert_conformance`` raises with the list.
"""

from __future__ import annotations

import traceback
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

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


class Outcome(NamedTuple):
    """What one law gave: ``passed``, ``failed`` or ``skipped`` with the reason or the traceback."""

    law: str
    promise: str
    verdict: str
    detail: str = ""


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


async def run_conformance(transport: Transport, *, prefix: str | None = None) -> list[Outcome]:
    """Try every law on rollouts whose ids begin with ``prefix`` and return all outcomes."""
    from gym_objstore.testing import token_laws  # noqa: F401 - fills LAWS

    prefix = prefix or f"conformance-{uuid.uuid4().hex[:8]}"
    return [
        await _try(name, check, transport, f"{prefix}-{number}") for number, (name, check) in enumerate(LAWS.items())
    ]


async def assert_conformance(transport: Transport, *, prefix: str | None = None) -> list[Outcome]:
    """Try every law; raise ``Broken`` that lists all failures, if there are any."""
    outcomes = await run_conformance(transport, prefix=prefix)
    if failures := [one for one in outcomes if one.verdict == "failed"]:
        raise Broken("\n".join(f"{one.law}: {one.promise}\n{one.detail}" for one in failures))
    return outcomes


async def _try(name: str, check: Any, transport: Transport, rollout_id: str) -> Outcome:
    promise = (check.__doc__ or "").strip().splitlines()[0]
    trial = Trial(transport, rollout_id)
    try:
        async with trial.closing:
            await check(trial)
    except NotOffered as reason:
        return Outcome(name, promise, "skipped", str(reason))
    except Exception:  # noqa: BLE001 - whatever was raised, the law does not hold
        return Outcome(name, promise, "failed", traceback.format_exc())
    return Outcome(name, promise, "passed")
