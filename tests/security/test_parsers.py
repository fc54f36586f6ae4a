# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever bytes, names and documents a parser is given: it returns something of its type or raises our errors.

Readers of event streams, codecs and compressed bodies have fuzz tests of their own (``test_sse_fuzz``, ``test_codec``,
``test_bodies``). ``python -m tests.security.guided`` looks for more with coverage as its guide.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from functools import cache

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_objstore import captures, codec, control_answers, gym_rows, importing, names, objects, staged_attachments
from gym_objstore.captures import order_of
from gym_objstore.control_routes import _ids_of
from gym_objstore.control_wire import require_wire_id
from gym_objstore.correlation import parse_path, rollout_id_of, rollout_url, survives_url
from gym_objstore.digests import canonical_json, sha256_hex
from gym_objstore.errors import (
    Conflict,
    Corrupt,
    Denied,
    Invalid,
    NotFound,
    ObjstoreError,
    Retired,
    Unavailable,
    Unusable,
)
from gym_objstore.flow import run
from gym_objstore.gym_folder import KINDS, find_files
from gym_objstore.gym_pieces import RolloutFiles, pieces
from gym_objstore.ids import identifier, segment
from gym_objstore.index import index_keys
from gym_objstore.keys import StagingKey, parse, parse_staging_key, rollout_prefix
from gym_objstore.manifests import Unread, manifest_of
from gym_objstore.receipts import build_receipt, pack_receipt, unpack_receipt
from gym_objstore.records import parse_entry
from gym_objstore.sealing import seal
from gym_objstore.spill import Spill, replay
from gym_objstore.staged_rows import (
    pack,
    unpack_attachments,
    unpack_columns,
    unpack_extras,
    unpack_snapshot,
    unpack_tail,
)
from gym_objstore.store.location import parse_url
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.options import OPTIONS, StoreOptions
from gym_objstore.testing.staged_rollouts import staged_call
from gym_objstore.tokens import freeze, publish, put_entry
from gym_objstore.wire_ledger import ManifestFailure, RolloutManifest, RolloutReceipt, RolloutRemoval
from tests.entries import make_chain, make_entry
from tests.finished import commit_of, receipt_for, record_calls
from tests.security.hostile import changed, deep, ids, ours_only, text_of, values

LINES = st.text(st.characters(max_codepoint=127), max_size=90) | st.text(max_size=40)
DIGEST = "0" * 64
ENTRY = make_entry("r1", "c1").model_dump(mode="json")
STAGED = staged_call("c1", prompt=(1, 12), generated=(21, 100))
ATTACHED = {"a": b"123", "m": {"n": b"4"}, "e": {}, "x": np.arange(3, dtype=np.float32)}
ROW = commit_of(STAGED, pack(STAGED).key.text).record.model_dump(mode="json")
MANIFEST = {"rollout_id": "r1", "records": [ROW], "failures": [{"model_call_id": "c", "reason": "x"}]}
PARSERS = {
    "an entry": names.parse_entry_name,
    "a capture": names.parse_capture_name,
    "a note": names.parse_note_name,
    "a row": names.parse_row_name,
    "a staged row": names.parse_staged_name,
    "a pack": names.parse_pack_name,
    "a drop": names.parse_drop_name,
    "a receipt": names.parse_receipt_name,
}
NAMES = st.one_of(
    LINES,
    st.builds("{}.full.none.{}.zst".format, ids, st.just(DIGEST)),
    st.builds("{}/none.{}".format, ids, st.just(DIGEST)),
    st.builds("{}.{}.{}.{}.r1".format, ids, st.just(DIGEST), st.integers(), st.integers()),
    st.builds("{:016d}.{}.{}.zst".format, st.integers(0, 10**16 - 1), ids, st.just(DIGEST)),
    st.builds("packs/{}.{}.{}".format, st.just(DIGEST), st.just(DIGEST), LINES),
)


@pytest.mark.parametrize("what", PARSERS)
def test_the_name_of_an_object_is_read_whole_or_not_at_all(what):
    @given(NAMES)
    def read(text):
        found = PARSERS[what](text)
        if hasattr(found, "text"):
            assert found.text == text

    read()


