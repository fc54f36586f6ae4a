# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""These tests have an environment of their own, which has Ray: ``make test-ray``. One local cluster serves all."""

from __future__ import annotations

import secrets
from importlib.util import find_spec
from pathlib import Path

import pytest

collect_ignore_glob = [] if find_spec("ray") else ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def cluster(_session_environment: Path):
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Ray would keep its token in the home folder, which every test leaves empty.
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False)
        yield
        ray.shutdown()
