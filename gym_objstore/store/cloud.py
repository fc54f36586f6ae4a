# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What every client of a bucket does alike: certain absence, removal in batches, and successes that are none."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING

from gym_objstore.errors import Denied, Invalid, NotFound, Unavailable
from gym_objstore.store import Meta, batches
from gym_objstore.store.answers import BAD_RANGE, NOT_SUPPORTED, no_answer
from gym_objstore.store.paired import Conversation, PairedStore, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gym_objstore.store.options import StoreOptions


ANY_KEY = "!none"
"""The name of an object that is asked for where a prefix is all there is; it hardly exists."""

_SPOILED = ("notfound", NOT_SUPPORTED, "bad_answer")
"""Kinds of error after which a batch is removed one by one."""


class CloudStore(PairedStore):
    """A bucket. A backend adds the single requests; what several of them together mean is here.

    A server that is no object store (a console, a proxy's login page) may answer a listing or a removal in a
    way that reads as "nothing there" or "done". Neither is believed until the bucket was seen: until an
    answer had the marks of one, or named an object as absent.
    """

    def __init__(self, options: StoreOptions) -> None:
        super().__init__(options)
        self._bucket_seen = False
        self._takes_bulk = True

    @abstractmethod
    def _ask_head(self, key: str) -> Conversation[Meta]:
        """Ask for meta data in one request; ``NotFound`` may mean that the bucket is missing."""

    @abstractmethod
    def _ask_get(self, key: str) -> Conversation[Meta]:
        """Ask for an object to learn its meta data, or which error there is."""

    @abstractmethod
    def _ask_range(self, key: str, start: int, length: int) -> Conversation[bytes]:
        """Read a range in one request; ``Invalid`` of kind ``BAD_RANGE`` where the object ends before it."""

    @abstractmethod
    def _delete_batch(self, batch: Sequence[str]) -> Conversation[None]:
        """Remove at most ``DELETE_LIMIT`` objects; ``Denied`` for the first that was refused."""

    @abstractmethod
    def _delete_step(self, key: str) -> Step:
        """Remove one object; its absence may be ``NotFound``."""

    def _head(self, key: str) -> Conversation[Meta | None]:
        try:
            return (yield from self._ask_head(key))
        except NotFound:
            if self._bucket_seen:
                return None
        except (Denied, Invalid, Unavailable) as error:
            if isinstance(error, Unavailable) and error.kind != "bad_answer":
                raise
        # A HEAD's answer has no body, so it cannot say which of bucket, object and rights is missing.
        try:
            return (yield from self._ask_get(key))
        except NotFound:
            self._bucket_seen = True
            return None

    def _believed(self, key: str) -> Conversation[None]:
        """Return once the bucket was seen, asking for an object if it was not."""
        if not self._bucket_seen:
            with suppress(Denied):  # who may only list or remove is refused by an object store too
                yield from self._head(key)
            self._bucket_seen = True

    def _get_range(self, key: str, start: int, length: int) -> Conversation[bytes]:
        try:
            return (yield from self._ask_range(key, start, length))
        except Invalid as error:
            if error.kind != BAD_RANGE:
                raise
            return b""

    def _delete(self, keys: Sequence[str]) -> Conversation[None]:
        refused: Denied | None = None
        for batch in batches(list(dict.fromkeys(keys))):
            try:
                yield from self._delete_together(batch)
            except Denied as error:
                refused = refused or error
        if refused is not None:
            raise refused

    def _delete_together(self, batch: Sequence[str]) -> Conversation[None]:
        if self._takes_bulk:
            try:
                return (yield from self._delete_batch(batch))
            except (NotFound, Invalid, Unavailable) as error:
                if error.kind not in _SPOILED:
                    raise
                self._takes_bulk = error.kind != NOT_SUPPORTED
            except Denied as error:
                # Ceph and moto ask for the right to remove on the bucket itself, where no policy by prefix gives it.
                if error.key != batch[0] or not (yield from self._may_remove(batch[0])):
                    raise
                self._takes_bulk = False
        yield from self._believed(batch[0])
        return (yield from self._delete_each(batch))

    def _may_remove(self, key: str) -> Conversation[bool]:
        """Remove one object; say whether that was allowed."""
        try:
            yield self._delete_step(key)
        except Denied:
            return False
        except NotFound:
            return True
        return True

    def _delete_each(self, batch: Sequence[str]) -> Conversation[None]:
        """Remove objects one by one: where a bulk request is refused, or an absent object spoils a whole one."""
        refused: Denied | None = None
        for key in batch:
            try:
                yield self._delete_step(key)
            except NotFound:
                continue
            except Denied as error:
                refused = refused or error
        if refused is not None:
            raise refused

    def _require(self, mark: object, operation: str, key: str) -> None:
        """Refuse a success without the mark that every object store gives: a proxy's page, for example."""
        if not mark:
            raise no_answer("bad_answer", self._call(operation, key), "a success without what belongs to it")
        self._bucket_seen = True

    def _require_whole(self, data: bytes, size: int, key: str) -> bytes:
        """Return a body that has come whole."""
        if len(data) != size:
            raise no_answer("connection_lost", self._call("get", key), f"{len(data)} of {size} bytes came")
        return data
