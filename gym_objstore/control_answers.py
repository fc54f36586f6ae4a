# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What the control client believes of an answer, and which error each refusal is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import orjson
from pydantic import ValidationError

from gym_objstore import errors
from gym_objstore.errors import Corrupt, Invalid, ObjstoreError, Unavailable, Unusable
from gym_objstore.reasons import FailureReason
from gym_objstore.wire_ledger import RolloutManifest, RolloutRemoval

if TYPE_CHECKING:
    from collections.abc import Sequence

R = TypeVar("R", RolloutManifest, RolloutRemoval)

_FAILED = 500
_SAID_LIMIT = 300


class Answer(NamedTuple):
    """What a server said; ``pause`` is how many seconds it asked to wait, 0 where it did not."""

    status: int
    body: bytes
    pause: float


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
_BROKEN = _Meaning(Unavailable, "unavailable", "the control server failed")
_VERDICTS = {
    one.__name__.lower(): one
    for one in (errors.Conflict, Corrupt, errors.Denied, Invalid, errors.NotFound, errors.Retired, Unusable)
}


def refusal(answer: Answer, path: str, secret: bytes) -> ObjstoreError:
    """Return the error that an answer other than 200 is. What it says is shown without the token.

    A 500 of ours names the error that it is; any other one may be a server that is not well, for now.
    """
    said = _object(answer.body)
    meaning = _MEANINGS.get(answer.status, _BROKEN if answer.status >= _FAILED else _ELSEWHERE)
    error = meaning.error
    if answer.status == _FAILED:
        error = _VERDICTS.get(str(said.get("error")), error)
    detail = said.get("detail") or answer.body.decode(errors="replace")
    shown = str(detail).replace(secret.decode(), "***")[:_SAID_LIMIT]
    text = f"{meaning.text}, status={answer.status}, said={shown!r}"
    ours = said.get("error") == error.__name__.lower()
    kind = str(said.get("kind")) if ours else meaning.kind
    return error(text, kind=kind, key=path, hint=meaning.hint)


def manifest_in(body: bytes, rollout_id: str, path: str) -> RolloutManifest:
    """Return the manifest that a server sent for a rollout; raises ``Corrupt`` for anything else."""
    found = _read(RolloutManifest, body, path)
    if found.rollout_id != rollout_id:
        text = f"the server sent another rollout's manifest, asked={rollout_id}, found={found.rollout_id[:80]!r}"
        raise Corrupt(text, kind="misplaced", key=path)
    return found


def removal_in(body: bytes, batch: Sequence[str], path: str) -> RolloutRemoval:
    """Return what a server says it removed of a batch, each id once; raises ``Corrupt`` for anything else."""
    found = _read(RolloutRemoval, body, path)
    if sorted((*found.removed, *found.absent)) != sorted(batch):
        raise Corrupt("the server reports other rollouts than it was sent", kind="misplaced", key=path)
    return found


def _read(record: type[R], body: bytes, path: str) -> R:
    try:
        return record.model_validate(orjson.loads(body))
    except (ValidationError, orjson.JSONDecodeError) as error:
        said = " ".join(str(error).split())[:_SAID_LIMIT]
        kind = FailureReason.INVALID_MANIFEST_ROW if record is RolloutManifest else "bad_removal"
        raise Corrupt(f"the answer is no {record.__name__}, error={said}", kind=str(kind), key=path) from error


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
