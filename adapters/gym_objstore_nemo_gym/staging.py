# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Staged rows as Gym's workers and trainers handle them: ours underneath, Gym's own records outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gym_objstore import staging_sinks
from gym_objstore.staged_rows import COLUMNS
from gym_objstore_nemo_gym.captures import Capturing
from gym_objstore_nemo_gym.shim import symbol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gym_objstore.wire_staging import StagedCallBaseSnapshot


class StagingSink(Capturing, staging_sinks.StagingSink):
    """A Gym ``StagingSink`` into a bucket, for ``install_capture`` in an inference worker."""

    def stage(self, record: Any, *, attachments: Mapping[str, Any] | None = None) -> Any:
        """Store a record and its attachments; returns Gym's ``StageResult``. See ``gym_objstore.StagingSink.stage``."""
        found = super().stage(record, attachments=attachments)
        return symbol("staging.records", "StageResult")(**dict(found))


class StagingSource(staging_sinks.StagingSource):
    """A Gym ``StagingSource`` over a bucket."""

    def fetch(self, staging_keys: Sequence[str]) -> list[Any]:
        """Return Gym's ``StagedCallBaseSnapshot`` for each key; see ``gym_objstore.StagingSource.fetch``."""
        return [gym_snapshot(one) for one in super().fetch(staging_keys)]

    async def fetch_async(self, staging_keys: Sequence[str]) -> list[Any]:
        """Return Gym's ``StagedCallBaseSnapshot`` for each key; see ``fetch``."""
        return [gym_snapshot(one) for one in await super().fetch_async(staging_keys)]


def gym_snapshot(snapshot: StagedCallBaseSnapshot) -> Any:
    """Return Gym's base snapshot for a verified one of ours, without validating it again."""
    values = {name: list(value) if name in COLUMNS else value for name, value in snapshot}
    return symbol("staging.records", "StagedCallBaseSnapshot").model_construct(set(values), **values)
