# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The default backend: S3, Google Cloud Storage and Azure through obstore, a client written in Rust.

Owns: what is said to the client for each operation. Does not own: making it and reading its errors
(``obstore_client``), retries (``retrying``). obstore does not survive a fork, so a child that was forked
after the first use is refused, not left hanging.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from gym_objstore.errors import Invalid, NotFound, ObjstoreError, Unusable
from gym_objstore.store import Meta
from gym_objstore.store.answers import EXPIRED, HEAD
from gym_objstore.store.boto_store import BotoStore
from gym_objstore.store.cloud import ANY_KEY, CloudStore
from gym_objstore.store.obstore_client import FOREIGN_KEY, connect, translated
from gym_objstore.store.paired import Page, Step
from gym_objstore.store.parts import PART_BYTES, SINGLE_PUT_BYTES, flat, size_of
from gym_objstore.store.scopes import PerProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gym_objstore.store import Body
    from gym_objstore.store.options import StoreOptions
    from gym_objstore.store.paired import Conversation

_PAGE = 1000
_IN_ONE_PUT = {"use_multipart": False}
_IN_PARTS = {"use_multipart": True, "chunk_size": PART_BYTES, "max_concurrency": 4}
_ASYNC_NAMES = {
    "__next__": "__anext__",
    **{name: f"{name}_async" for name in ("put", "get", "get_range", "bytes", "head", "delete", "list_with_delimiter")},
}
_OPERATIONS = {"get_range": "get", "bytes": "get", "__next__": "list", "list_with_delimiter": "list"}

_first_use: int | None = None


def forked_after_use() -> bool:
    """Say whether obstore was used by a parent of this process, so that it would hang here."""
    return _first_use not in (None, os.getpid())


class _Foreign(NamedTuple):
    """How far boto3 has listed in obstore's place; ``token`` is None at the start."""

    token: Any


