# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What every test gets: a clean environment, repeatable examples, and real servers for those that ask."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from gym_objstore.testing.servers import Server
from tests.leaks import Leaks
from tests.server_pool import ServerPool, shared_server

# nemo-gym's server side, which these modules import whole, needs Python 3.12.
collect_ignore = [] if sys.version_info >= (3, 12) else ["test_capture_compat.py", "test_gym_files_compat.py"]

_POOL = pytest.StashKey[ServerPool]()

_FOREIGN_PREFIXES = ("AWS_", "AZURE_", "BOTO_", "GOOGLE_", "GYM_OBJSTORE_", "MINIO_", "NEMO_GYM_", "XDG_")
_FOREIGN_NAMES = ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")

# Every run tries the same examples; `--hypothesis-profile=explore` looks for new ones.
settings.register_profile(
    "repeatable", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", max_examples=2_000, deadline=None, print_blob=True)
settings.register_profile("more", max_examples=400, deadline=None, database=None, print_blob=True)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        pool = config.stash[_POOL] = ServerPool()
        config.pluginmanager.register(Leaks(pool.secrets))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a pytest-xdist worker where the controller's servers are."""
    node.workerinput["server_pool"] = node.config.stash[_POOL].address


def pytest_unconfigure(config: pytest.Config) -> None:
    if (pool := config.stash.get(_POOL, None)) is not None:
        pool.close()


@pytest.fixture(scope="session")
def server_pool_address(request: pytest.FixtureRequest) -> str:
    """Where ``shared_server`` asks."""
    config: Any = request.config
    return config.workerinput["server_pool"] if hasattr(config, "workerinput") else config.stash[_POOL].address


@pytest.fixture(scope="session")
def seaweedfs_server(server_pool_address: str) -> Server:
    """A SeaweedFS that all tests share; write below ``prefix`` in the bucket ``tests``."""
    return shared_server(server_pool_address, "seaweedfs")


@pytest.fixture(scope="session")
def minio_server(server_pool_address: str) -> Server:
    """A MinIO gateway that all tests share; write below ``prefix`` in the bucket ``tests``."""
    return shared_server(server_pool_address, "minio")


@pytest.fixture(scope="session")
def moto_server(server_pool_address: str) -> Server:
    """A moto that all tests share; write below ``prefix`` in the bucket ``tests``. It checks no signature."""
    return shared_server(server_pool_address, "moto")


@pytest.fixture
def prefix() -> str:
    """A key prefix, or a bucket name, that no other test uses."""
    return f"t-{uuid.uuid4().hex}"


@pytest.fixture(scope="session", autouse=True)
def _session_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Hide the developer's settings, credentials, proxies and configuration files from all tests."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(_FOREIGN_PREFIXES) or name.upper() in _FOREIGN_NAMES:
                patch.delenv(name)
        patch.setenv("HOME", str(home))
        # A credential chain that finds nothing would ask the network for seconds.
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield home


@pytest.fixture(autouse=True)
def _empty_home(_session_environment: Path) -> Iterator[None]:
    """Give every test a home without files."""
    yield
    for left in _session_environment.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()


@pytest.fixture
def gym_given_back() -> Iterator[None]:
    """Undo what components with ``captures: true`` put in place in Gym."""
    yield
    from gym_objstore_nemo_gym import deactivate

    deactivate()
