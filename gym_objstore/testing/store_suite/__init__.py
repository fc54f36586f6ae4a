# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The laws every store obeys, as test classes that any backend can inherit.

::

    pytest.register_assert_rewrite("gym_objstore.testing.store_suite")  # in conftest.py: failures in detail


    class TestMyStore(StoreSuite):
        @pytest.fixture(scope="class")
        @classmethod
        def target(cls) -> Target:
            return Target(open=lambda: MyStore("bucket/root"), behind=BehindS3(client, "bucket", "root/"))

One test is one law, on a store shared by all tests of a class, each test in a folder of its own; nothing is
cleaned up. ``StoreSuite`` is for every store and ``DenialLaws`` for services that know users; a class may also
inherit single groups. Tests marked ``slow``, a marker to be registered, write up to 20,000 objects. Needs pytest
and none of its plugins.

Owns: the choice of groups. Does not own: the laws (one module per group), servers, or a list of stores.
"""

from __future__ import annotations

from gym_objstore.testing.store_suite.behind import BehindFolder, BehindMemory, BehindS3
from gym_objstore.testing.store_suite.bodies import BodyLaws, LargeBodyLaws
from gym_objstore.testing.store_suite.colours import ColourLaws
from gym_objstore.testing.store_suite.denials import DenialLaws, StrangerLaws, Users
from gym_objstore.testing.store_suite.lifetime import LifetimeLaws
from gym_objstore.testing.store_suite.listings import CrowdLaws, DeleteLaws, ListingLaws
from gym_objstore.testing.store_suite.naming import HOSTILE_IDS, NamingLaws
from gym_objstore.testing.store_suite.races import RaceLaws
from gym_objstore.testing.store_suite.refusals import RefusalLaws
from gym_objstore.testing.store_suite.sharing import SharingLaws
from gym_objstore.testing.store_suite.target import Behind, Target

__all__ = [
    "HOSTILE_IDS",
    "Behind",
    "BehindFolder",
    "BehindMemory",
    "BehindS3",
    "BodyLaws",
    "ColourLaws",
    "CrowdLaws",
    "DeleteLaws",
    "DenialLaws",
    "LargeBodyLaws",
    "LifetimeLaws",
    "ListingLaws",
    "NamingLaws",
    "RaceLaws",
    "RefusalLaws",
    "ServiceLaws",
    "SharingLaws",
    "StoreSuite",
    "StrangerLaws",
    "Target",
    "Users",
]


class ServiceLaws(BodyLaws, ListingLaws, DeleteLaws, NamingLaws, RaceLaws):
    """The laws whose outcome depends on the service: enough for a backend's second service."""


class StoreSuite(ServiceLaws, LargeBodyLaws, CrowdLaws, ColourLaws, LifetimeLaws, RefusalLaws, SharingLaws):
    """Every law of a store that knows no users."""
