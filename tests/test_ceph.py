# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What is said where Ceph is not installed; ``ceph_suite`` is played where it is."""

from __future__ import annotations

import pytest

from gym_objstore.errors import Unusable
from gym_objstore.testing.ceph import ceph


def test_without_its_packages_the_way_to_them_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unusable, match="ceph-authtool is not installed") as caught, ceph(tmp_path):
        pass
    assert caught.value.kind == "missing_extra"
    assert "apt-get install" in str(caught.value)
