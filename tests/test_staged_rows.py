# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The object of one staged row: every bit back, every byte covered by its name, each part readable alone."""

from __future__ import annotations

import hashlib
import math
import struct
import sys

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nemo_gym.token_id_capture import staging as gym

from gym_objstore import codec
from gym_objstore.digests import canonical_json
from gym_objstore.errors import Corrupt, Invalid
from gym_objstore.keys import StagingKey, parse_staging_key, staged_key
from gym_objstore.names import StagedName
from gym_objstore.staged_chains import join_prefix
from gym_objstore.staged_rows import (
    COLUMNS,
    pack,
    unpack_attachments,
    unpack_columns,
    unpack_extras,
    unpack_snapshot,
    unpack_tail,
)
from gym_objstore.staging_digests import EMPTY_EXTRAS_DIGEST, compute_staging_digest
from gym_objstore.testing.staged_rollouts import staged_call
from gym_objstore.wire_staging import StagedCallBaseSnapshot

EXTRAS = {"routed_experts": [[1, 2], [3, 4]], "scale": -0.0, "wide": -(2**63), "note": "ü", "none": None, "yes": True}


def base_of(record) -> StagedCallBaseSnapshot:
    return StagedCallBaseSnapshot(**record.model_dump(exclude={"extras"}))


def whole(row) -> bytes:
    return b"".join(row.body)


def head_of(row) -> dict:
    plain = codec.unpack(row.body[0], "zst")
    return orjson.loads(plain[4 : 4 + struct.unpack("<I", plain[:4])[0]])


def forged(head: dict, columns: bytes, *, call: str = "c1", rollout: str = "rollout-1") -> tuple[StagingKey, bytes]:
    text = canonical_json(head)
    body = codec.encode(struct.pack("<I", len(text)) + text + columns)
    name = StagedName(call, hashlib.sha256(body).hexdigest(), len(body), 0, "r1")
    return StagingKey(rollout, name), body


def test_a_row_comes_back_bit_for_bit():
    record = staged_call("c1", prompt=[0, 2**32, 2**64 - 1], generated=[7], logprobs=[-0.1])
    row = pack(record)
    found = unpack_snapshot(row.key, row.body[0])
    assert found == base_of(record)
    assert found.generation_log_probs_delta == (0.0, 0.0, 0.0, -0.1)


def test_the_sign_of_zero_survives():
    record = staged_call("c1", prompt=[1], generated=[2, 3], logprobs=[-0.0, 0.0])
    row = pack(record)
    found = unpack_snapshot(row.key, row.body[0])
    assert [str(one) for one in found.generation_log_probs_delta] == ["0.0", "-0.0", "0.0"]


@pytest.mark.parametrize(
    ("fields", "columns"),
    [
        ({}, "Iff"),
        ({"prompt": [2**32 - 1]}, "Iff"),
        ({"prompt": [2**32]}, "Qff"),
        ({"logprobs": [-0.5, -0.1]}, "Ifd"),
    ],
)
def test_columns_are_as_narrow_as_their_values_allow(fields, columns):
    assert head_of(pack(staged_call("c1", **fields)))["columns"] == columns


float32 = st.floats(width=32, allow_nan=False, allow_infinity=False, max_value=0.0)


@given(
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 200_000), float32), max_size=20),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
def test_any_row_comes_back(prompt, generated, call):
    ids, logprobs = [one for one, _ in generated], [one for _, one in generated]
    record = staged_call(call, prompt=prompt, generated=ids, logprobs=logprobs)
    row = pack(record)
    assert unpack_snapshot(row.key, row.body[0]) == base_of(record)
    assert parse_staging_key(row.key.text) == row.key


def test_the_key_names_call_digest_and_sizes():
    row = pack(staged_call("Call/1", extras=EXTRAS, rollout_id="task-0"), {"a": b"xyz"})
    digest = hashlib.sha256(row.body[0]).hexdigest()
    assert row.key.text == f"task-0/!43all!2f1.{digest}.{len(row.body[0])}.{len(row.body[1])}.r1"
    assert staged_key("run", row.key) == (
        f"staged/run/task-0/rows/!43all!2f1.{digest}.{len(row.body[0])}.{len(row.body[1])}.r1"
    )


def test_the_longest_ids_still_make_a_usable_key():
    row = pack(staged_call("c" * 300, rollout_id="R" * 300))
    assert len(row.key.name.text) < 200
    assert unpack_snapshot(row.key, row.body[0]).rollout_id == "R" * 300


def test_equal_calls_give_equal_objects_and_other_attachments_another_key():
    record = staged_call("c1", extras=EXTRAS)
    assert pack(record) == pack(staged_call("c1", extras=EXTRAS))
    keys = {pack(record, attachments).key for attachments in (None, {"a": b"1"}, {"a": b"2"}, {"b": b"1"})}
    assert len(keys) == 4


