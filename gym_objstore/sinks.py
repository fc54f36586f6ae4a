# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The token path's components: ``TokenSink`` writes, ``TokenSource`` reads and retires, ``LineageResolver`` resolves.

Each takes ``url``, ``run_id`` and store options, or finds them in the environment. They bind the flows of
``tokens``, ``retirement`` and ``lineage`` to a store; the promises are those flows'.
"""

from __future__ import annotations

import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from gym_objstore.connection import Component, storable
from gym_objstore.errors import Invalid, ObjstoreError
from gym_objstore.flow import Put
from gym_objstore.ids import require_id, require_ids
from gym_objstore.keys import rollout_prefix
from gym_objstore.lineage import ContextMatcher, Resolver, parent_of
from gym_objstore.objects import write
from gym_objstore.observing import Event, report
from gym_objstore.retirement import Claim, Removal, delete_rollouts, drop, retire
from gym_objstore.settings import Settings
from gym_objstore.tokens import (
    FAMILY,
    Prepared,
    Snapshot,
    begin_call,
    freeze,
    mark,
    prepare,
    publish,
    put_entry,
    refusal,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gym_objstore.connection import Connection
    from gym_objstore.lineage import Items, Matcher
    from gym_objstore.records import LineageResolution

CLOSE_SECONDS = 60.0
"""How long ``close`` waits for writes whose callers were cancelled."""


class TokenSink(Component):
    """Stores the token entries of model calls."""

    def __init__(self, url: str | None = None, run_id: str | None = None, **options: Any) -> None:
        super().__init__(Settings.of(url, run_id, **options))

    async def put(self, entry: Any) -> None:
        """Store one call's entry: ours, or any object with the same fields and ``model_dump``.

        Returns when: the entry is durable and every process's resolver and source sees it.
        Repeating: the identical record changes nothing. Another record for the same call makes the
        rollout freeze incomplete and the call no candidate for lineage.
        Raises: ``Invalid`` before any request; ``Retired``; ``Unavailable`` or ``Denied``, and then the
        entry is kept in the spill. The write is finished even if the caller is cancelled.
        """
        connection = self.connection
        if not hasattr(entry, "rollout_id"):
            reason = f"not a token entry, type={type(entry).__name__}"
            raise Invalid(reason, kind="bad_record", hint="make a TokenEntry of it, with records.parse_entry")
        require_id(entry.rollout_id, "rollout id")
        lost = partial(self.mark_incomplete, entry.rollout_id, entry.model_call_id)
        await connection.writer.finish(entry.rollout_id, self._put(entry), lost=lost)

    async def _put(self, entry: Any) -> None:
        connection, run_id = self.connection, self.settings.run_id
        try:
            await connection.write(FAMILY, partial(put_entry, run_id, entry, prepare=partial(_prepare, connection)))
        except ObjstoreError as error:
            if storable(error):
                prepared = prepare(rollout_prefix(FAMILY, run_id, entry.rollout_id), entry)
                await connection.keep(Put(prepared.key, prepared.body))
            raise

    async def begin_call(self, rollout_id: str, model_call_id: str) -> None:
        """Record that a call is about to generate.

        Returns when: the intent is durable. A call without an entry then masks its rollout.
        Repeating: changes nothing. Raises: ``Invalid``, ``Retired``, ``Unavailable``, ``Denied``; the
        call may then be failed before it costs anything.
        """
        flow = partial(begin_call, self.settings.run_id, rollout_id, model_call_id)
        await self.connection.writer.finish(rollout_id, self.connection.write(FAMILY, flow))

    async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None:
        """Record that a call of this rollout, or an unnamed one, was lost.

        Returns when: the marker is in the store, or on this machine's disk from where it is replayed,
        also by the next process. Works after a freeze and changes the version.
        Repeating: leaves one more marker. Raises: ``Invalid``; ``Unavailable`` if store and disk both fail.
        """
        require_id(rollout_id, "rollout id")
        note = {"reason": "lost", "at": time.time(), "nonce": secrets.token_hex(8)}
        marker = mark(self.settings.run_id, rollout_id, model_call_id, note)
        _report_loss(rollout_id, model_call_id, "incomplete_marker")
        await self.connection.writer.finish_at_once(rollout_id, self.connection.put_marker(FAMILY, marker))

    async def record_engine_refusal(
        self,
        rollout_id: str,
        *,
        model_call_id: str,
        code: str,
        parent_call_id: str | None = None,
        parent_resolution: Any = None,
    ) -> None:
        """Record that the engine refused an admitted call, which therefore lost no tokens.

        Returns when: the refusal is durable and the call's intent no longer masks the rollout.
        Repeating: changes nothing. Raises: ``Invalid``, ``Unavailable``, ``Denied``.
        """
        note = {"code": code, "parent_call_id": parent_call_id, "parent_resolution": str(parent_resolution or "")}
        settled = refusal(self.settings.run_id, rollout_id, model_call_id, note)
        await self.connection.writer.finish(rollout_id, self.connection.write(FAMILY, partial(write, settled)))

    async def drain(self, rollout_id: str | None = None, *, timeout: float = CLOSE_SECONDS) -> bool:  # noqa: ASYNC109
        """Wait for writes that are still under way, of a rollout or of all; False if ``timeout`` came first."""
        return await self.connection.writer.drain(rollout_id, timeout=timeout)

    async def close(self) -> None:
        """Wait for writes whose callers were cancelled, then release. Idempotent."""
        if not self._closed:
            await self.drain()
        await super().close()


class TokenSource(Component):
    """Freezes rollouts into verified snapshots and retires them."""

    def __init__(self, url: str | None = None, run_id: str | None = None, **options: Any) -> None:
        super().__init__(Settings.of(url, run_id, **options))

    async def freeze(self, rollout_id: str) -> Snapshot:
        """Return an exact, verified snapshot of a rollout; see ``tokens.freeze``."""
        found = await self.connection.play(freeze(self.settings.run_id, rollout_id))
        for problem in found.problems:
            # Whoever left a marker has reported that loss.
            if problem.kind == "conflict":
                event = Event("conflict", rollout_id, problem.model_call_id, family=FAMILY, detail=problem.detail)
                said = "a call has two payloads, rollout_id=%s, model_call_id=%s"
                report(event, said, rollout_id, problem.model_call_id)
            elif problem.kind != "incomplete_marker":
                _report_loss(rollout_id, problem.model_call_id, problem.kind)
        return found

    async def publish(self, rollout_id: str) -> str:
        """Store a rollout's entries as one object too, so that later freezes read it alone; see ``tokens.publish``."""
        return await self.connection.play(publish(self.settings.run_id, rollout_id))

    async def drop(self, rollout_id: str, *, snapshot_id: str, version: int) -> bool:
        """Retire exactly the snapshot that was consumed; False if anything changed. See ``retirement.drop``."""
        prefix = rollout_prefix(FAMILY, self.settings.run_id, rollout_id)
        claim = Claim(prefix, snapshot_id, version, secrets.token_hex(8))
        return await self.connection.writer.finish(rollout_id, self.connection.play(drop(claim)))

    async def retire(self, rollout_ids: Iterable[str]) -> Removal:
        """Fence rollouts and remove what they hold, whatever their state; see ``retirement.retire``."""
        ids = require_ids(rollout_ids, "rollout ids")
        return await self.connection.play(retire(FAMILY, self.settings.run_id, ids))

    async def delete(self, rollout_ids: Iterable[str]) -> Removal:
        """Remove rollouts and their fences, so that their ids can be used again; see ``retirement.delete_rollouts``."""
        ids = require_ids(rollout_ids, "rollout ids")
        return await self.connection.play(delete_rollouts(FAMILY, self.settings.run_id, ids))


