# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The stores that tests of laws run on: each backend on each service, with a way to look behind its back.

All backends of a server share one root, so that what takes long to write is written once.
"""

from __future__ import annotations

from pathlib import Path

from gym_objstore.store import Store
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.opening import open_store
from gym_objstore.testing.servers import Server, s3_client
from gym_objstore.testing.store_suite import BehindFolder, BehindMemory, BehindS3, Target
from tests.server_pool import BUCKET

ROOT = "store-suite/"


def memory_target(name: str) -> Target:
    return Target(open=lambda: open_store(f"memory://{name}"), behind=BehindMemory(MemoryStore.named(name)))


def file_target(folder: Path) -> Target:
    return Target(
        open=lambda: open_store(f"file://{folder}"),
        behind=BehindFolder(folder),
        object_beside_folder=False,
    )


def server_target(server: Server, backend: str) -> Target:
    return Target(
        open=lambda: open_on_server(server, backend),
        behind=BehindS3(s3_client(server), BUCKET, ROOT),
        object_beside_folder=server.kind != "minio",
        folders_vanish=server.kind == "moto",
        # Seen now and then: the length of the old object with bytes of the new one.
        replaces_whole=server.kind != "minio",
        secrets=(server.secret_key,),
    )


def open_on_server(server: Server, backend: str, **options: object) -> Store:
    # A refusal that a server reports as its own failure is repeated to the end of the budget.
    settings = {**server.settings(), "backend": backend, "retry_seconds": 5, **options}
    return open_store(f"s3://{BUCKET}/{ROOT}", **settings)
