# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Who refers to a run's staged rows, read from whole listings and remembered in a few bytes for each object.

Owns what counts as a reference and the refusal to go on where one cannot be read. What follows from it, and in
which order the families are read, is for ``sweeping``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from gym_objstore.digests import sha256_hex
from gym_objstore.errors import Corrupt, ObjstoreError
from gym_objstore.flow import Find, Flow, fold, together
from gym_objstore.keys import FENCES, RECEIPTS, RUN_FOLDER, TOMBSTONE, kind_prefix, run_prefix
from gym_objstore.names import StagedName, parse_drop_name, parse_receipt_name, parse_row_name, parse_staged_name
from gym_objstore.store import batches
from gym_objstore.store.marks import Marks, mark_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gym_objstore.store import Meta

_ROWS = "rows/"
_FENCED = kind_prefix("", FENCES)
_STONE = f"{FENCES}/{TOMBSTONE}"
_WIDTH = 16


def below(prefix: str, metas: Iterable[Meta]) -> Iterator[tuple[str, str, Meta]]:
    """Yield the rollout's segment, the name below it and the meta data of each rollout object below a run's prefix."""
    for meta in metas:
        rollout, _, name = meta.key[len(prefix) :].partition("/")
        if rollout != RUN_FOLDER and name and not name.endswith("/"):
            yield rollout, name, meta


def staged_name(name: str) -> StagedName | None:
    """Read the name of a staged row below its rollout; what is no row of this format is None and left alone."""
    return parse_staged_name(name[len(_ROWS) :]) if name.startswith(_ROWS) else None