@given(NAMES | st.lists(ids, min_size=5, max_size=6).map("/".join))
def test_a_key_is_read_whole_or_refused(text):
    found = ours_only(parse, text)
    assert isinstance(found, Invalid) or "/".join(found) == text
    key = parse_staging_key(text)
    assert key is None or key.text == text
    index_keys("tokens/run/r1/", [f"tokens/run/r1/{text}"])


@given(LINES)
def test_a_segment_is_one_of_an_id_or_refused(text):
    found = ours_only(identifier, text)
    assert found is None or isinstance(found, Invalid) or segment(found) == text


@given(LINES | st.builds("{}://{}".format, st.sampled_from(["s3", "file", "memory", "gs", "https"]), LINES))
def test_a_store_url_is_read_or_refused_and_reads_the_same_again(text):
    found = ours_only(parse_url, text)
    assert isinstance(found, Invalid) or parse_url(found.url) == found


@given(st.sampled_from(sorted(OPTIONS)), LINES | values | st.floats())
def test_an_option_of_a_store_is_read_or_refused(name, value):
    found = ours_only(lambda: StoreOptions.of("s3://bucket/x", **{name: value}))
    assert isinstance(found, (Invalid, StoreOptions))


@given(changed(ENTRY) | values)
def test_an_entry_is_read_and_sealed_the_same_or_refused(document):
    found = ours_only(parse_entry, document)
    if not isinstance(found, Invalid):
        text = seal(found).canonical
        assert seal(parse_entry(codec.parse(text))).canonical == text


@given(changed(ENTRY).map(text_of) | values.map(text_of) | deep)
def test_a_line_of_a_token_file_is_an_object_or_refused(text):
    found = ours_only(importing.entry_piece, "run", "r1", text)
    assert isinstance(found, Invalid) or sha256_hex(found.text) == found.digest


def row_of(plain: bytes) -> tuple[StagingKey, bytes]:
    """Return a row that holds what its name says, whatever that is."""
    body = codec.encode(plain)
    return StagingKey("rollout-1", names.StagedName("c1", sha256_hex(body), len(body), 0, "r1")), body


@cache
def parts_of_a_row():
    row = pack(STAGED, ATTACHED)
    plain = codec.unpack(row.body[0], codec.FORMAT)
    (size,) = struct.unpack_from("<I", plain)
    return orjson.loads(plain[4 : 4 + size]), plain[4 + size :], b"".join(row.body[1:])


def read_row(plain: bytes):
    key, body = row_of(plain)
    for read in (unpack_snapshot, unpack_columns):
        assert isinstance(found := ours_only(read, key, body), Corrupt) or found.model_call_id == "c1"
    ours_only(unpack_extras, key, body, DIGEST)
    tail = ours_only(unpack_tail, key, body)
    if tail is not None and not isinstance(tail, ObjstoreError):
        ours_only(unpack_attachments, tail, parts_of_a_row()[2])


@given(changed(parts_of_a_row()[0]), st.binary(max_size=60) | st.just(parts_of_a_row()[1]))
def test_the_head_of_a_staged_row_is_read_or_refused(head, columns):
    text = text_of(head)
    read_row(struct.pack("<I", len(text)) + text + columns)


@given(st.binary(min_size=1, max_size=60) | deep)
def test_the_bytes_of_a_staged_row_are_read_or_refused(plain):
    read_row(plain)


SHAPES = st.lists(st.integers(-1, 2**62) | st.sampled_from(["x", 1.5, True, None]), max_size=3)
TYPES = st.text("<>|=fiuSVUOMc0124(),[] ", max_size=8) | st.sampled_from(
    ["bfloat16", "__name__", "|S9999999999", "|V0"]
)


def origins_of(header):
    return json.loads(header["__metadata__"]["gym_objstore"])


@cache
def attachments():
    container = staged_attachments.pack(ATTACHED)
    return orjson.loads(container.header[8:]), b"".join(container.buffers)


@given(changed(attachments()[0]), changed(origins_of(attachments()[0])), TYPES | st.none(), SHAPES | st.none())
def test_the_header_of_attachments_is_read_or_refused(header, origins, dtype, shape):
    for origin in origins if isinstance(origins, list) else []:
        if isinstance(origin, dict) and origin.get("kind") == "numpy":
            origin.update({} if dtype is None else {"dtype": dtype}, **({} if shape is None else {"shape": shape}))
    if isinstance(header, dict) and isinstance(header.get("__metadata__"), dict):
        header["__metadata__"]["gym_objstore"] = text_of(origins).decode()
    text = text_of(header)
    whole = struct.pack("<Q", len(text)) + text
    found = ours_only(staged_attachments.unpack, whole + attachments()[1], len(whole), sha256_hex(whole))
    assert isinstance(found, (ObjstoreError, dict))


