# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Gym's symbols are found by name, wherever this version of nemo-gym keeps them."""

from __future__ import annotations

import sys
import types

import pytest

from gym_objstore.errors import Retired, Unusable
from gym_objstore_nemo_gym import shim


@pytest.fixture(autouse=True)
def _forget():
    for lookup in (shim.root, shim.symbol, shim.optional_symbol, shim.retired_error):
        lookup.cache_clear()
    yield
    for lookup in (shim.root, shim.symbol, shim.optional_symbol, shim.retired_error):
        lookup.cache_clear()


@pytest.fixture
def newer_gym(monkeypatch):
    """A nemo-gym that moved its package and has an error of its own for retired rollouts."""
    names = ["nemo_gym.models", "nemo_gym.models.token_capture", "nemo_gym.models.token_capture.protocols"]
    for name in names:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    theirs = type("TokenCaptureRetiredError", (RuntimeError,), {})
    sys.modules[names[-1]].TokenCaptureRetiredError = theirs
    return theirs


def test_the_released_package_is_found():
    assert shim.root() == "nemo_gym.token_id_capture"
    assert shim.symbol("records", "TokenEntry").__module__ == "nemo_gym.token_id_capture.records"
    assert shim.retired_error() is Retired


def test_the_moved_package_is_preferred_and_its_own_error_is_raised(newer_gym):
    assert shim.root() == "nemo_gym.models.token_capture"
    error = shim.retired_error()("gone", kind="retired")
    assert isinstance(error, Retired)
    assert isinstance(error, newer_gym)


def test_a_symbol_that_this_version_lacks_is_named(newer_gym):
    with pytest.raises(Unusable, match=r"lacks a symbol, name=nemo_gym\.models\.token_capture\.protocols\.Absent"):
        shim.symbol("protocols", "Absent")
    assert shim.optional_symbol("absent_module", "x") is None


def test_without_nemo_gym_the_way_out_is_said(monkeypatch):
    monkeypatch.setattr(shim, "_ROOTS", ("nemo_gym_absent.a", "nemo_gym_absent.b"))
    with pytest.raises(Unusable, match="nemo-gym is not installed here"):
        shim.root()
