# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The capture ledger as Gym's YAML names it under ``lineage_store``: ours underneath, Gym's own answers outside."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gym_objstore import ledgers
from gym_objstore.errors import Retired
from gym_objstore_nemo_gym.captures import Capturing
from gym_objstore_nemo_gym.shim import rollout_retired_error
from gym_objstore_nemo_gym.tokens import GymMatcher, gym_resolution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gym_objstore.lineage import Items


class CaptureLedger(Capturing, ledgers.CaptureLedger):
    """A Gym ``CaptureLedger`` in a bucket, which also resolves requests from token entries."""

    matcher = GymMatcher()

    async def manifest(self, rollout_id: str) -> dict[str, Any]:
        """Return a rollout's manifest; raises Gym's retired error where it has one. See ``ledger.manifest``."""
        with _gym_errors():
            return await super().manifest(rollout_id)

    async def has_rows(self, rollout_id: str) -> bool:
        """Say whether the ledger holds any row; raises Gym's retired error where it has one."""
        with _gym_errors():
            return await super().has_rows(rollout_id)

    async def resolve(self, rollout_id: str, request_items: Items) -> Any:
        """Return Gym's ``LineageResolution``; see ``gym_objstore.CaptureLedger.resolve``."""
        return gym_resolution(await super().resolve(rollout_id, request_items))


@contextmanager
def _gym_errors() -> Iterator[None]:
    try:
        yield
    except Retired as error:
        theirs: Any = rollout_retired_error()
        raise theirs(error.message, kind=error.kind, key=error.key, hint=error.hint) from error
