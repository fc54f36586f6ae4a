# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``RolloutControlClient``: a trainer's side of the control routes, ours or nemo-gym's.

Owns what is sent, how long it may take and how often it is repeated: every operation may be, so what got no
answer is, within a budget. What an answer means is in ``control_answers``. Needs httpx, the extra ``control``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import orjson

from gym_objstore.control_answers import Answer, manifest_in, refusal, removal_in
from gym_objstore.control_wire import (
    BATCH_LIMIT,
    DELETE,
    MANIFEST,
    PREFIX,
    RETIRE,
    require_token,
    require_wire_id,
    require_wire_ids,
)
from gym_objstore.errors import Corrupt, Invalid, Unavailable, Unusable
from gym_objstore.store.retrying import Patience
from gym_objstore.store.scopes import LoopResource, PerLoop
from gym_objstore.wire_ledger import RolloutRemoval

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AsyncExitStack

    import httpx

    from gym_objstore.wire_ledger import RolloutManifest

REQUESTS = 32
"""Requests in flight of one client on one event loop; others wait for their turn, which no timeout counts."""

ANSWER_LIMIT = 256 * 1024 * 1024
"""Bytes of an answer: a manifest of a quarter of a million calls."""

_CONNECT_SECONDS = 10.0
_SILENCE = Answer(0, b"", 0.0)


class RolloutControlClient:
    """Reads manifests from a model server and retires and deletes its ledgers.

    ``base_url`` is the server's address, to which the control prefix is added. A request may take
    ``timeout`` seconds; what failed is repeated for ``retry_seconds`` after its first failure. One client
    serves many tasks and event loops. It holds a secret and is not pickled. Raises ``Invalid`` for a bad
    address, token or number, ``Unusable`` where httpx is missing.
    """

    def __init__(self, base_url: str, token: str, *, timeout: float = 120.0, retry_seconds: float = 60.0) -> None:
        self._url = _require_url(base_url) + PREFIX
        self._bearer = require_token(token)
        self._timeout = _require_seconds("timeout", timeout, 0.001)
        self._retry_seconds = _require_seconds("retry_seconds", retry_seconds, 0.0)
        self._http = LoopResource(self._open)
        self._turns = PerLoop(lambda: asyncio.Semaphore(REQUESTS))

    async def manifest(self, rollout_id: str) -> RolloutManifest:
        """Return a rollout's manifest.

        Raises: ``Invalid`` for a bad id, before anything is sent; ``Retired``; ``Corrupt`` for another
        rollout's manifest and, with the kind ``invalid_manifest_row``, for one of another schema version or
        with unknown fields; ``Denied``; ``Unavailable`` when the budget is spent.
        """
        path = f"/rollouts/{require_wire_id(rollout_id)}/{MANIFEST}"
        return manifest_in(await self._ask("GET", path), rollout_id, path)

    async def retire(self, rollout_ids: Iterable[str]) -> RolloutRemoval:
        """Fence ledgers and remove their rows; staged rows stay.

        Returns when: every id is fenced. Ids are sent in batches, each id once.
        Repeating: finishes what an error interrupted and changes nothing else. What was removed before is
        then reported absent, also when it was this client that repeated a request whose answer was lost.
        Raises: ``TypeError`` for a bare string and ``Invalid`` for a bad id, before anything is sent;
        ``Conflict`` of the kind ``removal_refused`` while the server refuses; ``Denied``; ``Corrupt``;
        ``Unavailable`` when the budget is spent.
        """
        return await self._remove(RETIRE, rollout_ids)

    async def delete(self, rollout_ids: Iterable[str]) -> RolloutRemoval:
        """Remove ledgers and their fences, so that the ids can be used again; else as ``retire``.

        Safe only once no call of these rollouts can still arrive.
        """
        return await self._remove(DELETE, rollout_ids)

    async def close(self) -> None:
        """Close the running loop's connections. Idempotent; the next request opens others."""
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url.removesuffix(PREFIX)!r}, timeout={self._timeout:g})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise Unusable("a client holds a secret and is never pickled or copied", kind="secret")

    async def _remove(self, operation: str, rollout_ids: Iterable[str]) -> RolloutRemoval:
        ids, path = require_wire_ids(rollout_ids), f"/rollouts/{operation}"
        removed: list[str] = []
        absent: list[str] = []
        for start in range(0, len(ids), BATCH_LIMIT):
            batch = ids[start : start + BATCH_LIMIT]
            found = removal_in(await self._ask("POST", path, orjson.dumps({"rollout_ids": batch})), batch, path)
            removed += found.removed
            absent += found.absent
        return RolloutRemoval(removed=tuple(removed), absent=tuple(absent))

    async def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Return the body of a 200, repeating what got no answer."""
        answer = _SILENCE
        patience = Patience(method, path, self._retry_seconds, lambda _: answer.pause)
        while True:
            try:
                answer = _SILENCE
                answer = await self._send(method, path, body)
                if answer.status == 200:  # noqa: PLR2004 - no other status carries what was asked for
                    return answer.body
                raise refusal(answer, path, self._bearer)
            except Unavailable as error:
                pause = patience.pause(error)
            await asyncio.sleep(pause)

    async def _send(self, method: str, path: str, body: bytes | None) -> Answer:
        import httpx

        async with self._turns():
            http = await self._http()
            try:
                async with (
                    asyncio.timeout(self._timeout),
                    http.stream(method, self._url + path, content=body) as response,
                ):
                    said = await _read(response, path)
            except TimeoutError as error:
                text = f"the control server did not answer in time, timeout={self._timeout:g}"
                raise Unavailable(text, kind="timeout", key=path) from error
            except httpx.HTTPError as error:
                text = f"the control server cannot be reached, error={type(error).__name__}: {error}"
                raise Unavailable(text, kind="unreachable", key=path) from error
        asked = response.headers.get("retry-after", "")
        return Answer(response.status_code, said, float(asked) if asked.isdecimal() else 0.0)

    async def _open(self, stack: AsyncExitStack) -> httpx.AsyncClient:
        import httpx

        return await stack.enter_async_context(
            httpx.AsyncClient(
                headers={b"authorization": b"Bearer " + self._bearer, b"content-type": b"application/json"},
                timeout=httpx.Timeout(None, connect=min(_CONNECT_SECONDS, self._timeout)),
                limits=httpx.Limits(max_connections=REQUESTS, max_keepalive_connections=REQUESTS),
            )
        )


async def _read(response: httpx.Response, path: str) -> bytes:
    said = bytearray()
    async for part in response.aiter_bytes():
        said += part
        if len(said) > ANSWER_LIMIT:
            raise Corrupt(f"the answer is too large, limit={ANSWER_LIMIT}", kind="too_large", key=path)
    return bytes(said)


def _require_url(base_url: str) -> str:
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise Unusable(
            "the control client needs httpx", kind="missing_extra", hint="pip install 'gym-objstore[control]'"
        ) from error
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError) as error:
        raise Invalid("the control server's address is not a URL", kind="bad_url") from error
    if url.userinfo:
        raise Invalid("the control server's address holds credentials; only the token is used", kind="secret_in_url")
    if url.scheme not in {"http", "https"} or not url.host or url.query or url.fragment:
        raise Invalid(f"not the address of an HTTP server, base_url={base_url[:200]!r}", kind="bad_url")
    return str(url).rstrip("/")


def _require_seconds(name: str, value: float, least: float) -> float:
    if type(value) not in {int, float} or not least <= value < float("inf"):
        raise Invalid(
            f"{name} must be a finite number of seconds, at least {least:g}, value={value!r}", kind="bad_option"
        )
    return float(value)
