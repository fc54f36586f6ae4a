# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``CaptureLedger``: the ledger's flows bound to a store, for model servers and for the control routes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gym_objstore import ledger
from gym_objstore.ids import require_ids
from gym_objstore.observing import OTHER, Event, report
from gym_objstore.reasons import FailureReason
from gym_objstore.records import LineageResolution, ParentResolutionStatus
from gym_objstore.retirement import Removal, delete_rollouts, retire
from gym_objstore.sinks import LineageResolver

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gym_objstore.lineage import Items


class CaptureLedger(LineageResolver):
    """Records which calls were staged and resolves requests from their rows, or from token entries."""

    async def record(self, commit: Any) -> None:
        """Publish a staged call: a ``CaptureLedgerCommit``, ours or nemo-gym's.

        Returns when: every server resolves it; or, if the rollout is retired, the row is discarded and a
        warning names its staging key. Repeating: the same commit changes nothing.
        Raises: ``Conflict`` for another commit of the same call; ``Invalid``, ``Unavailable``, ``Denied``.
        The write is finished even if the caller is cancelled.
        """
        flow = partial(ledger.record, self.settings.run_id, commit)
        connection = self.connection
        write = connection.write(ledger.FAMILY, flow)
        if not await connection.writer.finish(commit.rollout_id, write):
            call, staging_key = commit.record.model_call_id, commit.record.staging_key
            said = "a ledger row came after retirement and was discarded, %s, staging_key=%s"
            _report_late(commit.rollout_id, call, said, staging_key)

    async def record_failure(self, rollout_id: str, model_call_id: str, reason: str) -> None:
        """Record that a call did not commit; idempotent for a call and a reason, allowed for a recorded call.

        Returns when: the failure is durable; or, if the rollout is retired, it is discarded with a warning.
        Raises: ``Invalid``, ``Unavailable``, ``Denied``. Finished even if the caller is cancelled.
        """
        connection = self.connection

        def flow(also: Any) -> Any:
            return ledger.record_failure(self.settings.run_id, rollout_id, model_call_id, reason=reason, also=also)

        if await connection.writer.finish(rollout_id, connection.write(ledger.FAMILY, flow)):
            lost = Event("loss", rollout_id, model_call_id, family=ledger.FAMILY, kind=_known(reason), detail=reason)
            said = "a call did not commit, rollout_id=%s, model_call_id=%s, reason=%s"
            report(lost, said, rollout_id, model_call_id, reason)
        else:
            said = "a failure row came after retirement and was discarded, %s, reason=%s"
            _report_late(rollout_id, model_call_id, said, reason)

    async def manifest(self, rollout_id: str) -> dict[str, Any]:
        """Return a rollout's manifest as plain wire data; see ``ledger.manifest``."""
        found = await self.connection.play(ledger.manifest(self.settings.run_id, rollout_id))
        return found.model_dump(mode="json")

    async def has_rows(self, rollout_id: str) -> bool:
        """Say whether the ledger holds any row; see ``ledger.has_rows``. A storage error raises."""
        return await self.connection.play(ledger.has_rows(self.settings.run_id, rollout_id))

    async def resolve(self, rollout_id: str, request_items: Items) -> LineageResolution:
        """Return the staged call a request continues, or what the token entries say; see ``ledger.resolve_row``."""
        match = await self.connection.play(ledger.resolve_row(self.settings.run_id, rollout_id, request_items))
        if match is not None:
            return LineageResolution(ParentResolutionStatus.RESOLVED, match)
        return await super().resolve(rollout_id, request_items)

    async def retire(self, rollout_ids: Iterable[str]) -> Removal:
        """Fence ledgers and remove their rows; staged rows stay. See ``retirement.retire``."""
        ids = require_ids(rollout_ids, "rollout ids")
        return await self.connection.play(retire(ledger.FAMILY, self.settings.run_id, ids))

    async def delete(self, rollout_ids: Iterable[str]) -> Removal:
        """Remove ledgers and their fences, so that the ids can be used again. See ``retirement.delete_rollouts``."""
        ids = require_ids(rollout_ids, "rollout ids")
        return await self.connection.play(delete_rollouts(ledger.FAMILY, self.settings.run_id, ids))


def _report_late(rollout_id: str, model_call_id: str, said: str, what: str) -> None:
    event = Event("late_write_discarded", rollout_id, model_call_id, family=ledger.FAMILY, detail=what)
    report(event, said, f"rollout_id={rollout_id}, model_call_id={model_call_id}", what)


def _known(reason: str) -> str:
    """Return a reason that is safe to count by: callers may give any text."""
    return reason if reason in {one.value for one in FailureReason} else OTHER
