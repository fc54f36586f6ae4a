# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""An object-storage data plane for reinforcement-learning rollouts, with nothing shared but a bucket.

Names are loaded at first use: importing the package loads no storage client and no model class.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gym_objstore.errors import (
    Conflict,
    Corrupt,
    Denied,
    Invalid,
    NotFound,
    ObjstoreError,
    Retired,
    Unavailable,
    Unusable,
)

if TYPE_CHECKING:
    from gym_objstore.capture_store import (
        CaptureStore,
        aggregate_model_call_metrics,
        read_available_model_call_records,
        read_model_call_records,
    )
    from gym_objstore.client import TrainerClient
    from gym_objstore.control_client import RolloutControlClient
    from gym_objstore.control_routes import control_app, install_rollout_control_routes
    from gym_objstore.installed import (
        install_lineage_store,
        install_token_sink,
        install_token_source,
        installed_lineage_store,
        installed_token_sink,
        installed_token_source,
    )
    from gym_objstore.ledgers import CaptureLedger
    from gym_objstore.linearize import verify_and_linearize
    from gym_objstore.middleware import CaptureMiddleware
    from gym_objstore.receipts import build_receipt
    from gym_objstore.records import TokenEntry
    from gym_objstore.rollout_capture import RolloutTokenCapture, install_capture
    from gym_objstore.sinks import LineageResolver, LineageStore, TokenSink, TokenSource
    from gym_objstore.staging_sinks import StagingSink, StagingSource
    from gym_objstore.store.opening import open_store
    from gym_objstore.tokens import Problem, Snapshot
    from gym_objstore.trajectories import rebuild

_LAZY = {
    "CaptureLedger": "ledgers",
    "CaptureMiddleware": "middleware",
    "CaptureStore": "capture_store",
    "LineageResolver": "sinks",
    "LineageStore": "sinks",
    "Problem": "tokens",
    "RolloutControlClient": "control_client",
    "RolloutTokenCapture": "rollout_capture",
    "Snapshot": "tokens",
    "StagingSink": "staging_sinks",
    "StagingSource": "staging_sinks",
    "TokenEntry": "records",
    "TokenSink": "sinks",
    "TokenSource": "sinks",
    "TrainerClient": "client",
    "aggregate_model_call_metrics": "capture_store",
    "build_receipt": "receipts",
    "control_app": "control_routes",
    "install_capture": "rollout_capture",
    "install_lineage_store": "installed",
    "install_rollout_control_routes": "control_routes",
    "install_token_sink": "installed",
    "install_token_source": "installed",
    "installed_lineage_store": "installed",
    "installed_token_sink": "installed",
    "installed_token_source": "installed",
    "open_store": "store.opening",
    "read_available_model_call_records": "capture_store",
    "read_model_call_records": "capture_store",
    "rebuild": "trajectories",
    "verify_and_linearize": "linearize",
}

# More than thirty, because two documents say what users import from here.
__all__ = [
    "CaptureLedger",
    "CaptureMiddleware",
    "CaptureStore",
    "Conflict",
    "Corrupt",
    "Denied",
    "Invalid",
    "LineageResolver",
    "LineageStore",
    "NotFound",
    "ObjstoreError",
    "Problem",
    "Retired",
    "RolloutControlClient",
    "RolloutTokenCapture",
    "Snapshot",
    "StagingSink",
    "StagingSource",
    "TokenEntry",
    "TokenSink",
    "TokenSource",
    "TrainerClient",
    "Unavailable",
    "Unusable",
    "aggregate_model_call_metrics",
    "build_receipt",
    "control_app",
    "install_capture",
    "install_lineage_store",
    "install_rollout_control_routes",
    "install_token_sink",
    "install_token_source",
    "installed_lineage_store",
    "installed_token_sink",
    "installed_token_source",
    "open_store",
    "read_available_model_call_records",
    "read_model_call_records",
    "rebuild",
    "verify_and_linearize",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    found = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