class ObstoreStore(CloudStore):
    """A bucket behind obstore. One client serves all threads and loops of a process.

    Where an object of a name that obstore cannot express spoils its listing, the listing begins again with
    boto3: then it may name an object twice, which ``RetryingStore`` leaves out.
    """

    def __init__(self, options: StoreOptions) -> None:
        super().__init__(options)
        self._clients = PerProcess(lambda: connect(options))
        self._clients_without_bulk = PerProcess(lambda: connect(options, bulk=False))
        self._listers = PerProcess(lambda: BotoStore(options))

    def _put(self, key: str, body: Body) -> Conversation[None]:
        whole = size_of(body) <= SINGLE_PUT_BYTES
        yield Step("put", key, (key, flat(body)), _IN_ONE_PUT if whole else _IN_PARTS)

    def _get(self, key: str) -> Conversation[bytes]:
        result = yield Step("get", key, (key,))
        self._require(result.meta["e_tag"], "get", key)
        return self._require_whole(bytes((yield Step("bytes", key, on=result))), result.meta["size"], key)

    def _ask_range(self, key: str, start: int, length: int) -> Conversation[bytes]:
        return bytes((yield Step("get_range", key, (key,), {"start": start, "length": length})))

    def _ask_head(self, key: str) -> Conversation[Meta]:
        found = yield Step("head", key, (key,))
        if found is None:
            raise NotFound("no such object", key=key)
        self._require(found["e_tag"], "head", key)
        return _meta(found)

    def _ask_get(self, key: str) -> Conversation[Meta]:
        result = yield Step("get", key, (key,))
        self._require(result.meta["e_tag"], "get", key)
        return _meta(result.meta)

    def _scan_page(self, prefix: str, cursor: Any) -> Conversation[Page]:
        if isinstance(cursor, _Foreign):
            return (yield from self._foreign_page("scan_page", prefix, cursor))
        stream = cursor or self._client().list(prefix or None, chunk_size=_PAGE)
        try:
            found = yield Step("__next__", prefix, on=stream)
        except Invalid as error:
            return Page((), self._foreign(error))
        if found is None:
            yield from self._believed(f"{prefix}{ANY_KEY}")
            return Page((), None)
        self._bucket_seen = True
        items = [_meta(one) for one in found]
        for empty in [one for one in items if one.size == 0]:
            # obstore cuts the slash off a folder marker's key; only a HEAD tells it from an empty object.
            if (yield from self._head(empty.key)) is None:
                items.remove(empty)
        return Page(items, stream)

    def _folders_page(self, prefix: str, cursor: Any) -> Conversation[Page]:
        if cursor is not None:
            return (yield from self._foreign_page("folders_page", prefix, cursor))
        try:
            found = yield Step("list_with_delimiter", prefix, (prefix or None,))
        except Invalid as error:
            return Page((), self._foreign(error))
        if not found["common_prefixes"]:
            yield from self._believed(f"{prefix}{ANY_KEY}")
        return Page([one[len(prefix) :] for one in found["common_prefixes"]], None)

    def _foreign(self, error: Invalid) -> _Foreign:
        if error.kind != FOREIGN_KEY or self._options.location.scheme != "s3":
            raise error
        return _Foreign(None)

    def _foreign_page(self, name: str, prefix: str, cursor: _Foreign) -> Conversation[Page]:
        page: Page = yield Step(name, prefix, (prefix, cursor.token), on=self._listers())
        return page if page.cursor is None else page._replace(cursor=_Foreign(page.cursor))

    def _delete_batch(self, batch: Sequence[str]) -> Conversation[None]:
        yield Step("delete", batch[0], (list(batch),))

    def _delete_step(self, key: str) -> Step:
        return Step("delete", key, ([key],), on=self._client(bulk=False))

    def _client(self, *, bulk: bool = True) -> Any:
        global _first_use  # noqa: PLW0603 - a fact about the process, whichever store was used first
        if _first_use is None:
            _first_use = os.getpid()
        elif forked_after_use():
            raise Unusable(
                f"obstore was used before this process was forked and would hang in it, store={self.url}",
                kind="forked",
                hint="start processes with spawn or forkserver, or open the store in the child with backend='boto'",
            )
        return self._clients() if bulk else self._clients_without_bulk()

    def _perform(self, step: Step) -> Any:
        target = step.on
        try:
            target = self._client() if target is None else target
            return getattr(target, step.name)(*step.arguments, **step.options)
        except StopIteration:
            return None
        except ObjstoreError:
            raise
        except Exception as error:
            if _is_absence(error, step):
                return None
            raise self._translated(error, step, target) from error

    async def _perform_async(self, step: Step) -> Any:
        if isinstance(step.on, BotoStore):
            return await asyncio.to_thread(self._perform, step)
        target = step.on
        try:
            target = self._client() if target is None else target
            return await getattr(target, _ASYNC_NAMES[step.name])(*step.arguments, **step.options)
        except StopAsyncIteration:
            return None
        except ObjstoreError:
            raise
        except Exception as error:
            if _is_absence(error, step):
                return None
            raise self._translated(error, step, target) from error

    def _translated(self, error: Exception, step: Step, client: Any) -> ObjstoreError:
        call = self._call(_OPERATIONS.get(step.name, step.name), step.key)
        found = translated(error, call, self._options.location.prefix)
        if found.kind == EXPIRED:
            self._clients.forget(client if step.on is None else None)
            self._clients_without_bulk.forget()
        return found

    def close(self) -> None:
        """Release the client, which serves both forms. Idempotent."""
        super().close()
        self._clients.forget()
        self._clients_without_bulk.forget()
        if (lister := self._listers.forget()) is not None:
            lister.close()

    async def close_async(self) -> None:
        """Do nothing: the client belongs to no loop."""


def _is_absence(error: Exception, step: Step) -> bool:
    """Say whether this is a HEAD's 404, which every put gets of its tombstone: it carries no text to translate."""
    return step.name == HEAD and isinstance(error, FileNotFoundError)


def _meta(found: Any) -> Meta:
    return Meta(found["path"], found["size"], found["last_modified"].timestamp())
