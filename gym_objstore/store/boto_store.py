# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""S3 through boto3 and, in the async form, aioboto3: for sites that need botocore's behaviour or have to fork.

Owns: what is said to the client for each operation. Does not own: making it and reading its errors
(``boto_client``), retries (``retrying``).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gym_objstore.errors import ObjstoreError
from gym_objstore.store import Meta, joined
from gym_objstore.store.answers import EXPIRED
from gym_objstore.store.boto_client import bulk_removal, connect, connect_async, removed, translated
from gym_objstore.store.cloud import CloudStore
from gym_objstore.store.paired import Page, Step
from gym_objstore.store.parts import SINGLE_PUT_BYTES, parts, size_of
from gym_objstore.store.scopes import LoopResource, PerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gym_objstore.store import Body
    from gym_objstore.store.options import StoreOptions
    from gym_objstore.store.paired import Conversation

_OPERATIONS = {
    "put_object": "put",
    "create_multipart_upload": "put",
    "upload_part": "put",
    "complete_multipart_upload": "put",
    "abort_multipart_upload": "put",
    "get_object": "get",
    "head_object": "head",
    "list_objects_v2": "list",
    "delete_object": "delete",
    "delete_objects": "delete",
}


class BotoStore(CloudStore):
    """A bucket behind boto: one blocking client of each process and one async client of each loop."""

    PUTS_CUT_OFF = -1  # SeaweedFS keeps an empty object of a request that aiohttp cuts off

    def __init__(self, options: StoreOptions) -> None:
        super().__init__(options)
        _, self._bucket, self._root = options.location
        self._clients = PerProcess(lambda: connect(options))
        self._clients_async = LoopResource(lambda stack: stack.enter_async_context(connect_async(options)))

    def scan_page(self, prefix: str, token: str | None) -> Page:
        """Return one page of objects, for another backend whose client cannot list everything."""
        return self._play(self._scan_page(prefix, token))

    def folders_page(self, prefix: str, token: str | None) -> Page:
        """Return one page of folder names; see ``scan_page``."""
        return self._play(self._folders_page(prefix, token))

    def _put(self, key: str, body: Body) -> Conversation[None]:
        if size_of(body) > SINGLE_PUT_BYTES:
            yield from self._put_in_parts(key, body)
            return
        # With an empty Body botocore asks for "100 Continue" and loses count of the answers on the connection.
        stored = {"Body": data} if (data := joined(body)) else {}
        answer = yield self._step("put_object", key, **stored)
        self._require(answer.get("ETag"), "put", key)

    def _put_in_parts(self, key: str, body: Body) -> Conversation[None]:
        upload = (yield self._step("create_multipart_upload", key))["UploadId"]
        try:
            done = []
            for number, part in enumerate(parts(body), 1):
                answer = yield self._step("upload_part", key, UploadId=upload, PartNumber=number, Body=part)
                done.append({"PartNumber": number, "ETag": answer["ETag"]})
            yield self._step("complete_multipart_upload", key, UploadId=upload, MultipartUpload={"Parts": done})
        except Exception:
            with suppress(ObjstoreError):
                yield self._step("abort_multipart_upload", key, UploadId=upload)
            raise

    def _get(self, key: str) -> Conversation[bytes]:
        answer = yield self._step("get_object", key)
        self._require(answer.get("ETag"), "get", key)
        return self._require_whole(answer["Body"], answer["ContentLength"], key)

    def _ask_range(self, key: str, start: int, length: int) -> Conversation[bytes]:
        answer = yield self._step("get_object", key, Range=f"bytes={start}-{start + length - 1}")
        self._require(answer.get("ETag"), "get", key)
        return self._require_whole(answer["Body"], answer["ContentLength"], key)

    def _ask_head(self, key: str) -> Conversation[Meta]:
        return self._meta((yield self._step("head_object", key)), "head", key)

    def _ask_get(self, key: str) -> Conversation[Meta]:
        return self._meta((yield self._step("get_object", key)), "get", key)

    def _meta(self, answer: Mapping[str, Any], operation: str, key: str) -> Meta:
        self._require(answer.get("ETag"), operation, key)
        return Meta(key, answer["ContentLength"], answer["LastModified"].timestamp())

    def _scan_page(self, prefix: str, cursor: Any) -> Conversation[Page]:
        answer = yield self._listing(prefix, cursor)
        self._require(answer.get("Name"), "list", prefix)
        cut = len(self._root)
        items = [
            Meta(one["Key"][cut:], one["Size"], one["LastModified"].timestamp()) for one in answer.get("Contents", ())
        ]
        return Page(items, answer.get("NextContinuationToken"))

    def _folders_page(self, prefix: str, cursor: Any) -> Conversation[Page]:
        answer = yield self._listing(prefix, cursor, Delimiter="/")
        self._require(answer.get("Name"), "list", prefix)
        cut = len(self._root) + len(prefix)
        names = [one["Prefix"][cut:-1] for one in answer.get("CommonPrefixes", ())]
        return Page(names, answer.get("NextContinuationToken"))

    def _listing(self, prefix: str, cursor: Any, **more: str) -> Step:
        options = {"Bucket": self._bucket, "Prefix": self._root + prefix, **more}
        if cursor is not None:
            options["ContinuationToken"] = cursor
        return Step("list_objects_v2", prefix, options=options)

    def _delete_batch(self, batch: Sequence[str]) -> Conversation[None]:
        doomed = bulk_removal(self._bucket, [self._root + key for key in batch])
        answer = yield Step("delete_objects", batch[0], options=doomed)
        removed(answer, len(batch), self._root, self._call("delete", batch[0]))

    def _delete_step(self, key: str) -> Step:
        return self._step("delete_object", key)

    def _step(self, name: str, key: str, **options: Any) -> Step:
        return Step(name, key, options={"Bucket": self._bucket, "Key": self._root + key, **options})

    def _perform(self, step: Step) -> Any:
        client = None
        try:
            client = self._clients()
            answer = getattr(client, step.name)(**step.options)
            if "Body" in answer:
                with answer["Body"] as stream:
                    answer["Body"] = stream.read()
        except ObjstoreError:
            raise
        except Exception as error:
            found = self._translated(error, step)
            if found.kind == EXPIRED:
                self._clients.forget(client)
            raise found from error
        return answer

    async def _perform_async(self, step: Step) -> Any:
        client = None
        try:
            client = await self._clients_async()
            answer = await getattr(client, step.name)(**step.options)
            if "Body" in answer:
                async with answer["Body"] as stream:
                    answer["Body"] = await stream.read()
        except ObjstoreError:
            raise
        except Exception as error:
            found = self._translated(error, step)
            if found.kind == EXPIRED and client is not None:
                await self._clients_async.renew(client)
            raise found from error
        return answer

    def _translated(self, error: Exception, step: Step) -> ObjstoreError:
        found = translated(error, self._call(_OPERATIONS[step.name], step.key))
        if found is None:
            raise error
        return found

    def close(self) -> None:
        """Release the blocking client. Idempotent."""
        super().close()
        if (client := self._clients.forget()) is not None:
            client.close()

    async def close_async(self) -> None:
        """Release the running loop's client. Idempotent; the store stays usable on other loops."""
        await self._clients_async.close()
