# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys

import pytest

import gym_objstore

# Append to it; a name that leaves it breaks somebody's import.
PUBLIC = (
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
)
HEAVY = ("aioboto3", "boto3", "botocore", "fsspec", "nemo_gym", "numpy", "obstore", "pydantic", "rich", "s3fs", "typer")


def in_a_fresh_process(program: str) -> str:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return ended.stdout.strip()


def test_the_public_names_are_exactly_these() -> None:
    assert tuple(gym_objstore.__all__) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_leads_into_the_package(name: str) -> None:
    assert getattr(gym_objstore, name).__module__.split(".")[0] == "gym_objstore"
    assert name in dir(gym_objstore)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'gym_objstore' has no attribute 'TokenSinks'"):
        gym_objstore.TokenSinks  # noqa: B018 - the access is the test


def test_importing_the_package_loads_no_client_and_no_model() -> None:
    program = f"import sys, gym_objstore; print(*sorted(set(sys.modules) & {set(HEAVY)!r}))"
    assert in_a_fresh_process(program) == ""


def test_catching_an_error_loads_no_client_and_no_model() -> None:
    program = f"import sys; from gym_objstore import Retired; print(*sorted(set(sys.modules) & {set(HEAVY)!r}))"
    assert in_a_fresh_process(program) == ""


def test_a_sink_loads_no_client_and_nothing_of_other_paths() -> None:
    program = "import sys; from gym_objstore import TokenSink; print(*sys.modules)"
    loaded = set(in_a_fresh_process(program).split())
    assert loaded & {*HEAVY, "fastapi", "httpx", "opentelemetry", "prometheus_client", "pyarrow"} == {"pydantic"}
    assert {"capture_store", "captures", "cli", "control_routes", "ledgers", "middleware", "staging"} & {
        name.removeprefix("gym_objstore.") for name in loaded
    } == set()