@cache
def receipt() -> dict:
    store = MemoryStore()
    record_calls(store, "r1", calls=2)
    return orjson.loads(pack_receipt(receipt_for(store, "r1")))


@given(changed(receipt()).map(text_of) | values.map(text_of) | deep)
def test_a_receipt_is_read_or_refused(body):
    found = ours_only(unpack_receipt, "r1", sha256_hex(body), body)
    assert isinstance(found, (Corrupt, RolloutReceipt))


@given(changed(MANIFEST) | values, values)
def test_a_receipt_is_built_of_any_manifest_or_refused(manifest, response):
    found = ours_only(lambda: build_receipt(manifest, 1.0, response=response))
    assert isinstance(found, (Invalid, RolloutReceipt))


@given(
    changed({"format": 1, "rollout_id": "r1", "record": ROW, "model_call_id": "c1", "reason": "x"}).map(text_of) | deep
)
def test_a_ledger_object_is_a_record_or_a_failure(body):
    digest = sha256_hex(body)
    named = [f"rows/c1/none.{digest}", f"failures/c1.{digest[:16]}", "rows/x", "failures/", "\ud800"]
    manifest = manifest_of("r1", [Unread(name, body) for name in named], ["c9"], ["foreign"])
    assert len(manifest.records) + len(manifest.failures) == 7
    assert all(isinstance(one, ManifestFailure) for one in manifest.failures)


@given(st.binary(max_size=40) | values.map(text_of) | deep)
def test_a_small_object_is_read_or_refused(body):
    found = ours_only(objects.read_object, body)
    assert isinstance(found, Corrupt) or found["format"] == 1


@given(values | st.integers() | st.floats(), st.floats(0, 1e12))
def test_a_capture_has_a_place_in_the_order_whatever_its_clock_says(completed, now):
    assert 0 <= order_of(completed, now) < 10**16
    line = captures.line_of({"completed_at": completed, "model_call_id": completed}, now)
    assert names.parse_capture_name(captures.capture_name(line).text) == captures.capture_name(line)


@given(st.lists(st.binary(max_size=30) | values.map(text_of) | deep, max_size=4))
def test_lines_of_a_capture_file_are_objects_in_their_order(lines):
    found = list(importing.capture_pieces("run", "r1", lines))
    assert [one.text for one in found] == lines
    assert sorted(one.key for one in found) == [one.key for one in found]


@given(changed(MANIFEST).map(text_of) | changed({"removed": ["r1"], "absent": []}).map(text_of) | deep | st.binary())
def test_an_answer_of_a_control_server_is_what_was_asked_for_or_refused(body):
    assert isinstance(ours_only(control_answers.manifest_in, body, "r1", "/p"), (Corrupt, RolloutManifest))
    assert isinstance(ours_only(control_answers.removal_in, body, ["r1"], "/p"), (Corrupt, RolloutRemoval))
    for status in (400, 401, 409, 410, 422, 429, 500, 503, 999):
        answer = control_answers.Answer(status, body, 0.0)
        assert isinstance(control_answers.refusal(answer, "/p", b"secret-token"), ObjstoreError)


@given(changed({"rollout_ids": ["r1", "r2"]}).map(text_of) | deep | st.binary())
def test_the_body_of_a_control_request_names_good_ids_or_is_refused(body):
    found = ours_only(_ids_of, body)
    assert isinstance(found, Invalid) or all(require_wire_id(one) == one for one in found)


@given(st.builds("/ng-rollout/{}{}".format, ids, LINES) | LINES)
def test_a_path_that_is_taken_apart_is_put_together_again(path):
    if (route := parse_path(path)) is not None:
        assert route.prefix + route.path == path
        assert "/" not in route.rollout_id
        route.raw_path(path.encode("utf-8", "surrogatepass"))
        route.location(path, "host")


