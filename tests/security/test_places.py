# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""No id leads out of its prefix, in any store, and no name or link out of a folder on the disk."""

from __future__ import annotations

import stat
from contextlib import contextmanager
from functools import partial

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gym_objstore import captures, ledger, tokens
from gym_objstore.cli import up
from gym_objstore.cli.app import app
from gym_objstore.correlation import parse_path
from gym_objstore.errors import Conflict, Corrupt, Invalid, NotFound
from gym_objstore.flow import Put, run
from gym_objstore.gym_folder import find_files, write_file
from gym_objstore.ids import segment
from gym_objstore.keys import (
    StagingKey,
    consumed_key,
    intent_key,
    note_key,
    parse,
    parse_staging_key,
    rollout_prefix,
    row_key,
    run_prefix,
    staged_key,
    writer_key,
)
from gym_objstore.names import RowName, StagedName
from gym_objstore.objects import announcement
from gym_objstore.run_keys import closed_key, descriptor_key
from gym_objstore.spill import Spill
from gym_objstore.store import check_key
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.opening import open_store
from gym_objstore.testing import servers
from gym_objstore.tokens import freeze, put_entry
from tests.entries import make_entry
from tests.places import PLACES, place_of
from tests.security.hostile import IDS, ids, ours_only

ROLLOUT = "tokens/run/r1/"
DIGEST = "0" * 64
STAGED = StagedName("c", DIGEST, 1, 0, "r1")


def capture_at(run_id, rollout_id, call):
    return captures.capture_put(run_id, rollout_id, captures.Line(b"{}", 0, call)).key


BUILDERS = {
    "a run": ("tokens/", lambda one: f"{run_prefix('tokens', one)}x"),
    "a run's writer": ("tokens/", lambda one: writer_key("tokens", one)),
    "a run's settings": ("manifests/", lambda one: descriptor_key(one, DIGEST)),
    "a closed run": ("manifests/", closed_key),
    "a rollout": ("ledger/run/", lambda one: f"{rollout_prefix('ledger', 'run', one)}x"),
    "an intent": (f"{ROLLOUT}intents/", lambda one: intent_key(ROLLOUT, one)),
    "a marker": (f"{ROLLOUT}markers/", lambda one: note_key(ROLLOUT, "markers", one, b"x")),
    "a checkpoint": (f"{ROLLOUT}consumed/", lambda one: consumed_key(ROLLOUT, one)),
    "an entry": (f"{ROLLOUT}entries/", lambda one: key_of_entry("r1", one)),
    "an entry's rollout": ("tokens/run/", lambda one: key_of_entry(one, "c")),
    "a capture": ("captures/run/r1/records/", lambda one: capture_at("run", "r1", one)),
    "a captured rollout": ("captures/run/", lambda one: capture_at("run", one, "c")),
    "a ledger row": (
        "ledger/run/r1/rows/",
        lambda one: row_key("ledger/run/r1/", RowName(segment(one), "none", DIGEST)),
    ),
    "a failure": ("ledger/run/r1/", lambda one: ledger.failure_put("ledger/run/r1/", "r1", one, "reason").key),
    "a staged row": ("staged/run/", lambda one: staged_key("run", StagingKey(segment(one), STAGED))),
    "a staged call": (
        "staged/run/r1/rows/",
        lambda one: staged_key("run", StagingKey("r1", STAGED._replace(call=segment(one)))),
    ),
    "an import's marker": (f"{ROLLOUT}", lambda one: tokens.mark("run", "r1", one, {"at": 1.0}).key),
}


def key_of_entry(rollout_id, call):
    store = MemoryStore()
    run(put_entry("run", make_entry(rollout_id, call)), store)
    return next(store.scan("")).key


@pytest.mark.parametrize("what", BUILDERS)
def test_every_id_stays_where_an_ordinary_one_is(what):
    home, key_of = BUILDERS[what]
    ordinary = key_of("x").count("/")

    @given(ids)
    def inside(one):
        key = ours_only(key_of, one)
        if isinstance(key, Invalid):  # a record has no canonical text with a lone surrogate in it
            assert not one.isprintable()
            return
        assert key.startswith(home)
        assert key.count("/") == ordinary
        assert check_key(key) == key == key.lower()
        assert max(map(len, key.split("/"))) <= 200

    inside()


