# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What ``doctor`` finds out about a store, by trying: each probe is one small question with one answer."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from gym_objstore.errors import Denied, Invalid, NotFound, ObjstoreError, Unavailable
from gym_objstore.flow import Delete, Get, Head, Put, Scan, perform_async

if TYPE_CHECKING:
    from gym_objstore.store import Meta, Store
    from gym_objstore.store.options import StoreOptions

PROBE_FOLDER = "tokens/!probe"
"""Where probes write; no run's segment can be this, and they remove what they wrote."""

CONCURRENT = 32
"""Objects written, read and listed at the same time to catch a store that shows writes late."""

SKEW_SECONDS = 60.0
"""Clocks further apart than this make ages in ``du`` and ``gc``, and signatures, unreliable."""


class Probe(NamedTuple):
    """One answer. ``verdict`` is ``ok``, ``warning``, ``failed`` or ``unknown``; ``hint`` is the next step.

    ``kind`` is a code for machines: of an error where there was one, else empty.
    """

    name: str
    verdict: str
    detail: str = ""
    hint: str = ""
    kind: str = ""


async def diagnose(store: Store, options: StoreOptions) -> AsyncIterator[Probe]:
    """Yield the probes of a store one by one; the first failures explain the later ones."""
    folder = f"{PROBE_FOLDER}/{secrets.token_hex(8)}"
    keys = [f"{folder}/{number}/fences/probe" for number in range(CONCURRENT)]
    try:
        await perform_async(Scan(f"{folder}/"), store)
    except (Invalid, Unavailable) as error:
        yield failed("list", error)
        return
    except ObjstoreError as error:
        yield failed("list", error)
    else:
        yield Probe("list", "ok")
    written = await _permission("write", store, Put(keys[0], b"probe"))
    yield written
    if written.verdict == "ok":
        yield await _permission("read", store, Get(keys[0]))
        yield await _clock(store, keys[0])
        yield await _visible(store, folder, keys)
    yield await _absence(store, f"{folder}/absent/fences/probe")
    if written.verdict == "ok":
        yield await _removal(store, keys, folder)
    if options.location.scheme == "s3":
        for probe in await asyncio.to_thread(administration, options):
            yield probe


def verdict(probes: list[Probe]) -> str:
    """Return the worst verdict; what could not be asked does not make a store bad."""
    found = {probe.verdict for probe in probes}
    return next((worst for worst in ("failed", "warning") if worst in found), "ok")


def failed(name: str, error: ObjstoreError) -> Probe:
    """Return the probe of an operation that failed."""
    return Probe(name, "failed", error.message, error.hint, error.kind)


async def _permission(name: str, store: Store, operation: Put | Get | Delete) -> Probe:
    try:
        await perform_async(operation, store)
    except ObjstoreError as error:
        return failed(name, error)
    return Probe(name, "ok")


async def _absence(store: Store, key: str) -> Probe:
    try:
        found = await perform_async(Head(key), store)
    except Denied as error:
        return Probe(
            "absence",
            "failed",
            f"asking for an absent object is refused: {error.message}",
            "allow listing the bucket: without it a store cannot say that an object does not exist",
            error.kind,
        )
    except ObjstoreError as error:
        return failed("absence", error)
    return Probe("absence", "ok" if found is None else "failed", "" if found is None else "an absent object was found")


async def _clock(store: Store, key: str) -> Probe:
    meta: Meta | None = await perform_async(Head(key), store)
    if meta is None:
        return Probe("clock", "failed", "an object just written is absent")
    return _skew(meta.modified - time.time())


def _skew(seconds: float) -> Probe:
    detail = f"the store's clock is {seconds:+.1f} s from this machine's"
    if abs(seconds) <= SKEW_SECONDS:
        return Probe("clock", "ok", detail)
    return Probe("clock", "warning", detail, "synchronize this machine's clock (NTP)", "clock_skew")