def test_no_attachments_and_an_empty_mapping_of_them_are_the_same():
    assert pack(staged_call("c1"), {}) == pack(staged_call("c1"))


def test_extras_come_back_typed_and_are_compared_with_what_was_committed():
    record = staged_call("c1", extras=EXTRAS)
    row = pack(record)
    found = unpack_extras(row.key, whole(row), record.extras_digest)
    assert found == EXTRAS
    assert (str(found["scale"]), type(found["yes"])) == ("-0.0", bool)
    with pytest.raises(Corrupt, match="not those that were committed") as caught:
        unpack_extras(row.key, whole(row), EMPTY_EXTRAS_DIGEST)
    assert caught.value.kind == "extras_digest_mismatch"


@pytest.mark.parametrize("extras", [None, {}])
def test_no_extras_and_empty_extras_stay_apart(extras):
    record = staged_call("c1", extras=extras)
    row = pack(record)
    assert unpack_extras(row.key, whole(row), record.extras_digest) == extras


def test_every_byte_of_record_and_extras_is_covered():
    row = pack(staged_call("c1", extras={"a": 1}))
    body = whole(row)
    digest = staged_call("c1", extras={"a": 1}).extras_digest
    for position in range(len(body)):
        damaged = bytearray(body)
        damaged[position] ^= 1
        with pytest.raises(Corrupt, match="damaged"):
            unpack_extras(row.key, bytes(damaged), digest)


def test_a_cut_body_is_corrupt():
    row = pack(staged_call("c1", extras={"a": 1}), {"x": b"abc"})
    record = row.body[0]
    with pytest.raises(Corrupt):
        unpack_snapshot(row.key, record[:-1])
    with pytest.raises(Corrupt):
        unpack_extras(row.key, record + row.body[1][:-1], "")
    with pytest.raises(Corrupt, match="cut short"):
        unpack_attachments(unpack_tail(row.key, record), b"".join(row.body[2:])[:-1])


def test_attachments_are_found_from_the_record():
    row = pack(staged_call("c1", extras={"a": 1}), {"x": np.arange(3)})
    tail = unpack_tail(row.key, row.body[0])
    found = unpack_attachments(tail, whole(row)[tail.start : tail.start + tail.size])
    assert found["x"].tolist() == [0, 1, 2]
    assert tail.start + tail.size == len(whole(row))
    assert unpack_tail(pack(staged_call("c1")).key, pack(staged_call("c1")).body[0]) is None


def test_a_row_under_another_calls_name_is_corrupt():
    row = pack(staged_call("c1"))
    for key in (row.key._replace(rollout="rollout-2"), row.key._replace(name=row.key.name._replace(call="c2"))):
        with pytest.raises(Corrupt, match="under another call's name") as caught:
            unpack_columns(key, row.body[0])
        assert caught.value.kind == "misplaced"


def test_a_newer_format_is_named():
    row = pack(staged_call("c1"))
    newer = row.key._replace(name=row.key.name._replace(format="r2"))
    with pytest.raises(Corrupt, match="format=r2; upgrade gym_objstore") as caught:
        unpack_snapshot(newer, row.body[0])
    assert caught.value.kind == "newer_format"


CALL = {"rollout_id": "rollout-1", "model_call_id": "c1", "delta_len": 1}


@pytest.mark.parametrize(
    ("head", "columns"),
    [
        ([], b""),
        ({}, b""),
        ({"call": {}, "columns": "Iff"}, b""),
        ({"call": {**CALL, "rollout_id": 7}, "columns": "Iff"}, b""),
        ({"call": CALL, "columns": "Iff"}, b"\0" * 11),
        ({"call": CALL, "columns": "If"}, b"\0" * 8),
        ({"call": CALL, "columns": "uff"}, b"\0" * 12),
        ({"call": CALL, "columns": "Zff"}, b"\0" * 12),
        ({"call": CALL, "columns": "dff"}, b"\0" * 16),
        ({"call": {**CALL, "delta_len": -1}, "columns": "Iff"}, b"\0" * 12),
        ({"call": {**CALL, "delta_len": 2**62}, "columns": "Iff"}, b"\0" * 12),
        ({"call": {**CALL, "delta_len": "1"}, "columns": "Iff"}, b"\0" * 12),
        ({"call": CALL, "columns": "Iff"}, b"\0" * 12),
    ],
)
def test_a_forged_record_of_the_right_digest_is_corrupt(head, columns):
    key, body = forged(head, columns)
    for unpack in (unpack_snapshot, unpack_columns):
        with pytest.raises(Corrupt) as caught:
            unpack(key, body)
        assert caught.value.kind == "bad_row"


