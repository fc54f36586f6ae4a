# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``StagingSink`` for inference workers, which write staged rows, and ``StagingSource`` for everyone who reads them.

They bind the flows of ``staging`` to a store; the promises are those flows'. Both forms may be called from many
threads. Rows are immutable, so the token ids of those written or read last are remembered in each process.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gym_objstore import staging
from gym_objstore.connection import Component
from gym_objstore.errors import ObjstoreError
from gym_objstore.observing import Event, report
from gym_objstore.settings import Settings
from gym_objstore.staged_chains import Columns, join_prefix
from gym_objstore.wire_staging import StageResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gym_objstore.wire_staging import StagedCallBaseSnapshot


class StagingSink(Component):
    """Makes the rows of an inference worker durable. Blocking; needs no event loop, and may be called beside one."""

    def __init__(self, url: str | None = None, run_id: str | None = None, **options: Any) -> None:
        super().__init__(Settings.of(url, run_id, **options))

    def stage(self, record: Any, *, attachments: Mapping[str, Any] | None = None) -> StageResult:
        """Store a ``StagedCallRecord``, ours or nemo-gym's, and all attachments in one durable write.

        Attachments are bytes-like objects, numpy arrays, torch tensors and nested mappings of them; one that could
        not be given back exactly is named in the result's error, and nothing is written.
        Returns when: everything is durable, or the result says why not; failures are never raised. A write whose
        answer was lost may have left a row that nobody names: an orphan, for a sweep to find.
        Repeating: the same record and attachments give the same staging key.
        """
        try:
            flow = partial(staging.stage, self.settings.run_id, record, attachments)
            row = self.connection.write_now(staging.FAMILY, flow)
        except ObjstoreError as error:
            return StageResult(ok=False, error=f"{error.kind}: {error}")
        except Exception as error:  # noqa: BLE001 - what a foreign record or tensor raises must not fail the worker
            report(Event("uncaptured", kind="pack_failed"), "a staged row could not be packed", exc_info=True)
            return StageResult(ok=False, error=f"{type(error).__name__}: {error}")
        self.connection.columns.put(row.key.text, row.columns)
        return StageResult(ok=True, staging_key=row.key.text)


class StagingSource(Component):
    """Reads staged rows by their staging keys, any number at a time, and only the part that is asked for."""

    def __init__(self, url: str | None = None, run_id: str | None = None, **options: Any) -> None:
        super().__init__(Settings.of(url, run_id, **options))

    def fetch(self, staging_keys: Sequence[str]) -> list[StagedCallBaseSnapshot]:
        """Return one verified base snapshot for each key, in order; see ``staging.fetch``.

        Fetch the keys of a whole group of rollouts in one call: all are read at the same time.
        """
        return self.connection.play_now(staging.fetch(self.settings.run_id, staging_keys))

    async def fetch_async(self, staging_keys: Sequence[str]) -> list[StagedCallBaseSnapshot]:
        """Return one verified base snapshot for each key; see ``fetch``."""
        return await self.connection.play(staging.fetch(self.settings.run_id, staging_keys))

    def fetch_columns(self, staging_keys: Sequence[str]) -> list[Columns]:
        """Return only token ids and places in a chain, one for each key, in order; see ``staging.fetch_columns``."""
        return self.connection.play_now(staging.fetch_columns(self.settings.run_id, staging_keys))

    async def fetch_columns_async(self, staging_keys: Sequence[str]) -> list[Columns]:
        """Return only token ids and places in a chain; see ``fetch_columns``."""
        return await self.connection.play(staging.fetch_columns(self.settings.run_id, staging_keys))

    def prefix(self, staging_chain: Sequence[str], *, parent_chain_hash: str | None = None) -> list[int]:
        """Return the tokens that an admission's ``staging_chain`` names, verified from the root on.

        Costs no request for rows that this process staged or read not long ago. Raises ``Corrupt`` (kind
        ``broken_chain``) for rows that do not continue each other or do not end in ``parent_chain_hash``, which is
        the admission's; else as ``fetch``.
        """
        found, missing = self._remembered(staging_chain)
        found |= self._remember(missing, self.fetch_columns(missing))
        return join_prefix([found[key] for key in staging_chain], parent_chain_hash)

    async def prefix_async(self, staging_chain: Sequence[str], *, parent_chain_hash: str | None = None) -> list[int]:
        """Return the tokens that a ``staging_chain`` names; see ``prefix``."""
        found, missing = self._remembered(staging_chain)
        found |= self._remember(missing, await self.fetch_columns_async(missing))
        return join_prefix([found[key] for key in staging_chain], parent_chain_hash)

    def load_extras(self, committed: Mapping[str, str]) -> dict[str, dict[str, Any] | None]:
        """Return extras by staging key, given the committed digest of each; see ``staging.load_extras``."""
        return self.connection.play_now(staging.load_extras(self.settings.run_id, committed))

    async def load_extras_async(self, committed: Mapping[str, str]) -> dict[str, dict[str, Any] | None]:
        """Return extras by staging key; see ``load_extras``."""
        return await self.connection.play(staging.load_extras(self.settings.run_id, committed))

    def load_attachments(self, staging_key: str) -> dict[str, Any]:
        """Return a row's attachments as they were staged, not copied; see ``staging.load_attachments``."""
        return self.connection.play_now(staging.load_attachments(self.settings.run_id, staging_key))

    async def load_attachments_async(self, staging_key: str) -> dict[str, Any]:
        """Return a row's attachments as they were staged; see ``load_attachments``."""
        return await self.connection.play(staging.load_attachments(self.settings.run_id, staging_key))

    def _remembered(self, staging_keys: Sequence[str]) -> tuple[dict[str, Columns], list[str]]:
        """Return the rows that are remembered and the keys of the others."""
        found = {key: row for key in staging_keys if (row := self.connection.columns.get(key)) is not None}
        return found, [key for key in staging_keys if key not in found]

    def _remember(self, staging_keys: Sequence[str], rows: Sequence[Columns]) -> dict[str, Columns]:
        for key, row in zip(staging_keys, rows, strict=True):
            self.connection.columns.put(key, row)
        return dict(zip(staging_keys, rows, strict=True))
