# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""docs/format-v1.md against the run in vectors/format-v1/, and that run against every reader and writer."""

from __future__ import annotations

import hashlib
import re
from functools import partial
from pathlib import Path

import orjson
import pytest

from gym_objstore import captures, checking, exporting, ledger, packs, receipts_published, receipts_reading, staging
from gym_objstore.cache import ParentMemory
from gym_objstore.codec import unpack
from gym_objstore.errors import Retired
from gym_objstore.flow import run
from gym_objstore.index import read_index
from gym_objstore.keys import parse_staging_key, rollout_prefix
from gym_objstore.lineage import ContextMatcher, Resolver
from gym_objstore.runs import describe_run
from gym_objstore.staged_rows import unpack_extras, unpack_snapshot
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.opening import open_store
from gym_objstore.tokens import freeze, read_text
from tests.vectors.generate_format import (
    DROPPED,
    FOLDER,
    LONG,
    LOSSY,
    RETIRED,
    RUN,
    SAID,
    STAGING_KEYS,
    WHOLE,
    answer,
    request,
    staged_calls,
    write_run,
)

DOCUMENT = (Path(__file__).parents[1] / "docs" / "format-v1.md").read_text("utf-8")
SEGMENT = r"[a-z0-9_!-][a-z0-9._!-]{0,95}"
FIELDS = {
    "<family>": "(?:captures|tokens|staged|ledger|manifests)",
    "<run>": SEGMENT,
    "<rollout>": SEGMENT,
    "<call>": SEGMENT,
    "<checkpoint>": SEGMENT,
    "<kind>": SEGMENT,
    "<parent>": "(?:full|[0-9a-f]{12})",
    "<fingerprint>": "(?:none|[0-9a-f]{16})",
    "<sha256>": "[0-9a-f]{64}",
    "<snapshot>": "[0-9a-f]{64}",
    "<sha16>": "[0-9a-f]{16}",
    "<consumer>": "[0-9a-f]{16}",
    "<format>": "[a-z0-9]{1,6}",
    "<bytes>": "(?:0|[1-9][0-9]{0,11})",
    "<micros>": "[0-9]{16}",
}
LONG_SEGMENT = "!47r!c3!b6!c3!9fe!2fxxxxxxxxxx!h98b01f5c4dfdf537c74e69e7dd0346e3c7aacbbebf96259fbfc3c688c6f291e7"


@pytest.fixture(scope="module")
def store():
    return open_store(f"file://{FOLDER}")


def contents(store):
    return {meta.key: store.get(meta.key) for meta in store.scan("")}


def as_regex(pattern):
    for name, regex in FIELDS.items():
        pattern = pattern.replace(name, regex)
    return pattern


def test_the_files_are_those_that_the_first_version_wrote(store):
    """A later version reads them as they are; whoever changes one breaks the promise they stand for."""
    listed = sorted((key, hashlib.sha256(body).hexdigest()) for key, body in contents(store).items())
    assert len(listed) == 51
    whole = hashlib.sha256("".join(f"{digest} {key}\n" for key, digest in listed).encode()).hexdigest()
    assert whole == "ef5f60443e4d9a6ccf3a3864ed9eb252ba22bdca911bc6740677038b35fb12b1"


def test_every_documented_key_is_there_and_every_key_is_documented(store):
    patterns = re.findall(r"^\| `(<?[a-z]\S+/\S+)` \|", DOCUMENT, re.MULTILINE)
    assert len(patterns) == 21
    fits = {
        key: [one for one in patterns if re.fullmatch(as_regex(one.replace(".", r"\.")), key)]
        for key in contents(store)
    }
    assert {key: found for key, found in fits.items() if len(found) != 1} == {}
    assert {one for found in fits.values() for one in found} == set(patterns)


def test_every_documented_body_is_there(store):
    examples = re.search(r"```json\n(.*?)\n```", DOCUMENT, re.DOTALL)[1].splitlines()
    assert len(examples) == 10
    assert [one for one in examples if one.encode() not in contents(store).values()] == []


def test_the_same_records_have_the_same_keys_and_texts(store):
    """Compressed bytes may differ with the zstd library, and with them the key of a staged row, but nothing else."""
    written, kept = MemoryStore(), contents(store)
    write_run(written)
    now = contents(written)
    assert {key for key in now if not is_row(key)} == {key for key in kept if not is_row(key)}
    assert sorted(plain(key, body) for key, body in now.items()) == sorted(
        plain(key, body) for key, body in kept.items()
    )


def is_row(key):
    return key.startswith("staged/") and "/rows/" in key


