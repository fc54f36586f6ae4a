# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Any place that fsspec reaches; s3fs is the one that is tested.

Owns: what is said to the file system for each operation, and that none of its caches of listings is used.
Does not own: retries (``retrying``), nor what botocore's errors mean (``boto_client``). Listings are read
whole before the first object is named, and elsewhere than on S3 objects are removed one by one: both are
how fsspec has it.
"""

from __future__ import annotations

import asyncio
import errno
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gym_objstore.errors import Invalid, NotFound, ObjstoreError, Unusable
from gym_objstore.store import Meta, boto_client, credentials, joined
from gym_objstore.store.answers import EXPIRED, NOT_SUPPORTED, Answer, no_answer, refusal
from gym_objstore.store.cloud import ANY_KEY, CloudStore
from gym_objstore.store.paired import Page, Step
from gym_objstore.store.scopes import LoopResource, PerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AsyncExitStack

    from gym_objstore.store import Body
    from gym_objstore.store.answers import Call
    from gym_objstore.store.options import StoreOptions
    from gym_objstore.store.paired import Conversation

_WHOLE_WRITES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "obs", "cos")
"""Protocols whose writes appear whole or not at all; to places behind others nothing is written."""

_NO_CACHES = {"skip_instance_cache": True, "use_listings_cache": False}
_MODIFIED = ("LastModified", "last_modified", "mtime", "updated", "created")
_OPERATIONS = {
    "pipe_file": "put",
    "cat_file": "get",
    "info": "head",
    "find": "list",
    "ls": "list",
    "call_s3": "delete",
    "rm_file": "delete",
}


class FsspecStore(CloudStore):
    """A place behind fsspec: one file system object of each process and, where it is async, one of each loop."""

    PUTS_CUT_OFF = -1  # SeaweedFS keeps an empty object of a request that aiohttp cuts off

    def __init__(self, options: StoreOptions) -> None:
        super().__init__(options)
        _, bucket, prefix = options.location
        self._root = f"{bucket}/{prefix}" if bucket else prefix
        self._systems = PerProcess(lambda: _open(options))
        self._systems_async = LoopResource(lambda stack: _open_async(options, stack))

    def _put(self, key: str, body: Body) -> Conversation[None]:
        if self._options.location.scheme not in _WHOLE_WRITES:
            raise Invalid(
                f"put failed: a reader could see parts of what is written here, store={self.url}",
                kind=NOT_SUPPORTED,
                key=key,
                hint="write to object storage or a file:// url; this url is for reading",
            )
        answer = yield Step("pipe_file", key, (self._root + key, joined(body)))
        if isinstance(answer, dict):  # s3fs returns the answer to a body of less than 100 MB
            self._require(answer.get("ETag"), "put", key)

    def _get(self, key: str) -> Conversation[bytes]:
        yield from self._believed(key)
        return bytes((yield Step("cat_file", key, (self._root + key,))))

    def _ask_range(self, key: str, start: int, length: int) -> Conversation[bytes]:
        yield from self._believed(key)
        return bytes((yield Step("cat_file", key, (self._root + key,), {"start": start, "end": start + length})))

    def _ask_head(self, key: str) -> Conversation[Meta]:
        found = yield Step("info", key, (self._root + key,))
        if found["type"] != "file":
            raise NotFound(f"head failed: a folder is no object, store={self.url}", key=key)
        if self._options.location.scheme == "s3":
            self._require(found["ETag"], "head", key)
        return _meta(key, found)

    def _ask_get(self, key: str) -> Conversation[Meta]:
        yield Step("cat_file", key, (self._root + key,), {"start": 0, "end": 1})
        return (yield from self._ask_head(key))

    def _scan_page(self, prefix: str, cursor: Any) -> Conversation[Page]:
        del cursor  # one page is all
        root = self._root + prefix
        try:
            found = yield Step("find", prefix, (root,), {"detail": True})
        except NotFound:
            found = {}
        names = ((name.lstrip("/"), one) for name, one in found.items())
        cut, start = len(self._root.lstrip("/")), root.lstrip("/")
        items = [_meta(name[cut:], one) for name, one in names if name.startswith(start)]
        if not items:
            yield from self._believed(f"{prefix}{ANY_KEY}")
        return Page(items, None)

    def _folders_page(self, prefix: str, cursor: Any) -> Conversation[Page]:
        del cursor
        try:
            found = yield Step("ls", prefix, (self._root + prefix,), {"detail": True})
        except NotFound:
            found = []
        if not found:
            yield from self._believed(f"{prefix}{ANY_KEY}")
        start = (self._root + prefix).lstrip("/")
        names = [one["name"].strip("/") for one in found if one["type"] == "directory"]
        return Page([name.removeprefix(start) for name in names if name.startswith(start)], None)

    def _delete_batch(self, batch: Sequence[str]) -> Conversation[None]:
        scheme, bucket, root = self._options.location
        if scheme != "s3":  # others would read a key as a pattern of file names
            return (yield from self._delete_each(batch))
        doomed = boto_client.bulk_removal(bucket, [root + key for key in batch])
        answer = yield Step("call_s3", batch[0], ("delete_objects",), doomed)
        boto_client.removed(answer, len(batch), root, self._call("delete", batch[0]))

    def _delete_step(self, key: str) -> Step:
        return Step("rm_file", key, (self._root + key,))

    def _perform(self, step: Step) -> Any:
        system = None
        try:
            system = self._systems()
            return getattr(system, step.name)(*step.arguments, **step.options)
        except ObjstoreError:
            raise
        except Exception as error:
            found = self._translated(error, step)
            if found.kind == EXPIRED:
                self._systems.forget(system)
            raise found from error

    async def _perform_async(self, step: Step) -> Any:
        system = None
        try:
            if not _is_async(self._options):
                return await asyncio.to_thread(self._perform, step)
            system = await self._systems_async()
            return await getattr(system, f"_{step.name}")(*step.arguments, **step.options)
        except ObjstoreError:
            raise
        except Exception as error:
            found = self._translated(error, step)
            if found.kind == EXPIRED and system is not None:
                await self._systems_async.renew(system)
            raise found from error

    def _translated(self, error: Exception, step: Step) -> ObjstoreError:
        found = _meaning(error, self._call(_OPERATIONS[step.name], step.key), s3=self._options.location.scheme == "s3")
        if found is None:
            raise error
        return found

    def close(self) -> None:
        """Release the blocking file system. Idempotent."""
        from fsspec.asyn import sync

        super().close()
        system: Any = self._systems.forget()
        if (creator := getattr(system, "_s3creator", None)) is not None:
            # s3fs would close it when it is garbage, and on whatever loop is then running.
            sync(system.loop, creator.__aexit__, None, None, None)

    async def close_async(self) -> None:
        """Release the running loop's file system. Idempotent; the store stays usable on other loops."""
        await self._systems_async.close()