async def _visible(store: Store, folder: str, keys: list[str]) -> Probe:
    """Write many objects at the same time and ask for each, alone and in a listing, as soon as it is written."""

    async def late(key: str) -> str:
        await perform_async(Put(key, key.encode()), store)
        try:
            body = await perform_async(Get(key), store)
        except NotFound:
            return "read"
        listed = await perform_async(Scan(key.rpartition("/")[0] + "/"), store)
        return "" if body == key.encode() and [meta.key for meta in listed] == [key] else "list"

    try:
        answers = await asyncio.gather(*(late(key) for key in keys))
        listed = await perform_async(Scan(f"{folder}/"), store)
    except ObjstoreError as error:
        return failed("visibility", error)
    behind = sorted(filter(None, answers)) + ["list"] * (len(listed) != len(keys))
    if behind:
        detail = f"of {len(keys)} writes {len(behind)} were not seen at once, by={' '.join(sorted(set(behind)))}"
        hint = "this store shows writes late; nothing here can be safe on it"
        return Probe("visibility", "failed", detail, hint, "late_writes")
    return Probe("visibility", "ok", f"{len(keys)} concurrent writes were read and listed at once")


async def _removal(store: Store, keys: list[str], folder: str) -> Probe:
    removed = await _permission("delete", store, Delete(tuple(keys)))
    if removed.verdict == "failed":
        hint = "trainers and sweepers must delete; workers and model servers need not"
        return removed._replace(verdict="warning", hint=hint)
    left = await perform_async(Scan(f"{folder}/"), store)
    return removed if not left else Probe("delete", "failed", f"deleted objects are still listed, count={len(left)}")


def server_clock(options: StoreOptions) -> Probe:
    """Compare this machine's clock with the ``Date`` of whatever an S3 server answers, be it a refusal."""

    def ask(client: Any, bucket: str) -> Probe:
        try:
            answer = client.head_bucket(Bucket=bucket)
        except client.exceptions.ClientError as error:
            answer = error.response
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if date is None:
            return Probe("clock", "unknown", "the server did not say what time it is")
        return _skew(parsedate_to_datetime(date).timestamp() - time.time())

    return _asked("clock", options, ask)


def administration(options: StoreOptions) -> list[Probe]:
    """Return what an S3 bucket's configuration means for this package, where the server says it."""
    return [_versioning(options), _object_lock(options)]


def _versioning(options: StoreOptions) -> Probe:
    def ask(client: Any, bucket: str) -> Probe:
        status = client.get_bucket_versioning(Bucket=bucket).get("Status", "Disabled")
        if status != "Enabled":
            return Probe("versioning", "ok", f"status={status}")
        return Probe(
            "versioning", "warning", "status=Enabled", "old versions cost money: add a lifecycle rule for them"
        )

    return _asked("versioning", options, ask)


def _object_lock(options: StoreOptions) -> Probe:
    def ask(client: Any, bucket: str) -> Probe:
        found = client.get_object_lock_configuration(Bucket=bucket)
        rule = found.get("ObjectLockConfiguration", {}).get("Rule")
        if rule:
            return Probe(
                "object_lock", "warning", f"default retention, rule={rule}", "removals only add delete markers"
            )
        return Probe("object_lock", "ok", "no default retention")

    return _asked("object_lock", options, ask)


def _asked(name: str, options: StoreOptions, ask: Callable[[Any, str], Probe]) -> Probe:
    """Ask something that only the administrative client can; a server that cannot answer is no failure."""
    from botocore.exceptions import BotoCoreError, ClientError

    from gym_objstore.store.boto_client import connect

    try:
        return ask(connect(options), options.location.bucket)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if "NotFound" in code:
            return Probe(name, "ok", "not configured")
        return Probe(name, "unknown", f"the server did not say, code={code}")
    except (BotoCoreError, ObjstoreError) as error:
        return Probe(name, "unknown", f"the server did not say: {error}")
