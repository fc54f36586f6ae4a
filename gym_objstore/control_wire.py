# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What both ends of the control routes agree on: the paths, the ids that a path can carry, the bearer token.

The wire is nemo-gym's. It is narrower than storage, which takes any id: a rollout whose id does not fit
here is retired with the components or on the command line.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable

from gym_objstore.errors import Invalid
from gym_objstore.ids import require_id, require_ids

PREFIX = "/training-token-capture/control"
MANIFEST, RETIRE, DELETE = "manifest", "retire", "delete"

BATCH_LIMIT = 4096
"""Rollout ids in one request."""

ID_LIMIT = 1000
"""Characters of one id, so that a full batch stays far below the body limit and a path below any server's."""

_ID = re.compile(r"[A-Za-z0-9._-]+")
_DOT_SEGMENTS = {".", ".."}
_SHOWN = 80


def require_wire_id(rollout_id: str) -> str:
    """Return a rollout id that the control routes can carry, or raise ``Invalid``.

    Letters, digits and ``. _ -`` only, as nemo-gym's stores take them; not a dot segment, which a client or
    a proxy would resolve into another rollout's path.
    """
    require_id(rollout_id, "rollout id")
    if len(rollout_id) > ID_LIMIT or rollout_id in _DOT_SEGMENTS or not _ID.fullmatch(rollout_id):
        raise Invalid(
            f"the control routes cannot carry this rollout id, rollout_id={rollout_id[:_SHOWN]!r}",
            kind="bad_id",
            hint=f"they take at most {ID_LIMIT} ASCII letters, digits, '.', '_' and '-', and no dot segment",
        )
    return rollout_id


def require_wire_ids(rollout_ids: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct ids in first-seen order, after all were checked; a bare string is a ``TypeError``."""
    return tuple(require_wire_id(one) for one in require_ids(rollout_ids, "rollout ids"))


def require_token(token: str) -> bytes:
    """Return the bytes of a bearer token, or raise ``Invalid`` for one that no header carries unchanged."""
    if not token or not isinstance(token, str):
        raise Invalid("the control routes need a non-empty bearer token", kind="bad_token")
    if not token.isprintable() or " " in token:
        raise Invalid(
            "the bearer token has a space, a line end or another character that no header carries",
            kind="bad_token",
            hint="strip what was read from a file",
        )
    return token.encode()


def is_secret(given: bytes, secret: bytes) -> bool:
    """Say whether what was given is the secret, in a time that tells neither what the secret is nor how long."""
    return hmac.compare_digest(hashlib.sha256(given).digest(), hashlib.sha256(secret).digest())