def plain(key, body):
    """Return an object's key and what its body says, without what a zstd library chooses."""
    if not is_row(key):
        return key, unpack(body, "zst") if key.endswith(".zst") else body
    staging_key = parse_staging_key(key.split("/", 2)[2].replace("rows/", ""))
    name = staging_key.name
    snapshot = unpack_snapshot(staging_key, body[: name.record_bytes])
    end = name.record_bytes + name.extras_bytes
    extras = unpack_extras(staging_key, body[:end], snapshot.extras_digest)
    return key.split(name.digest)[0], repr((snapshot, extras)).encode() + body[end:]


def test_freeze_reads_a_whole_rollout(store):
    found = run(freeze(RUN, WHOLE), store)
    assert found.snapshot_id == "caa939ac3c757618ec56bfe90d2748b00ef9d862f12f72b5e7ac98f7b156810d"
    assert (found.version, found.problems) == (10, ())
    assert [(one.model_call_id, one.prompt_token_ids, one.generation_token_ids) for one in found.entries] == [
        ("C 2", [7], [8, 9]),
        ("c0", [1, 2], [3, 4]),
        ("c1", [1, 2, 3, 4, 5], [6, 1099511627776]),
        ("c4", [1], [2]),
    ]
    assert found.entries[0].generation_log_probs == [-0.5, -1e-07]
    assert found.entries[3].zeta == {"a": "é", "b": [1, 2.5, None]}


def test_the_pack_says_what_the_entries_say(store):
    index = run(read_index(rollout_prefix("tokens", RUN, WHOLE)), store)
    packed = run(packs.read(index, partial(read_text, index.rollout)), store)
    assert packed == run(freeze(RUN, WHOLE), store).entries


def test_freeze_says_what_a_rollout_lost(store):
    found = run(freeze(RUN, LOSSY), store)
    assert found.snapshot_id == "89e122806c5338559eabc06432daf3ec5b13e79af2e62030e913f85f908677e4"
    assert [one.model_call_id for one in found.entries] == ["c0", "c5"]
    assert [(one.kind, one.model_call_id) for one in found.problems] == [
        ("incomplete_marker", ""),
        ("incomplete_marker", "c2"),
        ("dangling_intent", "c3"),
        ("conflict", "c1"),
    ]


def test_freeze_reads_a_rollout_whose_id_is_only_in_its_records(store):
    found = run(freeze(RUN, LONG), store)
    assert [one.rollout_id for one in found.entries] == ["Größe/" + "x" * 120]


@pytest.mark.parametrize("rollout", [RETIRED, DROPPED])
def test_retired_rollouts_are_retired(store, rollout):
    with pytest.raises(Retired):
        run(freeze(RUN, rollout), store)


@pytest.mark.parametrize(
    ("turn", "parent", "tokens"),
    [
        (0, "c0", (1, 2, 3, 4)),
        (1, "c1", (1, 2, 3, 4, 5, 6, 1099511627776)),
        (2, "C 2", (1, 2, 3, 4, 5, 6, 1099511627776, 7, 8, 9)),
    ],
)
def test_requests_find_the_calls_they_continue(store, turn, parent, tokens):
    items = [*request(turn), *answer(SAID[turn]), {"role": "user", "content": "Why?"}]
    match = run(Resolver(RUN, ContextMatcher(), ParentMemory()).resolve(WHOLE, items), store).match
    assert (match.model_call_id, match.cumulative_token_ids) == (parent, tokens)
    row = run(ledger.resolve_row(RUN, WHOLE, items), store)
    assert (row.model_call_id, row.staging_chain, row.prev_len) == (parent, STAGING_KEYS[: turn + 1], 4 * turn + 4)


def test_manifests_are_read(store):
    whole, lossy = (run(ledger.manifest(RUN, one), store) for one in (WHOLE, LOSSY))
    assert [(one.model_call_id, one.parent_call_id, one.staging_key, one.admitted_at) for one in whole.records] == [
        ("c0", None, STAGING_KEYS[0], 1764460800.125),
        ("c1", "c0", STAGING_KEYS[1], 1764460801.125),
        ("C 2", "c1", STAGING_KEYS[2], 1764460802.125),
    ]
    uncommitted = "request_finished_without_staged_coordinates"
    assert [(one.model_call_id, one.reason) for one in whole.failures] == [("c9", uncommitted)]
    assert [(one.model_call_id, one.reason) for one in lossy.failures] == [
        ("c0", "conflicting_ledger_rows"),
        ("c1", "unresolved_parent"),
    ]
    with pytest.raises(Retired):
        run(ledger.manifest(RUN, RETIRED), store)


