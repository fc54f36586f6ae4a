# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""One hook for everything this package does: ``observe(hook)``, and the frozen values that hooks are given.

Owns: the values, who is told, and the log lines of events. Does not own: what becomes of the values. Logging,
OpenTelemetry and Prometheus have a module each; ``observers`` installs them by name. Without a hook a store
operation costs one look at an empty list more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from gym_objstore.errors import Conflict, Invalid, Retired
from gym_objstore.ids import spoken
from gym_objstore.keys import FAMILIES, RUN_FOLDER, parse

OK = "ok"
CANCELLED = "cancelled"
OTHER = "other"

EventName: TypeAlias = Literal[
    "loss",  # a call's record does not exist, or nobody may trust it
    "conflict",  # one identity, two different payloads
    "fence_hit",  # an operation met a tombstone and was refused
    "late_write_discarded",  # a write came after retirement, and nothing of it is left
    "spilled",  # a write waits on this machine's disk until the store takes it
    "spill_failed",  # the disk could not keep a write
    "replayed",  # a write that had waited is in the store
    "replay_postponed",  # the store does not take what waits yet
    "write_failed",  # a write failed whose caller is not told
    "uncaptured",  # a call is served or ends without a record of it
    "request_failed",  # a request was answered with an error, because the storage failed
    "left_out",  # a trainer's reader left a rollout out
]

_KINDS = frozenset(
    "records entries intents markers refusals packs fences rows failures receipts consumed".split()  # noqa: SIM905
)

_log = logging.getLogger("gym_objstore")


class Place(NamedTuple):
    """Which objects a key or prefix is about, in a few words that are safe to count by."""

    family: str
    kind: str


def place_of(key: str) -> Place:
    """Return the family and kind in a key; ``other`` for what is none of ours, an empty kind above the kinds."""
    family, _, rest = key.partition("/")
    _, _, rest = rest.partition("/")
    rollout, _, rest = rest.partition("/")
    kind = "run" if rollout == RUN_FOLDER else rest.partition("/")[0]
    return Place(family if family in FAMILIES else OTHER, kind if kind in _KINDS or kind in ("", "run") else OTHER)


@dataclass(frozen=True, slots=True)
class Operation:
    """One store operation that ended, all its attempts and pauses included.

    ``verb`` is ``put get head list delete``; ``key`` the key, the listed prefix, or the first key of a removal;
    ``objects`` what was touched or listed; ``bytes`` what was sent or received of bodies. ``outcome`` is ``ok``,
    the ``kind`` of the error, ``cancelled``, or ``other`` for an exception that is none of ours. A listing's
    seconds run to the end of its reader's loop.
    """

    verb: str
    key: str
    seconds: float
    outcome: str = OK
    bytes: int = 0
    objects: int = 1


@dataclass(frozen=True, slots=True)
class Retry:
    """An attempt got no answer and is repeated after ``pause`` seconds. Told at once: an outage shows as it lasts."""

    verb: str
    key: str
    kind: str
    pause: float


@dataclass(frozen=True, slots=True)
class Event:
    """Something an operator wants to know of. ``kind`` is a code of a closed set, ``detail`` free text.

    The key gives family and rollout where they are not said.
    """

    name: EventName
    rollout_id: str = ""
    model_call_id: str = ""
    key: str = ""
    family: str = ""
    kind: str = ""
    detail: str = ""

    def __post_init__(self) -> None:
        try:
            parts = parse(self.key)
        except Invalid:
            return
        object.__setattr__(self, "family", self.family or parts.family)
        object.__setattr__(self, "rollout_id", self.rollout_id or spoken(parts.rollout))

    @property
    def fields(self) -> dict[str, str]:
        """The structured fields of the event's log line, each a text that every exporter can encode."""
        return {
            "event": self.name,
            "family": self.family,
            "rollout_id": _printable(self.rollout_id),
            "model_call_id": _printable(self.model_call_id),
            "key": self.key,
            "kind": self.kind,
            "detail": _printable(self.detail),
        }


@dataclass(frozen=True, slots=True)
class SpillDepth:
    """How many writes wait in a folder of this machine for their store."""

    folder: str
    writes: int


Observation: TypeAlias = Operation | Retry | Event | SpillDepth
Hook: TypeAlias = Callable[[Observation], None]


class _Installed:
    """One hook, and whether its first failure was logged."""

    def __init__(self, hook: Hook) -> None:
        self._hook, self._failed = hook, False

    def tell(self, value: Observation) -> None:
        try:
            self._hook(value)
        except Exception:  # noqa: BLE001 - a hook may raise anything
            if not self._failed:
                self._failed = True
                _log.exception("a hook failed, which is logged once, hook=%r", self._hook)


hooks: list[_Installed] = []
"""Who is told, in this process. Only looked at elsewhere; ``observe`` changes it."""


def observe(hook: Hook) -> Callable[[], None]:
    """Call ``hook`` with every value from now on, in this process; return what ends that.

    It is called where the thing happens, from any thread and from event loops, so it must be quick and must not
    block. Whatever it raises is logged once and fails nothing.
    """
    installed = _Installed(hook)
    hooks.append(installed)

    def remove() -> None:
        if installed in hooks:
            hooks.remove(installed)

    return remove


def tell(value: Observation) -> None:
    """Give a value to every hook."""
    for installed in tuple(hooks):
        installed.tell(value)


def report(event: Event, message: str, *values: Any, level: int = logging.WARNING, exc_info: bool = False) -> None:
    """Log an event for people, with its fields for machines, and tell the hooks."""
    said = [value if isinstance(value, int) else _printable(value) for value in values]
    _log.log(level, message, *said, extra=event.fields, exc_info=exc_info)
    tell(event)


def report_refusal(error: Conflict | Retired) -> None:
    """Report what a flow refused. Its caller is told by the error, so a fence is no warning."""
    if isinstance(error, Retired):
        event = Event("fence_hit", key=error.key, kind=error.kind)
        report(event, "an operation met a tombstone, key=%s", error.key, level=logging.INFO)
    else:
        event = Event("conflict", key=error.key, kind=error.kind, detail=error.message)
        report(event, "two payloads have one identity, key=%s, error=%s", error.key, error.message)


def _printable(value: object) -> str:
    """Return a text without line ends, control characters and lone surrogates: ids may be anything."""
    text = str(value)
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