class Rows:
    """The staged rows that are old enough to judge: rollout, call and row, 16 bytes of each."""

    def __init__(self) -> None:
        self.count = self.young = 0
        self._old = bytearray()

    def add(self, rollout: str, name: StagedName) -> None:
        """Remember an old row."""
        for text in (rollout, f"{rollout}/{name.call}", f"{rollout}/{name.text}"):
            self._old += mark_of(text)

    def __iter__(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        old = bytes(self._old)
        for start in range(0, len(old), 3 * _WIDTH):
            yield tuple(old[at : at + _WIDTH] for at in range(start, start + 3 * _WIDTH, _WIDTH))  # type: ignore[misc]

    def keep(self, doubtful: Callable[[bytes, bytes, bytes], bool]) -> None:
        """Forget the rows that are not in doubt any more."""
        self._old = bytearray().join(b"".join(row) for row in self if doubtful(*row))

    @property
    def rollouts(self) -> Marks:
        """The rollouts that have a row in doubt."""
        found = Marks()
        for rollout, _, _ in self:
            found.put(rollout)
        return found

    @property
    def several(self) -> Marks:
        """The calls that have more than one row in doubt."""
        once, again = Marks(), Marks()
        for _, call, _ in self:
            if not once.put(call):
                again.put(call)
        return again

    @property
    def marks(self) -> Marks:
        """The rows in doubt, as ``rollout/name``."""
        found = Marks()
        for _, _, row in self:
            found.put(row)
        return found


class Fences:
    """Which rollouts of a family are retired, and which have anything but fences."""

    def __init__(self, before: float) -> None:
        self.retired, self._occupied = Marks(), Marks()
        self._before, self._drops = before, Marks()

    def add(self, rollout: bytes, name: str, meta: Meta) -> None:
        """Sort one object in."""
        if name == _STONE:
            self.retired.put(rollout)
        elif not name.startswith(_FENCED):
            self._occupied.put(rollout)
        elif meta.modified <= self._before:
            self._drops.put(rollout)

    @property
    def has_rests(self) -> bool:
        """Whether anything stands behind a tombstone, an old drop-intent included."""
        return self.retired.meets(self._occupied) or self.retired.meets(self._drops)

    def is_late(self, rollout: str, name: str) -> bool:
        """Say whether an object stands behind a tombstone."""
        return not name.startswith(_FENCED) and rollout in self.retired

    def is_stale_drop(self, rollout: str, name: str) -> bool:
        """Say whether a drop-intent has nothing left to do: its rollout is retired and the data that it names is gone.

        Before that it keeps rivals from dropping another snapshot, and its consumer may sleep for any time.
        """
        drop = name.startswith(_FENCED) and parse_drop_name(name[len(_FENCED) :])
        return bool(drop) and rollout in self.retired and rollout not in self._occupied


class References:
    """What the listing of one family says of the rows in doubt.

    ``calls`` are those that an intent or a ledger row names; ``read`` the keys of objects that have to be read
    to know, by rollout; ``foreign`` an object that this version cannot understand, for each rollout that has one.
    """

    def __init__(self, prefix: str, before: float) -> None:
        self.fences, self.calls = Fences(before), Marks()
        self.read: list[tuple[bytes, str]] = []
        self.foreign: dict[bytes, str] = {}
        self._prefix = prefix
        self._last, self._rollout = "", b""

    def take(self, metas: Iterable[Meta], refer: Callable[[bytes, str, str, Meta], None]) -> None:
        """Sort a page in; ``refer`` gets the rollout's mark and segment, and the name, of what is no fence."""
        for rollout, name, meta in below(self._prefix, metas):
            if rollout != self._last:
                self._last, self._rollout = rollout, mark_of(rollout)
            self.fences.add(self._rollout, name, meta)
            if not name.startswith(_FENCED):
                refer(self._rollout, rollout, name, meta)

    def standing(self) -> list[str]:
        """Return the keys to read of rollouts that are not retired. Raises ``Corrupt`` for a foreign one there."""
        for rollout, key in self.foreign.items():
            if not self.fences.retired.has(rollout):
                raise _foreign(key)
        return [key for rollout, key in self.read if not self.fences.retired.has(rollout)]


def read_rows(family: str, run_id: str, before: float) -> Flow[Rows]:
    """List the staged rows of a run."""
    prefix, rows = run_prefix(family, run_id), Rows()

    def take(metas: Iterable[Meta]) -> None:
        for rollout, name, meta in below(prefix, metas):
            if (staged := staged_name(name)) is not None:
                rows.count += 1
                if meta.modified <= before:
                    rows.add(rollout, staged)
                else:
                    rows.young += 1

    yield from _fold(prefix, take)
    return rows


def pass_admitted(family: str, run_id: str, before: float, rows: Rows) -> Flow[Fences]:
    """Forget the rows whose call has a standing intent."""
    prefix = run_prefix(family, run_id)
    found = References(prefix, before)

    def refer(_: bytes, rollout: str, name: str, __: Meta) -> None:
        if name.startswith("intents/"):
            found.calls.add(f"{rollout}/{name[len('intents/') :]}")

    yield from _fold(prefix, lambda metas: found.take(metas, refer))
    retired = found.fences.retired
    rows.keep(lambda rollout, call, _: retired.has(rollout) or not found.calls.has(call))
    return found.fences


def pass_recorded(family: str, run_id: str, before: float, rows: Rows) -> Flow[Fences]:
    """Forget the rows that a ledger row names. A call's only row is taken to be the one that is meant."""
    prefix = run_prefix(family, run_id)
    found, wanted, several = References(prefix, before), rows.rollouts, rows.several

    def refer(mark: bytes, rollout: str, name: str, meta: Meta) -> None:
        if not name.startswith(_ROWS) or not wanted.has(mark):
            return
        if (row := parse_row_name(name[len(_ROWS) :])) is None:
            found.foreign.setdefault(mark, meta.key)
        else:
            call = f"{rollout}/{row.call}"
            found.calls.add(call)
            if call in several:
                found.read.append((mark, meta.key))

    yield from _fold(prefix, lambda metas: found.take(metas, refer))
    named = yield from _named_by(found.standing(), _row_key)
    retired = found.fences.retired
    rows.keep(
        lambda rollout, call, row: (
            retired.has(rollout) or not found.calls.has(call) or (several.has(call) and not named.has(row))
        )
    )
    return found.fences


def pass_published(family: str, run_id: str, before: float, rows: Rows) -> Flow[Fences]:
    """Forget the rows that a receipt names."""
    prefix = run_prefix(family, run_id)
    found, wanted, start = References(prefix, before), rows.rollouts, kind_prefix("", RECEIPTS)

    def refer(mark: bytes, _: str, name: str, meta: Meta) -> None:
        if not name.startswith(start) or not wanted.has(mark):
            return
        if parse_receipt_name(name[len(start) :]) is None:
            found.foreign.setdefault(mark, meta.key)
        else:
            found.read.append((mark, meta.key))

    yield from _fold(prefix, lambda metas: found.take(metas, refer))
    named = yield from _named_by(found.standing(), _receipt_keys)
    rows.keep(lambda _, __, row: not named.has(row))
    return found.fences


def _fold(prefix: str, take: Callable[[tuple[Meta, ...]], object]) -> Flow[None]:
    try:
        yield from fold(prefix, take)
    except Corrupt:
        raise
    except ObjstoreError as error:
        raise _unread(error, prefix) from error


def _unread(error: ObjstoreError, source: str) -> ObjstoreError:
    reason = f"nothing is swept, because a source of references cannot be read, source={source}, error={error.message}"
    return type(error)(reason, kind=error.kind, key=error.key, hint=error.hint)


def _named_by(keys: list[str], names: Callable[[str, bytes], Iterable[str]]) -> Flow[Marks]:
    """Return what objects name. One that is gone since it was listed was retired, and names nothing any more."""
    named = Marks()
    for batch in batches(keys):
        try:
            found = yield from together(Find(key, partial(names, key)) for key in batch)
        except ObjstoreError as error:
            raise _unread(error, error.key) from error
        for name in (name for one in found if one is not None for name in one):
            named.add(name)
    return named


def _row_key(key: str, body: bytes) -> tuple[str, ...]:
    try:
        return _staging_keys([_undamaged(key, body)["record"]])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise _foreign(key) from error


def _receipt_keys(key: str, body: bytes) -> tuple[str, ...]:
    try:
        return _staging_keys(_undamaged(key, body)["receipt"]["manifest"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise _foreign(key) from error


def _staging_keys(rows: Any) -> tuple[str, ...]:
    found = tuple(row["staging_key"] for row in rows)
    if not all(isinstance(one, str) for one in found):
        raise TypeError(found)
    return found


def _undamaged(key: str, body: bytes) -> Any:
    """Parse an object whose name ends in its digest: one changed letter would hide the row that it names."""
    if not key.endswith(sha256_hex(body)):
        raise _foreign(key)
    return orjson.loads(body)


def _foreign(key: str) -> Corrupt:
    reason = "nothing is swept, because an object that may refer to staged rows cannot be read"
    return Corrupt(reason, kind="foreign_object", key=key, hint="upgrade gym_objstore, or remove or retire it")
