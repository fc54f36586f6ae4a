# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""How much memory a sweep takes."""

from __future__ import annotations

import pytest

from gym_objstore.flow import run
from gym_objstore.sweeping import remove, sweep
from tests.synthetic import RUN, SyntheticStore, peak_of

MB = 1 << 20


def swept(objects: int) -> SyntheticStore:
    store = SyntheticStore(objects)
    looked = run(sweep(RUN, remove, now=1e9, grace=3600.0), store)
    assert looked.staged_rows == objects // 3
    return store


def test_memory_hardly_grows_with_the_run():
    small, large = peak_of(lambda: swept(6_000)), peak_of(lambda: swept(60_000))
    assert large - small < 6 * MB
    assert large < 10 * MB


def test_every_orphan_of_a_large_run_goes():
    assert swept(6_000).deleted == 20


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_million_objects_are_swept_below_two_hundred_megabytes():
    assert peak_of(lambda: swept(999_990)) < 200 * MB
