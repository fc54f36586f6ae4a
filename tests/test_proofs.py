# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from gym_objstore import packs
from gym_objstore.flow import run
from gym_objstore.index import read_index
from gym_objstore.keys import parse
from gym_objstore.proofs import damage_of
from gym_objstore.staged_rows import pack
from gym_objstore.testing.staged_rollouts import staged_call
from tests.whole_run import contents, make_run


def objects():
    """The objects of a run with a pack, by family and path below the run."""
    store = make_run()
    run(packs.publish(run(read_index("tokens/run-1/good/"), store)), store)
    for key, body in contents(store).items():
        if "/!run/" not in key:
            parts = parse(key)
            yield parts.family, f"{parts.rollout}/{parts.kind}/{parts.name}", body


def test_what_is_whole_is_found_whole():
    assert [damage_of(*one) for one in objects()] == [None] * len(list(objects()))


def test_a_changed_byte_is_found_wherever_the_name_has_a_digest():
    silent = set()
    for family, name, body in objects():
        if damage_of(family, name, bytes([body[0] ^ 1]) + body[1:]) is None:
            silent.add((family, name.split("/")[1]))
    assert silent == {("tokens", "fences")}


@pytest.mark.parametrize("name", ["rows/notes.txt", "other/x", "entries/x"])
def test_names_without_a_digest_promise_nothing(name):
    assert damage_of("tokens", f"r/{name}", b"x") is None


def test_a_format_of_a_newer_version_cannot_be_verified():
    name = f"entries/c0.full.none.{64 * '0'}.v9"
    assert damage_of("tokens", f"r/{name}", b"x") is None
    assert damage_of("tokens", f"r/{name}".replace("v9", "zst"), b"x") is not None


def test_every_byte_of_a_staged_row_is_covered():
    row = pack(staged_call("c1", extras={"a": 1}), {"image": b"\x00" * 64})
    path, body = f"{row.key.rollout}/rows/{row.key.name.text}", b"".join(row.body)
    assert damage_of("staged", path, body) is None
    for place in range(len(body)):
        assert damage_of("staged", path, body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]), place
    for changed in (body[:-1], body + b"x"):
        assert damage_of("staged", path, changed)
