# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The error tree is part of the public contract."""

from __future__ import annotations

import pickle

import pytest

from gym_objstore import errors

TREE = {
    "Invalid": ValueError,
    "NotFound": KeyError,
    "Conflict": ValueError,
    "Retired": RuntimeError,
    "Corrupt": ValueError,
    "Unavailable": ConnectionError,
    "Denied": PermissionError,
    "Unusable": RuntimeError,
}


def test_the_tree_is_exactly_this():
    found = {
        name: error.__bases__[1]
        for name, error in vars(errors).items()
        if isinstance(error, type) and issubclass(error, errors.ObjstoreError) and error is not errors.ObjstoreError
    }
    assert found == TREE


@pytest.mark.parametrize("name", TREE)
def test_an_error_survives_pickling_with_all_it_says(name):
    error = getattr(errors, name)("what went wrong", kind="a_kind", key="tokens/r", hint="do this")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (copy.message, copy.kind, copy.key, copy.hint) == ("what went wrong", "a_kind", "tokens/r", "do this")
    assert str(copy) == "what went wrong, key=tokens/r; do this"


@pytest.mark.parametrize(("name", "kind"), [("Invalid", "invalid"), ("NotFound", "notfound"), ("Denied", "denied")])
def test_the_kind_defaults_to_the_class(name, kind):
    assert getattr(errors, name)("x").kind == kind


def test_a_refusal_of_the_storage_is_no_absence():
    assert not issubclass(errors.Denied, errors.NotFound)
    assert not issubclass(errors.Denied, KeyError)