@given(st.lists(ids, min_size=2, max_size=6, unique=True))
def test_no_two_ids_share_a_name_where_case_is_folded(some):
    twins = {twin for one in some for twin in (one, one.swapcase(), one.upper(), one.lower())}
    assert len({segment(one).casefold() for one in twins}) == len(twins)


@given(ids | st.builds("{}/{}".format, ids, ids) | st.builds("{}/{}".format, ids, st.just(STAGED.text)))
def test_a_staging_key_of_anybody_stays_among_the_runs_staged_rows(text):
    if (key := parse_staging_key(text)) is not None:
        path = staged_key("run", key)
        assert path.startswith("staged/run/")
        assert path == check_key(path)
        assert (parse(path).rollout, parse(path).kind) == (key.rollout, "rows")


@given(ids)
def test_a_rollout_of_a_url_stays_among_the_runs_captures(text):
    if (route := parse_path(f"/ng-rollout/{text}/v1/messages")) is not None:
        key = capture_at("run", route.rollout_id, text)
        assert key.startswith(f"captures/run/{segment(route.rollout_id)}/records/")
        assert key == check_key(key)


@pytest.mark.parametrize("kind", PLACES)
def test_hostile_ids_are_rollouts_of_their_own_in_every_store(kind, request):
    place = place_of(kind, request)
    del place["run_id"], place["spill_dir"]
    store = open_store(**place)
    run(put_entry("run-1", make_entry("victim", "c"), [announcement("tokens", "run-1")]), store)
    stored = [one for one in IDS if one != "\ud800"]
    for one in stored:
        run(put_entry("run-1", make_entry(one, "c")), store)
    assert {meta.key for meta in store.scan("")} == {meta.key for meta in store.scan("tokens/run-1/")}
    assert len(list(store.folders("tokens/run-1/"))) == len(stored) + 2
    for one in ("victim", *stored):
        (entry,) = run(freeze("run-1", one), store).entries
        assert (entry.rollout_id, entry.model_call_id) == (one, "c")


@pytest.mark.parametrize("key", ["../x", "/x", "a//b", "a/../b", "a/./b", "a/", "a\x00b", "é", "a" * 1_001, ""])
def test_a_store_takes_no_key_that_leads_elsewhere(tmp_path, key):
    for store in (open_store(f"file://{tmp_path}/store"), open_store("memory://keys"), open_store("s3://none/x")):
        for use in (store.get, store.head, partial(store.put, body=b"x"), lambda one, at=store: at.delete([one])):
            with pytest.raises(Invalid):
                use(key)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def outside(tmp_path):
    """A folder that somebody's links lead to."""
    folder = tmp_path / "outside"
    (folder / "intents").mkdir(parents=True)
    for name in ("secret", "intents/c1"):
        (folder / name).write_bytes(b"theirs")
    return folder


