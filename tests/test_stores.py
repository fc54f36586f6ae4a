# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The store suite on every backend and server."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("gym_objstore.testing.store_suite")

from gym_objstore.store.memory import MemoryStore
from gym_objstore.testing.store_suite import BehindMemory, StoreSuite, Target


class TestMemory(StoreSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> Target:
        return Target(open=lambda: MemoryStore.named("suite"), behind=BehindMemory(MemoryStore.named("suite")))