def test_staged_rows_are_read(store):
    found = run(staging.fetch(RUN, STAGING_KEYS), store)
    assert [(one.model_call_id, one.token_ids_delta, one.generation_log_probs_delta) for one in found] == [
        ("c0", (11, 12, 21, 22), (0.0, 0.0, -0.5, -0.5)),
        ("c1", (11, 12, 21, 1099511627776), (0.0, 0.0, -0.1, -0.2)),
        ("C 2", (11, 12, 21, 22), (0.0, 0.0, -0.5, -0.5)),
    ]
    columns = run(staging.fetch_columns(RUN, STAGING_KEYS), store)
    assert [(one.prev_len, one.token_ids.typecode) for one in columns] == [(0, "I"), (4, "Q"), (8, "I")]
    committed = {key: record.extras_digest for key, (record, _) in zip(STAGING_KEYS, staged_calls(), strict=True)}
    extras = run(staging.load_extras(RUN, committed), store)
    assert list(extras.values()) == [None, {"a": [1, 2.5, None]}, {"media_spans": []}]


def test_attachments_are_read(store):
    found = run(staging.load_attachments(RUN, STAGING_KEYS[2]), store)
    assert bytes(found["image"]) == b"\x89PNG"
    assert found["routed"]["none"] == {}
    assert (found["routed"]["experts/0"].dtype.str, found["routed"]["experts/0"].tolist()) == (
        "<i2",
        [[0, 1, 2], [3, 4, 5]],
    )
    assert (found["scale"].dtype.str, found["scale"].tolist()) == (">f4", 0.5)
    assert run(staging.load_attachments(RUN, STAGING_KEYS[0]), store) == {}


def test_receipts_are_read(store):
    published = {one.rollout_id: one for one in run(receipts_published.list_published(RUN), store)}
    assert (published[WHOLE].finished, published[WHOLE].checkpoints) == (True, ("step-10",))
    assert published[RETIRED].retired
    whole, lossy, retired = run(receipts_reading.read_rows(RUN, [WHOLE, LOSSY, RETIRED]), store)
    assert (whole.receipt.reward, whole.receipt.terminal_model_call_id) == (1.0, "C 2")
    assert whole.row.token_ids == (11, 12, 21, 22, 11, 12, 21, 1099511627776, 11, 12, 21, 22)
    assert whole.row.logprobs == (0.0, 0.0, -0.5, -0.5, 0.0, 0.0, -0.1, -0.2, 0.0, 0.0, -0.5, -0.5)
    assert (lossy.code, retired.code) == ("rollout_failed", "retired")


def test_captures_are_read_in_the_order_of_their_completion(store):
    found = run(captures.read(RUN, WHOLE), store)
    assert [orjson.loads(one.text).get("model_call_id") for one in found.captures] == ["c0", "c1", None]
    assert found.captures[2].text == '{"completed_at":1764460802.125,"note":"é\\n"}'.encode()
    assert (found.incomplete, run(captures.is_incomplete(RUN, LOSSY), store)) == (False, True)


def test_the_run_is_known(store):
    assert run(checking.runs(), store) == {"Run 1": ("captures", "tokens", "staged", "ledger", "manifests")}
    described = run(describe_run(RUN), store)
    assert [one.settings for one in described.descriptors] == [{"model": "policy", "seed": 1}]
    assert described.closed is not None


def test_check_finds_what_is_wrong_and_nothing_else(store):
    found = {
        rollout: [finding[:2] for finding in run(checking.check_rollout(rollout, prefix), store).findings]
        for rollout, prefix in run(checking.rollouts("tokens", RUN), store).items()
    }
    assert found == {
        WHOLE: [("warning", "unplaced_call")],
        LOSSY: [
            ("warning", "incomplete_marker"),
            ("warning", "incomplete_marker"),
            ("warning", "dangling_intent"),
            ("error", "conflict"),
            ("warning", "unfinished_drop"),
        ],
        RETIRED: [("note", "late_write")],
        DROPPED: [],
        LONG_SEGMENT: [],
    }


def test_the_run_is_exported(store):
    files = run(exporting.token_files(RUN, WHOLE), store)
    assert [hashlib.sha256(line).hexdigest()[:12] for line in files.lines] == [
        "c69b1a15dbc5",
        "dd27a360be50",
        "4a66e63614d5",
        "46f1ae08773d",
    ]
    assert files.intents == ("C 2", "c0", "c1", "c4")
    assert run(exporting.token_files(RUN, LOSSY), store).marks == ("", "c2", "c1")
    snapshot = "5448a1e4437f68211d5a215bc940b62b5a74409b8e541d7d8babfb9320800502"
    assert run(exporting.token_files(RUN, DROPPED), store).snapshot_id == snapshot
    assert [orjson.loads(line)["model_call_id"] for line in run(exporting.ledger_files(RUN, WHOLE), store).lines] == [
        "c0",
        "c1",
        "C 2",
        "c9",
    ]