def held(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_links_planted_in_a_store_hide_what_they_lead_to(tmp_path, outside):
    """A rollout that is a link elsewhere: it is no rollout, nothing is read, written or removed through it."""
    root, before = tmp_path / "store", held(outside)
    store = open_store(f"file://{root}")
    run(put_entry("run-1", make_entry("r1", "c"), [announcement("tokens", "run-1")]), store)
    (root / "tokens" / "run-1" / "linked").symlink_to(outside)
    (root / "tokens" / "run-1" / "r1" / "markers").symlink_to(outside / "intents")
    (root / "tokens" / "run-1" / "r1" / "entries" / "link").symlink_to(outside / "secret")
    assert sorted(store.folders("tokens/run-1/")) == ["!run", "r1"]
    assert run(freeze("run-1", "linked"), store).entries == ()
    assert not run(freeze("run-1", "r1"), store).incomplete
    with pytest.raises(Invalid):
        run(put_entry("run-1", make_entry("linked", "c")), store)
    store.delete(["tokens/run-1/linked/secret", "tokens/run-1/r1/markers/c1", "tokens/run-1/r1/entries/link"])
    assert held(outside) == before


def call(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_an_export_writes_nothing_outside_its_folder(tmp_path):
    url, out = f"file://{tmp_path}/store", tmp_path / "a" / "out"
    store = open_store(url)
    for number, one in enumerate(IDS):
        put = captures.capture_put("run-1", one, captures.line_of({"model_call_id": f"c{number}"}, float(number)))
        store.put(put.key, put.body)
    store.put(writer_key("captures", "run-1"), b"x")
    chosen = [word for one in ("..", "../b", "/b", "a/../../b") for word in ("--rollout", one)]
    before = held(tmp_path / "store")
    for options in ((), chosen):
        ended = call("export", "--url", url, "--run-id", "run-1", "--to", str(out), *options)
        assert (type(ended.exception), ended.exit_code) in {(SystemExit, 1), (SystemExit, 3)}
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["out"]
    assert {path.name for path in tmp_path.iterdir()} == {"a", "store"}
    assert all(path.is_file() and path.name.endswith(".capture.jsonl") for path in out.iterdir())
    assert {"...capture.jsonl", "a.capture.jsonl"} < {path.name for path in out.iterdir()}
    assert held(tmp_path / "store") == before


@pytest.mark.parametrize("name", [".r.tokens.jsonl.part", "r.tokens.jsonl"])
def test_an_export_does_not_write_through_a_planted_link(tmp_path, outside, name):
    folder, before = tmp_path / "out", held(outside)
    folder.mkdir()
    (folder / name).symlink_to(outside / "secret")
    try:
        write_file(folder / "r.tokens.jsonl", [b"{}"])
    except Conflict:
        assert name == "r.tokens.jsonl"
    assert held(outside) == before


def test_an_import_reads_nothing_outside_its_folder(tmp_path, outside):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "r.capture.jsonl").symlink_to(outside / "secret")
    with pytest.raises(Invalid, match=r"lead out of the folder, files=\['r.capture.jsonl'\]"):
        find_files(folder)


@pytest.mark.parametrize(
    "key", ["tokens/run/../../../../etc/x", "/tokens/run/r/intents/c", "tokens/run", 5, ["a"], None]
)
def test_a_planted_spill_file_leads_nowhere_and_holds_up_no_other(tmp_path, key):
    spill = Spill(tmp_path, "s3://bucket")
    spill.keep(Put(f"{ROLLOUT}intents/c", b"x"))
    header = orjson.dumps({"url": "s3://bucket", "key": key, "size": 1})
    (spill.folder / "0-planted.write").write_bytes(header + b"\nx")
    found = spill.kept()
    assert next(found).put.key == f"{ROLLOUT}intents/c"
    with pytest.raises(Corrupt, match="not a kept write"):
        next(found)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_waits_on_the_disk_is_for_its_owner_alone(tmp_path):
    """It holds prompts, and whoever could add to it could write to the store."""
    spill = Spill(tmp_path / "spill", "s3://bucket")
    path = spill.keep(Put(f"{ROLLOUT}intents/c", b"x"))
    assert (mode(spill.folder), mode(path)) == (0o700, 0o600)


def test_the_data_of_a_local_server_is_for_its_owner_alone(tmp_path, monkeypatch):
    @contextmanager
    def seaweedfs(folder):
        yield mode(folder)

    monkeypatch.setattr(servers, "seaweedfs", seaweedfs)
    with up._running(up.WheelServer.SEAWEEDFS, tmp_path / "data") as found:
        assert found == 0o700


def test_an_object_below_an_unknown_key_is_nobodys(tmp_path):
    """Stores answer for exactly one key: what is beside it is neither found nor removed."""
    store = open_store(f"file://{tmp_path}/store")
    store.put("tokens/run/r1/intents/c", b"x")
    with pytest.raises(NotFound):
        store.get("tokens/run/r1/intents/C")
    store.delete(["tokens/run/r1/intents", "tokens/run/r1/intents/c/x"])
    assert store.get("tokens/run/r1/intents/c") == b"x"
