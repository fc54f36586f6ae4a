# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A run on a Ray cluster: ``RolloutDatasource`` for Ray Data, ``verify`` and ``sweep`` in Ray tasks.

Settings travel to the workers, connections and secrets do not: each worker takes credentials from its own
environment, and needs this package installed, as ``runtime_env`` can see to.
"""

from __future__ import annotations

from gym_objstore.errors import Unusable

try:
    from gym_objstore_ray.jobs import Verified, sweep, verify
    from gym_objstore_ray.rollouts import SCHEMA, RolloutDatasource, table_of
except ImportError as error:
    raise Unusable(
        f"reading on a cluster needs Ray Data, error={error}",
        kind="missing_extra",
        hint="pip install 'gym-objstore[ray]'",
    ) from error

__all__ = ["SCHEMA", "RolloutDatasource", "Verified", "sweep", "table_of", "verify"]
