# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The control routes and their client under Gym's names and arguments, with retire and delete in every nemo-gym."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gym_objstore import control_client, control_routes
from gym_objstore.errors import Retired
from gym_objstore_nemo_gym.shim import optional_symbol, rollout_retired_error, symbol

if TYPE_CHECKING:
    from gym_objstore.control_routes import Ledger, Refuse


def install_rollout_control_routes(
    app: Any, lineage_store: Ledger, *, auth_token: str, refuse_removal: Refuse | None = None
) -> None:
    """Serve manifest, retire and delete of a capture ledger in a Gym application.

    nemo-gym 0.7.0 serves manifests only: there our routes are put over its own. A later one has all three,
    and its own are installed, because they know of its checkpoints; those it installed itself stay first.
    """
    if optional_symbol("control_routes", "MAX_LEDGER_BATCH") is None:
        control_routes.install_rollout_control_routes(app, lineage_store, token=auth_token, refuse=refuse_removal)
        return
    refusal = {} if refuse_removal is None else {"refuse_removal": refuse_removal}
    theirs = symbol("control_routes", "install_rollout_control_routes")
    theirs(app, lineage_store, auth_token=auth_token, **refusal)


class RolloutControlClient(control_client.RolloutControlClient):
    """Our client with Gym's constructor, Gym's manifest and, where Gym has one, Gym's retired error.

    What fails is repeated for as long as one request may take, at most.
    """

    def __init__(self, base_url: str, *, auth_token: str, request_timeout_s: float) -> None:
        super().__init__(base_url, auth_token, timeout=request_timeout_s, retry_seconds=request_timeout_s)

    async def manifest(self, rollout_id: str) -> Any:
        """Return Gym's ``RolloutManifest``; see ``gym_objstore.RolloutControlClient.manifest``."""
        try:
            found = await super().manifest(rollout_id)
        except Retired as error:
            theirs: Any = rollout_retired_error()
            raise theirs(error.message, kind=error.kind, key=error.key, hint=error.hint) from error
        return symbol("staging.records", "RolloutManifest").model_validate(found.model_dump(mode="json"))
