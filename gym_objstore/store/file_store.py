# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A folder as a store: for laptops, tests and shared POSIX disks.

Owns: the async form, which is threads, and what the operating system's errors mean. Does not own: how files
are written and read (``folder``).
"""

from __future__ import annotations

import asyncio
import errno
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from gym_objstore.errors import Denied, Invalid, NotFound, ObjstoreError, Unavailable
from gym_objstore.store.answers import FULL
from gym_objstore.store.folder import Folder
from gym_objstore.store.paired import Page, PairedStore, Step
from gym_objstore.store.scopes import PerProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gym_objstore.store import Body, Meta
    from gym_objstore.store.answers import Call
    from gym_objstore.store.options import StoreOptions
    from gym_objstore.store.paired import Conversation

_OPERATIONS = {
    "write": "put",
    "read": "get",
    "read_range": "get",
    "meta": "head",
    "__next__": "list",
    "folders": "list",
    "remove": "delete",
}
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_BAD_NAME = (errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EEXIST)


class FileStore(PairedStore):
    """A folder of the local file system. It is made at the first write; empty folders are invisible."""

    def __init__(self, options: StoreOptions) -> None:
        super().__init__(options)
        self._folder = Folder(options.location.prefix)
        self._threads = PerProcess(lambda: ThreadPoolExecutor(options.concurrency, "gym-objstore-file"))

    def _put(self, key: str, body: Body) -> Conversation[None]:
        yield Step("write", key, (key, body))

    def _get(self, key: str) -> Conversation[bytes]:
        return (yield Step("read", key, (key,)))  # type: ignore[no-any-return]

    def _get_range(self, key: str, start: int, length: int) -> Conversation[bytes]:
        return (yield Step("read_range", key, (key, start, length)))  # type: ignore[no-any-return]

    def _head(self, key: str) -> Conversation[Meta | None]:
        try:
            return (yield Step("meta", key, (key,)))  # type: ignore[no-any-return]
        except NotFound:
            return None

    def _scan_page(self, prefix: str, cursor: Any) -> Conversation[Page]:
        pages = cursor or self._folder.pages(prefix)
        found = yield Step("__next__", prefix, on=pages)
        return Page((), None) if found is None else Page(found, pages)

    def _folders_page(self, prefix: str, cursor: Any) -> Conversation[Page]:
        del cursor  # one page is all
        return Page((yield Step("folders", prefix, (prefix,))), None)

    def _delete(self, keys: Sequence[str]) -> Conversation[None]:
        if refused := (yield Step("remove", "", (keys,))):
            raise _meaning(refused, self._call("delete", str(refused.filename)))

    def _perform(self, step: Step) -> Any:
        try:
            return getattr(step.on or self._folder, step.name)(*step.arguments)
        except StopIteration:
            return None
        except OSError as error:
            raise _meaning(error, self._call(_OPERATIONS[step.name], step.key)) from error

    async def _perform_async(self, step: Step) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads(), self._perform, step)

    def close(self) -> None:
        """Let the threads end. Idempotent."""
        super().close()
        if (threads := self._threads.forget()) is not None:
            threads.shutdown(wait=False)

    async def close_async(self) -> None:
        """Do nothing: the threads belong to no loop."""


def _meaning(error: OSError, call: Call) -> ObjstoreError:
    """Return the error of this package that one of the operating system's means."""
    text = f"{call.operation} failed: {os.strerror(error.errno or errno.EIO)}, {call.where}"
    if call.operation in ("get", "head") and error.errno in _ABSENT:
        return NotFound(text, key=call.key)
    if error.errno in _REFUSED:
        return Denied(text, kind="access_denied", key=call.key, hint="check the owner and mode of the folder")
    if error.errno in _FULL:
        return Unavailable(text, kind=FULL, key=call.key, hint="free space or raise the quota")
    if error.errno in _BAD_NAME:
        hint = "a file cannot stand where a folder does, nor the other way round"
        return Invalid(text, kind="bad_key", key=call.key, hint=hint)
    return Unavailable(text, kind="io_error", key=call.key, hint="see the system's log")