@given(LINES | st.builds("http{}".format, LINES), ids)
def test_a_server_url_gets_a_prefix_or_is_refused(url, rollout_id):
    found = ours_only(rollout_url, url, rollout_id)
    assert isinstance(found, Invalid) or found.endswith(f"/ng-rollout/{rollout_id}")


@given(changed({"_ng_rollout_id": "r", "_ng_task_index": 1, "_ng_rollout_index": 2, "_ng_attempt_index": 3}))
def test_a_rollout_record_implies_an_id_or_none_or_is_refused(record):
    if isinstance(record, dict):
        found = ours_only(rollout_id_of, record)
        assert found is None or isinstance(found, (str, Invalid))
        assert record.get("_ng_rollout_id") is None or isinstance(found, Invalid) or survives_url(found)


FILE_LINES = st.one_of(
    st.binary(max_size=30),
    values.map(text_of),
    changed(ENTRY).map(text_of),
    changed({**ROW, "rollout_id": "r1"}).map(text_of),
    deep,
)


@given(st.dictionaries(st.sampled_from(KINDS), st.lists(FILE_LINES, max_size=3).map(b"\n".join), min_size=1))
def test_gyms_files_are_objects_or_refused_by_line(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("gym")
    for kind, body in files.items():
        (folder / f"r1{kind}").write_bytes(body)
    source = RolloutFiles("run", "r1", find_files(folder).rollouts["r1"])
    for family in source.families():
        found = ours_only(lambda family=family: list(pieces(family, source, Counter())))
        within = rollout_prefix(family, "run", "r1")
        assert isinstance(found, Invalid) or all(one.key.startswith(within) for one in found)


@given(changed({**ROW, "rollout_id": "r1"}).map(text_of) | deep)
def test_a_row_of_a_lineage_file_is_a_row_or_refused(text):
    row = ours_only(gym_rows.parse_row, text)
    if not isinstance(row, ObjstoreError) and (gym_rows.is_failure(row) or gym_rows.is_staged(row)):
        found = ours_only(importing.row_piece, "run", "r1", row)
        assert isinstance(found, Invalid) or sha256_hex(found.text) == found.digest


SPILLED = {"url": "s3://b", "key": "tokens/run/r1/intents/c", "size": 3}


@given(
    changed(SPILLED).map(text_of) | st.binary() | deep,
    st.just(b"abc") | st.binary(),
    st.sampled_from(["1-x", "x", "-"]),
)
def test_a_file_of_the_spill_is_a_write_or_refused(tmp_path_factory, header, body, name):
    spill = Spill(tmp_path_factory.mktemp("spill"), "s3://b")
    spill.folder.mkdir()
    (spill.folder / f"{name}.write").write_bytes(header + b"\n" + body)
    found = ours_only(lambda: list(spill.kept()))
    if not isinstance(found, Corrupt):
        run(replay(found[0].put), MemoryStore())


@given(st.data())
def test_a_pack_with_any_text_is_the_entries_or_nothing(data):
    """A pack whose name is right, by somebody who may write packs: only the entries themselves are believed."""
    store = MemoryStore()
    for entry in make_chain("r1", 2):
        run(put_entry("run", entry), store)
    frozen = run(freeze("run", "r1"), store)
    run(publish("run", "r1"), store)
    (key,) = [meta.key for meta in store.scan("tokens/run/r1/packs/")]
    head, _, texts = codec.unpack(store.get(key), codec.FORMAT).partition(b"\n")
    forged = (
        text_of(data.draw(changed(orjson.loads(head)))) + b"\n" + data.draw(st.just(texts) | st.binary(max_size=20))
    )
    store.delete([key])
    store.put(f"{key[: -len('.zst') - 64]}{sha256_hex(forged)}.zst", codec.encode(forged))
    assert run(freeze("run", "r1"), store).entries == frozen.entries


@given(st.dictionaries(st.text(max_size=5), values, max_size=3))
def test_what_is_canonical_is_read_back_the_same(document):
    text = ours_only(canonical_json, document)
    if not isinstance(text, Invalid):
        assert canonical_json(codec.parse(text)) == text


def test_the_errors_that_pass_are_a_closed_set():
    known = {Conflict, Corrupt, Denied, Invalid, NotFound, Retired, Unavailable, Unusable}
    assert set(ObjstoreError.__subclasses__()) == known