def _open(options: StoreOptions, **how: Any) -> Any:
    """Return a new file system object that remembers no listing and repeats no request."""
    from fsspec.core import url_to_fs

    given = _s3_arguments(options) if options.location.scheme == "s3" else {}
    system, _ = url_to_fs(options.url, **given, **_NO_CACHES, **how)
    if options.location.scheme == "s3":
        system.retries = 1
    return system


async def _open_async(options: StoreOptions, stack: AsyncExitStack) -> Any:
    system = _open(options, asynchronous=True, loop=asyncio.get_running_loop())
    if hasattr(system, "set_session"):
        session = await system.set_session()
        stack.push_async_callback(session.close)
    return system


def _is_async(options: StoreOptions) -> bool:
    from fsspec import get_filesystem_class

    return bool(get_filesystem_class(options.location.scheme).async_impl)


def _s3_arguments(options: StoreOptions) -> dict[str, Any]:
    from aiobotocore.session import AioSession

    place = credentials.place(options, credentials.session(options))
    session = AioSession(profile=options.profile)
    session.register_component("data_loader", credentials.descriptions())
    boto_client.sign_bulk_removals(session, place)
    boto_client.end_circles(session)
    return {
        "key": options.access_key_id,
        "secret": credentials.revealed(options.secret_access_key),
        "token": credentials.revealed(options.session_token),
        "endpoint_url": place.endpoint,
        "client_kwargs": {"region_name": place.region, "verify": options.ca_bundle},
        "config_kwargs": boto_client.config(options, place),
        "max_concurrency": 1,  # otherwise every read costs a HEAD before it
        "session": session,
    }


def _meta(key: str, found: Mapping[str, Any]) -> Meta:
    modified = next((found[name] for name in _MODIFIED if found.get(name)), 0.0)
    if isinstance(modified, str):
        modified = datetime.fromisoformat(modified)
    return Meta(key, found["size"], modified.timestamp() if isinstance(modified, datetime) else float(modified))


def _meaning(error: BaseException, call: Call, *, s3: bool) -> ObjstoreError | None:
    """Return the error of this package that one of fsspec's means, None for one that is not about storage."""
    cause: BaseException | None = error
    while cause is not None:
        if (found := _answered(cause, call)) is not None:
            return found
        cause = cause.__cause__
    text = f"{call.operation} failed: {error}, {call.where}"
    match error:
        case FileNotFoundError() if error.errno is None or not s3:  # else a credential program is missing
            return refusal(Answer(404, "NoSuchKey"), call)
        case PermissionError() if error.errno is None or not s3:
            return refusal(Answer(403, "AccessDenied"), call)
        case OSError(errno=errno.ENOSPC):
            return no_answer("disk_full", call, error)
        case ImportError():
            hint = "install the package of that file system, or write s3://, gs:// or az://, which need none"
            return Unusable(text, kind="missing_extra", hint=hint)
        case NotImplementedError():
            return Invalid(text, kind=NOT_SUPPORTED, key=call.key)
        case ValueError():
            hint = "an S3-compatible server is s3://bucket with its address as endpoint="
            return Invalid(text, kind="bad_url", key=call.key, hint=hint)
    return boto_client.translated(error, call)


def _answered(error: BaseException, call: Call) -> ObjstoreError | None:
    answer = boto_client.answered(error)
    return None if answer is None else refusal(answer, call)
