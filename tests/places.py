# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The five kinds of place that the token path is proven on, as the arguments of a component."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gym_objstore.store import Store
from gym_objstore.store.opening import open_store
from tests.server_pool import BUCKET

PLACES = ("memory", "file", "moto", "seaweedfs", "minio")


def place_of(kind: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the keyword arguments that lead any component of ours to an empty place of this kind."""
    prefix, folder = request.getfixturevalue("prefix"), request.getfixturevalue("tmp_path")
    common = {"run_id": "run-1", "spill_dir": str(folder / "spill")}
    if kind == "memory":
        return {"url": f"memory://{prefix}", **common}
    if kind == "file":
        return {"url": f"file://{folder}/store", **common}
    server = request.getfixturevalue(f"{kind}_server")
    return {"url": f"s3://{BUCKET}/{prefix}", **server.settings(), **common}


@contextmanager
def store_of(kind: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    """Yield a store at an empty place of this kind."""
    place = place_of(kind, request)
    found = open_store(place["url"], **{name: place[name] for name in place.keys() - {"url", "run_id", "spill_dir"}})
    yield found
    found.close()
