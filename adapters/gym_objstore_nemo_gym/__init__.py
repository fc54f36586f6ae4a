# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Plugs gym_objstore into NeMo Gym: the classes that Gym's YAML names as ``gym_objstore_nemo_gym:NAME``."""

from __future__ import annotations

from gym_objstore_nemo_gym.captures import activate, deactivate
from gym_objstore_nemo_gym.control import RolloutControlClient, install_rollout_control_routes
from gym_objstore_nemo_gym.ledger import CaptureLedger
from gym_objstore_nemo_gym.staging import StagingSink, StagingSource
from gym_objstore_nemo_gym.tokens import LineageStore, TokenSink, TokenSource

__all__ = [
    "CaptureLedger",
    "LineageStore",
    "RolloutControlClient",
    "StagingSink",
    "StagingSource",
    "TokenSink",
    "TokenSource",
    "activate",
    "deactivate",
    "install_rollout_control_routes",
]