@pytest.mark.parametrize("attachments", [[], 7, {}, {"bytes": "x", "header_bytes": 1, "sha256": ""}])
def test_a_forged_place_of_attachments_is_corrupt(attachments):
    key, body = forged({"call": CALL, "columns": "Iff", "attachments": attachments}, b"\0" * 12)
    with pytest.raises(Corrupt):
        unpack_tail(key, body)


def test_an_altered_token_is_found_by_the_staging_digest():
    row = pack(staged_call("c1"))
    plain = bytearray(codec.unpack(row.body[0], "zst"))
    plain[plain.index(b"\x0b\x00\x00\x00")] = 12
    body = codec.encode(bytes(plain))
    name = row.key.name._replace(digest=hashlib.sha256(body).hexdigest(), record_bytes=len(body))
    with pytest.raises(Corrupt, match="not a sealed staged call"):
        unpack_snapshot(StagingKey("rollout-1", name), body)


@pytest.mark.parametrize("record", [None, {}, "record", 7, base_of(staged_call("c1"))])
def test_what_is_no_staged_record_is_refused(record):
    if isinstance(record, StagedCallBaseSnapshot):
        record = record.model_copy(update={"weight_version": 8})
    with pytest.raises(Invalid, match="not a sealed staged call, type=") as caught:
        pack(record)
    assert caught.value.kind == "bad_record"


def test_extras_that_were_changed_after_sealing_are_refused():
    record = staged_call("c1", extras={"a": [1]})
    record.extras["a"].append(2)
    with pytest.raises(Invalid, match="the extras were changed"):
        pack(record)


def test_extras_nested_deeper_than_json_can_be_are_refused():
    deep: list = []
    for _ in range(300):
        deep = [deep]
    # Which of the two finds it first depends on how deep this Python follows a recursion.
    with pytest.raises(Invalid, match=r"cannot be written as JSON|nested too deeply"):
        pack(staged_call("c1", extras={"deep": deep}))


def test_a_record_costs_a_fifth_of_its_json():
    record = staged_call("c1", prompt=range(500), generated=range(1500), logprobs=[-0.25] * 1500)
    assert len(pack(record).body[0]) < len(canonical_json(record.model_dump(mode="json"))) / 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rollout-1/c1",
        "../c1." + "0" * 64 + ".1.0.r1",
        "!run/c1." + "0" * 64 + ".1.0.r1",
        "a/b/c1." + "0" * 64 + ".1.0.r1",
        "R/c1." + "0" * 64 + ".1.0.r1",
        "r/c1." + "0" * 64 + ".01.0.r1",
        "r/c1." + "0" * 64 + ".0.0.r1",
        "r/c1." + "A" * 64 + ".1.0.r1",
        "r/c1." + "0" * 64 + ".1.0.r1\n",
        "r/." + "0" * 64 + ".1.0.r1",
        "\u0661/c." + "0" * 64 + ".1.0.r1",
    ],
)
def test_other_texts_are_no_staging_keys(text):
    assert parse_staging_key(text) is None


class TestChains:
    root = staged_call("c1")
    second = staged_call("c2", after=[root])
    third = staged_call("c3", after=[root, second])
    rows = [pack(one).columns for one in (root, second, third)]

    def test_a_chain_is_joined_from_the_root_on(self):
        assert join_prefix(self.rows, self.third.chain_hash) == [11, 12, 21, 22] * 3
        assert join_prefix(self.rows[:1], self.root.chain_hash) == [11, 12, 21, 22]

    def test_packed_and_unpacked_columns_are_the_same(self):
        row = pack(self.second)
        assert unpack_columns(row.key, row.body[0]) == row.columns

    @pytest.mark.parametrize("order", [(1,), (0, 2), (1, 0), (0, 0), (0, 1, 1)])
    def test_rows_that_do_not_continue_each_other_are_refused(self, order):
        with pytest.raises(Corrupt, match="does not continue the one before it, model_call_id=") as caught:
            join_prefix([self.rows[index] for index in order])
        assert caught.value.kind == "broken_chain"

    def test_rows_of_two_rollouts_are_no_chain(self):
        other = pack(staged_call("c1", rollout_id="rollout-2")).columns
        with pytest.raises(Corrupt, match="model_call_id=c2"):
            join_prefix([other, self.rows[1]])

    def test_other_tokens_under_the_same_place_are_no_chain(self):
        other = pack(staged_call("c1", prompt=[11, 13])).columns
        with pytest.raises(Corrupt, match="model_call_id=c2"):
            join_prefix([other, self.rows[1]])

    @pytest.mark.parametrize("count", [0, 1])
    def test_a_chain_that_does_not_end_in_the_parent_is_refused(self, count):
        with pytest.raises(Corrupt, match="not the parent's chain"):
            join_prefix(self.rows[:count], self.second.chain_hash)


