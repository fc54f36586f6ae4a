# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from gym_objstore import packs
from gym_objstore.digests import sha256_hex
from gym_objstore.flow import run
from gym_objstore.ids import segment
from gym_objstore.index import read_index
from gym_objstore.keys import parse
from gym_objstore.objects import announcement, write_object
from gym_objstore.proofs import damage_of, run_damage_of
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


SMALL = {
    "intents": ("tokens", "r1/intents/!43", write_object(rollout_id="r1", model_call_id="C")),
    "consumed": ("manifests", "r1/consumed/step-1", write_object(rollout_id="r1", checkpoint_id="step-1")),
}


@pytest.mark.parametrize("kind", SMALL)
def test_what_follows_from_the_ids_in_it_is_proven_in_every_byte(kind):
    family, path, body = SMALL[kind]
    assert damage_of(family, path, body) is None
    for place in range(len(body)):
        assert damage_of(family, path, body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]), place
    for changed in (b"", b"[]", body + b" ", body[:-1], b'{"format":1}', b'{"format":1,"rollout_id":7}'):
        assert damage_of(family, path, changed)
    for elsewhere in (path.replace("r1/", "r2/"), f"{path}2"):
        assert damage_of(family, elsewhere, body)


def test_an_id_too_long_for_its_segment_proves_its_intent_as_well():
    long = "Call" * 100
    body = write_object(rollout_id=long, model_call_id=long)
    assert damage_of("tokens", f"{segment(long)}/intents/{segment(long)}", body) is None
    assert damage_of("tokens", f"{segment(long)}/intents/{segment(long + '2')}", body)


OWN = {
    "writer": ("tokens", "writer", announcement("tokens", "Run 1").body),
    "closed": ("manifests", "closed", b'{"closed":true,"format":1}'),
    "descriptor": ("manifests", f"descriptors/{sha256_hex(b'settings')}", b"settings"),
}


@pytest.mark.parametrize("kind", OWN)
def test_what_a_run_says_of_itself_is_proven_in_every_byte(kind):
    family, name, body = OWN[kind]
    assert run_damage_of(family, "!52un!201", name, body) is None
    for place in range(len(body)):
        changed = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        assert run_damage_of(family, "!52un!201", name, changed), place


def test_a_writer_marker_is_that_of_its_run_and_family():
    body = announcement("tokens", "Run 1").body
    assert run_damage_of("tokens", "!52un!202", "writer", body)
    assert run_damage_of("ledger", "!52un!201", "writer", body)
    assert run_damage_of("tokens", "!52un!201", "note", b"x") is None


@pytest.mark.parametrize("name", ["rows/notes.txt", "other/x", "entries/x"])
def test_names_of_no_kind_of_ours_promise_nothing(name):
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
