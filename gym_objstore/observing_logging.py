# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A log line for every store operation and retry, with structured fields. Events are logged without it.

The fields are attributes of the record (``event``, ``verb``, ``key`` ...), where a JSON formatter finds them. The
logger is ``gym_objstore.operations``; what became of it is the application's configuration.
"""

from __future__ import annotations

import logging
from dataclasses import asdict

from gym_objstore.observing import OK, Event, Observation, Operation, Retry, SpillDepth, place_of

_log = logging.getLogger("gym_objstore.operations")
_FINE = frozenset({OK, "notfound"})


class LogLines:
    """A hook that logs: at ``DEBUG`` what went well, at ``WARNING`` failures and retries."""

    def __call__(self, value: Observation) -> None:
        """Log one observation."""
        match value:
            case Operation(verb, key, seconds, outcome):
                level = logging.DEBUG if outcome in _FINE else logging.WARNING
                said = "store operation, verb=%s, outcome=%s, seconds=%.4f, key=%s"
                _log.log(level, said, verb, outcome, seconds, key, extra=_fields("operation", value, key))
            case Retry(verb, key, kind, pause):
                said = "store operation is repeated, verb=%s, kind=%s, pause=%.2f, key=%s"
                _log.warning(said, verb, kind, pause, key, extra={**_fields("retry", value, key), "kind": kind})
            case SpillDepth(folder, writes):
                extra = {"event": "spill_depth", "folder": folder, "writes": writes}
                _log.debug("writes wait on disk, writes=%d, folder=%s", writes, folder, extra=extra)
            case Event():
                pass


def _fields(event: str, value: Operation | Retry, key: str) -> dict[str, object]:
    family, kind = place_of(key)
    return {"event": event, "family": family, "object_kind": kind, **asdict(value)}