def test_records_of_nemo_gym_are_taken_by_their_fields():
    record = staged_call("c1", extras=EXTRAS, logprobs=[-0.1, -0.25])
    assert pack(gym.StagedCallRecord(**record.model_dump())) == pack(record)


def test_any_record_that_can_be_dumped_is_taken():
    class Theirs:
        def model_dump(self):
            return staged_call("c1", extras=EXTRAS).model_dump()

    assert pack(Theirs()) == pack(staged_call("c1", extras=EXTRAS))


@pytest.mark.parametrize("change", [{"finish_reason": "stop"}, {"token_ids_delta": [11, 12, 21, 23]}])
def test_a_record_of_nemo_gym_that_is_newer_or_was_changed_is_refused(change):
    record = gym.StagedCallRecord.model_construct(**{**staged_call("c1").model_dump(), **change})
    vars(record).update(change)
    with pytest.raises(Invalid, match="not a sealed staged call"):
        pack(record)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"logprobs": [-0.1, -0.25]},
        {"logprobs": [-0.0, 0.0]},
        {"prompt": [2**32]},
        {"prompt": []},
        {"generated": []},
    ],
)
def test_a_row_is_the_same_without_numpy(fields, monkeypatch):
    with_numpy = pack(staged_call("c1", **fields))
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert pack(staged_call("c1", **fields)) == with_numpy
    assert unpack_snapshot(with_numpy.key, with_numpy.body[0]) == base_of(staged_call("c1", **fields))


def test_a_copy_with_other_columns_is_stored_with_these():
    record = staged_call("c1")
    changed = record.model_copy(update={"token_ids_delta": (11, 12, 21, 2**40)})
    assert pack(changed).columns.token_ids.tolist() == [11, 12, 21, 2**40]
    assert pack(record).columns.token_ids.tolist() == [11, 12, 21, 22]


def sealed_head(columns: str, **fields) -> dict:
    call = staged_call("c1", **fields).model_dump(exclude={"extras", *COLUMNS})
    return {"call": call, "columns": columns}


def test_a_column_that_is_wider_than_it_must_be_is_read():
    key, body = forged(sealed_head("Qdd"), struct.pack("<4Q8d", 11, 12, 21, 22, 0, 0, 1, 1, 0, 0, -0.5, -0.5))
    assert unpack_snapshot(key, body) == base_of(staged_call("c1"))


def test_doubles_that_round_to_the_same_digest_are_read_as_they_were_stored():
    near = math.nextafter(-0.5, -1.0)
    key, body = forged(sealed_head("Ifd"), struct.pack("<4I4f4d", 11, 12, 21, 22, 0, 0, 1, 1, 0, 0, near, -0.5))
    assert unpack_snapshot(key, body).generation_log_probs_delta == (0.0, 0.0, near, -0.5)


ONES = (0.0, 0.0, 1.0, 1.0)
PROBS = (0.0, 0.0, -0.5, -0.5)


@pytest.mark.parametrize("codes", ["Iff", "Idd"])
@pytest.mark.parametrize(
    ("mask", "log_probs"),
    [
        (ONES, (0.0, 0.0, math.nan, -0.5)),
        (ONES, (0.0, 0.0, -math.inf, -0.5)),
        (ONES, (0.0, math.nan, -0.5, -0.5)),
        (ONES, (0.0, -0.5, -0.5, -0.5)),
        ((0.0, 0.0, 1.0, math.nan), PROBS),
        ((0.0, 0.0, 1.0, 0.5), PROBS),
        ((0.0, 0.0, 1.0, -1.0), PROBS),
        ((0.7470588, 0.0, 1.0, 1.0), PROBS),
        ((0.7470588,) * 4, PROBS),
        ((1.0, 0.0, 0.0, 1.0), PROBS),
    ],
)
def test_columns_that_no_row_can_have_are_corrupt_whatever_their_digest(codes, mask, log_probs, monkeypatch):
    numbers = struct.pack(f"<4I4{codes[1]}4{codes[2]}", 11, 12, 21, 22, *mask, *log_probs)
    key, body = forged(sealed_head(codes), numbers)
    monkeypatch.setattr("gym_objstore.wire_staging.compute_staging_digest", _digest_of_nothing_else)
    with pytest.raises(Corrupt, match="not a sealed staged call"):
        unpack_snapshot(key, body)


def _digest_of_nothing_else(call):
    compute_staging_digest(call)
    return call["digest"]