class LineageResolver(Component):
    """Says which recorded call a request continues."""

    matcher: Matcher = ContextMatcher()

    def __init__(self, url: str | None = None, run_id: str | None = None, **options: Any) -> None:
        super().__init__(Settings.of(url, run_id, **options))

    async def resolve(self, rollout_id: str, request_items: Items) -> LineageResolution:
        """Return root, resolved with the parent's tokens, or unresolved; see ``lineage.Resolver.resolve``."""
        resolver = Resolver(self.settings.run_id, self.matcher, self.connection.parents)
        return await self.connection.play(resolver.resolve(rollout_id, request_items))

    def is_process_shared(self) -> bool:
        """Say whether other processes see the same entries: always, but for a store in memory."""
        return not self.settings.store.url.startswith("memory:")


def _prepare(connection: Connection, rollout: str, entry: Any) -> Prepared:
    """Prepare an entry and remember it as a parent, off the event loop: nobody asks for it before it is listed."""
    prepared = prepare(rollout, entry)
    connection.parents.put(prepared.key, parent_of(entry))
    return prepared


def _report_loss(rollout_id: str, model_call_id: str, kind: str) -> None:
    event = Event("loss", rollout_id, model_call_id, family=FAMILY, kind=kind)
    report(event, "a call is lost, rollout_id=%s, model_call_id=%s, kind=%s", rollout_id, model_call_id, kind)


LineageStore = LineageResolver
"""The same class under the name that nemo-gym's configuration uses."""
