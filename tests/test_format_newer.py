# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What becomes of objects of a newer format, as docs/format-v1.md has it: nothing is hidden, nothing is trained on."""

from __future__ import annotations

import pytest

from gym_objstore import captures, checking, ledger, receipts_published, receipts_reading, staging
from gym_objstore.digests import canonical_json, sha256_hex
from gym_objstore.errors import Corrupt
from gym_objstore.flow import run
from gym_objstore.keys import rollout_prefix
from gym_objstore.runs import describe_run
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.opening import open_store
from gym_objstore.tokens import freeze
from tests.vectors.generate_format import FOLDER, LOSSY, RUN, STAGING_KEYS, WHOLE, unstamped

TOKENS = rollout_prefix("tokens", RUN, WHOLE)
LEDGER = rollout_prefix("ledger", RUN, WHOLE)


@pytest.fixture
def store():
    kept, copy = open_store(f"file://{FOLDER}"), MemoryStore()
    for meta in kept.scan(""):
        copy.put(meta.key, kept.get(meta.key))
    return copy


def problems(store, rollout=WHOLE):
    return [(one.kind, one.model_call_id) for one in run(freeze(RUN, rollout), store).problems]


def test_an_entry_in_another_format_makes_its_rollout_incomplete(store):
    store.put(f"{TOKENS}entries/c8.full.none.{'0' * 64}.v2", b"?")
    assert problems(store) == [("newer_format", "c8")]


@pytest.mark.parametrize("name", ["summaries/c0", "entries/c8.v2", "markers/c8"])
def test_another_object_among_tokens_makes_its_rollout_incomplete(store, name):
    store.put(TOKENS + name, b"?")
    assert problems(store) == [("foreign", "")]


def test_an_entry_of_a_newer_schema_makes_its_rollout_incomplete(store):
    text = canonical_json({**unstamped("c8").model_dump(mode="json"), "schema_version": 2})
    store.put(f"{TOKENS}entries/c8.full.none.{sha256_hex(text)}.json", text)
    assert problems(store) == [("corrupt", "c8")]


def test_another_fence_is_ignored(store):
    before = run(freeze(RUN, WHOLE), store)
    store.put(f"{TOKENS}fences/seal", b"?")
    assert run(freeze(RUN, WHOLE), store) == before


def test_a_pack_in_another_format_is_ignored(store):
    before = run(freeze(RUN, WHOLE), store)
    (pack,) = store.scan(f"{TOKENS}packs/")
    store.delete([pack.key])
    store.put(pack.key.replace(".zst", ".v2"), b"?")
    assert run(freeze(RUN, WHOLE), store) == before


def test_a_capture_in_another_format_takes_its_index(store):
    prefix = rollout_prefix("captures", RUN, WHOLE)
    store.put(f"{prefix}records/1764460800500000.c8.{'0' * 64}.v2", b"?")
    found = run(captures.read(RUN, WHOLE), store)
    assert [one.text is None for one in found.captures] == [False, True, False, False]


def test_a_staged_row_in_another_format_is_refused(store):
    key = STAGING_KEYS[0].replace(".r1", ".r2")
    store.put(f"staged/!52un!201/{key.replace('/', '/rows/')}", b"?" * 409)
    with pytest.raises(Corrupt) as caught:
        run(staging.fetch(RUN, [key]), store)
    assert (caught.value.kind, caught.value.key) == ("newer_format", key)


def test_another_object_in_a_ledger_poisons(store):
    store.put(f"{LEDGER}summaries/c0", b"?")
    poison = [one.reason for one in run(ledger.manifest(RUN, WHOLE), store).failures if one.poisons]
    assert poison == ["invalid_manifest_row"]


def test_a_ledger_row_in_another_format_poisons(store):
    body = canonical_json({"format": 2, "rollout_id": WHOLE})
    store.put(f"{LEDGER}rows/c8/none.{sha256_hex(body)}", body)
    poison = [
        (one.model_call_id, one.reason) for one in run(ledger.manifest(RUN, WHOLE), store).failures if one.poisons
    ]
    assert poison == [("c8", "invalid_manifest_row")]


@pytest.mark.parametrize("said", [{"format": 2}, {"format": 1, "receipt": {"rollout_id": "r", "grade": 1}}])
def test_a_receipt_that_cannot_be_read_masks_its_rollout(store, said):
    body = canonical_json(said)
    store.put(f"manifests/!52un!201/r/receipts/{sha256_hex(body)}", body)
    (found,) = run(receipts_reading.read_rows(RUN, ["r"]), store)
    assert isinstance(found, receipts_reading.Masked)


def test_a_descriptor_in_another_format_is_refused(store):
    body = canonical_json({"format": 2})
    store.put(f"manifests/!52un!201/!run/descriptors/{sha256_hex(body)}", body)
    with pytest.raises(Corrupt, match="not of this format"):
        run(describe_run(RUN), store)


def test_what_a_later_version_may_add_is_passed_over(store):
    def views():
        return (
            run(freeze(RUN, WHOLE), store),
            problems(store, LOSSY),
            run(captures.read(RUN, WHOLE), store),
            run(ledger.manifest(RUN, WHOLE), store),
            run(receipts_published.list_published(RUN), store),
            run(receipts_reading.read_rows(RUN, [WHOLE]), store),
            run(describe_run(RUN), store),
            run(checking.runs(), store),
        )

    before = views()
    for key in (
        "summaries/!52un!201/task-0-1/rows/c0",
        "captures/!52un!201/task-0-1/summaries/c0",
        "manifests/!52un!201/task-0-1/grades/c0",
        "staged/!52un!201/task-0-1/media/c0",
        "tokens/!52un!201/!run/lease",
        "manifests/!52un!201/!run/lease",
    ):
        store.put(key, b"?")
    assert views() == before
