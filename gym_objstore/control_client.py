# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``RolloutControlClient``: a trainer's side of the control routes, ours or nemo-gym's.

Owns what is sent, what is believed of an answer, and which error each failure is. Every operation may be
repeated, so a request without an answer is, within a budget. Needs httpx, the extra ``control``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson

from gym_objstore import errors
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
from gym_objstore.errors import Corrupt, Invalid, ObjstoreError, Unavailable, Unusable
from gym_objstore.store.retrying import Patience
from gym_objstore.store.scopes import LoopResource, PerLoop

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AsyncExitStack

    import httpx

    from gym_objstore.wire_ledger import RolloutManifest, RolloutRemoval

REQUESTS = 32
"""Requests in flight of one client on one event loop; others wait for their turn, which no timeout counts."""

ANSWER_LIMIT = 256 * 1024 * 1024
"""Bytes of an answer: a manifest of a quarter of a million calls."""

_CONNECT_SECONDS = 10.0
_SAID_LIMIT = 300


class Answer(NamedTuple):
    """What a server said; ``pause`` is how many seconds it asked to wait, 0 where it did not."""

    status: int
    body: bytes
    pause: float


_SILENCE = Answer(0, b"", 0.0)


class _Meaning(NamedTuple):
    error: type[ObjstoreError]
    kind: str
    text: str
    hint: str = ""


_MEANINGS = {
    400: _Meaning(Invalid, "refused", "the control server refused the request"),
    401: _Meaning(errors.Denied, "bad_token", "the control server refused the bearer token", "use the server's token"),
    403: _Meaning(errors.Denied, "access_denied", "the control server refused access"),
    409: _Meaning(errors.Conflict, "removal_refused", "the server removes nothing for now", "repeat it later"),
    410: _Meaning(errors.Retired, "retired", "the rollout is retired"),
    413: _Meaning(Invalid, "too_large", "the control server refused the size of the request"),
    422: _Meaning(Invalid, "refused", "the control server refused the request"),
    429: _Meaning(Unavailable, "throttled", "the control server asks for fewer requests"),
}
_ELSEWHERE = _Meaning(
    Invalid,
    "no_route",
    "the server has no such control route",
    "check the base url; nemo-gym 0.7.0 serves manifests only, install_rollout_control_routes adds the others",
)
_FAILED = _Meaning(Unavailable, "unavailable", "the control server failed")
_VERDICTS = {
    one.__name__.lower(): one
    for one in (errors.Conflict, Corrupt, errors.Denied, Invalid, errors.NotFound, errors.Retired, Unusable)
}


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
        found = _manifest_of(await self._ask("GET", path), path)
        if found.rollout_id != rollout_id:
            text = f"the server sent another rollout's manifest, asked={rollout_id}, found={found.rollout_id[:80]!r}"
            raise Corrupt(text, kind="misplaced", key=path)
        return found

    async def retire(self, rollout_ids: Iterable[str]) -> RolloutRemoval:
        """Fence ledgers and remove their rows; staged rows stay.

        Returns when: every id is fenced. Ids are sent in batches, each id once.
        Repeating: changes nothing, and reports the rollouts absent; it finishes what an error interrupted.
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
        from gym_objstore.wire_ledger import RolloutRemoval

        ids, path = require_wire_ids(rollout_ids), f"/rollouts/{operation}"
        removed: list[str] = []
        absent: list[str] = []
        for start in range(0, len(ids), BATCH_LIMIT):
            batch = ids[start : start + BATCH_LIMIT]
            found = _removal_of(await self._ask("POST", path, orjson.dumps({"rollout_ids": batch})), path)
            if sorted((*found.removed, *found.absent)) != sorted(batch):
                raise Corrupt("the server reports other rollouts than it was sent", kind="misplaced", key=path)
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
                raise _refusal(answer, path, self._bearer)
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
                headers={"authorization": b"Bearer " + self._bearer, "content-type": b"application/json"},
                timeout=httpx.Timeout(self._timeout, connect=min(_CONNECT_SECONDS, self._timeout)),
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


def _refusal(answer: Answer, path: str, secret: bytes) -> ObjstoreError:
    """Return the error that an answer other than 200 is. What it says is shown without the token.

    A 500 of ours names the error that it is; any other one may be a server that is not well, for now.
    """
    said = _object(answer.body)
    meaning = _MEANINGS.get(answer.status, _FAILED if answer.status >= 500 else _ELSEWHERE)  # noqa: PLR2004
    error = meaning.error
    if answer.status == 500:  # noqa: PLR2004
        error = _VERDICTS.get(str(said.get("error")), error)
    detail = said.get("detail") or answer.body.decode(errors="replace")
    shown = str(detail).replace(secret.decode(), "***")[:_SAID_LIMIT]
    text = f"{meaning.text}, status={answer.status}, said={shown!r}"
    kind = said.get("kind")
    return error(text, kind=kind if isinstance(kind, str) else meaning.kind, key=path, hint=meaning.hint)


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _manifest_of(body: bytes, path: str) -> RolloutManifest:
    from pydantic import ValidationError

    from gym_objstore.reasons import FailureReason
    from gym_objstore.wire_ledger import RolloutManifest

    try:
        return RolloutManifest.model_validate(orjson.loads(body))
    except (ValidationError, orjson.JSONDecodeError) as error:
        text = f"the server's answer is no manifest of schema version 2, error={_first_line(error)}"
        raise Corrupt(text, kind=str(FailureReason.INVALID_MANIFEST_ROW), key=path) from error


def _removal_of(body: bytes, path: str) -> RolloutRemoval:
    from pydantic import ValidationError

    from gym_objstore.wire_ledger import RolloutRemoval

    try:
        return RolloutRemoval.model_validate(orjson.loads(body))
    except (ValidationError, orjson.JSONDecodeError) as error:
        text = f"the server's answer does not say what was removed, error={_first_line(error)}"
        raise Corrupt(text, kind="bad_removal", key=path) from error


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_SAID_LIMIT]


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
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < float("inf"):
        raise Invalid(
            f"{name} must be a finite number of seconds, at least {least:g}, value={value!r}", kind="bad_option"
        )
    return float(value)
