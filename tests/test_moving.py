# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``import`` and ``export``: Gym's files go into a run and come out, and Gym's own stores read what came out."""

from __future__ import annotations

import asyncio
import json

import pytest
from nemo_gym.token_id_capture.lineage import FileLineageStore
from nemo_gym.token_id_capture.store import TokenCaptureStore
from typer.testing import CliRunner

from gym_objstore import CaptureLedger
from gym_objstore.captures import capture_put, line_of, read
from gym_objstore.cli.app import app
from gym_objstore.errors import Unavailable
from gym_objstore.flow import run
from gym_objstore.gym_folder import find_files
from gym_objstore.gym_import import bring
from gym_objstore.gym_pieces import RolloutFiles
from gym_objstore.importing import announce, begin
from gym_objstore.ledger import manifest
from gym_objstore.objects import announcement, write
from gym_objstore.retirement import retire
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.opening import open_store
from gym_objstore.testing.wrapping import WrappedStore
from gym_objstore.tokens import begin_call, freeze, mark, put_entry, refusal
from tests.entries import make_chain, make_entry, request_after
from tests.gym_files import capture_file, contents, exchange, ledger_file, token_files
from tests.server_pool import BUCKET

RUN = "run-1"
BIG = 2**70


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"


@pytest.fixture
def store(url):
    return open_store(url)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "gym").mkdir()
    return tmp_path / "gym"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def call(url, *arguments: str):
    return CliRunner().invoke(app, [*arguments, "--url", url, "--run-id", RUN], catch_exceptions=False)


def document(url, *arguments: str):
    return json.loads(call(url, *arguments, "--json").stdout)


def objects(store) -> list[str]:
    return sorted(meta.key for meta in store.scan(""))


def moved(url, folder, out) -> dict[str, bytes]:
    """Import a folder, export the run, and return the files."""
    assert call(url, "import", str(folder)).exit_code == 0
    call(url, "export", "--to", str(out))
    return contents(out)


HOSTILE = [
    exchange("c2", 20.0),
    exchange("c1", 10.0, note="completed before the line above"),
    b'{"model_call_id":"c3","completed_at":',
    b"",
    b'  {"spaces" : "kept"}\t',
    b"\xff\xfe not UTF-8",
    b"[]",
    exchange("same", 20.0),
    exchange("same", 20.0),
    exchange("late", 1e300),
    exchange("after", None),
    b'{"completed_at":' + str(BIG).encode() + b',"text":"\\ud800"}',
    b'{"windows":1}\r',
]


def test_an_exported_capture_file_is_byte_for_byte_what_was_imported(url, folder, out):
    path = capture_file(folder, "0-0", *HOSTILE, end=b"\n\n \n")
    assert moved(url, folder, out) == {"0-0.capture.jsonl": path.read_bytes()}


def test_a_second_import_stores_nothing_and_says_so(url, folder, store):
    capture_file(folder, "0-0", *HOSTILE)
    token_files(folder, "0-0")
    ledger_file(folder, "1-0")
    first = document(url, "import", str(folder))
    before = objects(store)
    second = document(url, "import", str(folder))
    assert (first["stored"], first["verified"], first["already_there"]) == (21, 21, 0)
    assert (second["stored"], second["verified"], second["already_there"]) == (0, 21, 21)
    assert objects(store) == before


def test_lines_that_were_appended_are_all_a_later_import_stores(url, folder, out):
    capture_file(folder, "0-0", exchange("c1", 5.0), exchange("c2", 1.0))
    document(url, "import", str(folder))
    path = capture_file(folder, "0-0", exchange("c1", 5.0), exchange("c2", 1.0), exchange("c3", 2.0))
    assert document(url, "import", str(folder))["stored"] == 1
    call(url, "export", "--to", str(out))
    assert contents(out) == {path.name: path.read_bytes()}


def test_a_call_that_was_captured_in_the_bucket_is_not_imported_again(url, folder, store, out):
    for one in (exchange("b", 7.0), exchange("a", 7.0)):
        run(write(capture_put(RUN, "0-0", line_of(one, 0.0)), [announcement("captures", RUN)]), store)
    call(url, "export", "--to", str(out))
    found = document(url, "import", str(out))
    assert (found["stored"], found["verified"]) == (0, 2)


@pytest.mark.parametrize("family", ["captures", "ledger"])
def test_an_import_that_was_interrupted_goes_on_and_takes_its_guard_down(url, folder, store, family):
    capture_file(folder, "0-0", *(exchange(f"c{number}", float(number)) for number in range(5)))
    ledger_file(folder, "0-0")
    document(url, "import", str(folder))
    whole = objects(store)
    run(begin(family, RUN, "0-0"), store)
    guarded = objects(store)
    assert len(guarded) == len(whole) + 1
    assert document(url, "import", str(folder))["stored"] == 0
    assert objects(store) == whole
    store.delete([key for key in whole if "c2" in key])
    assert document(url, "import", str(folder))["stored"] == 2
    assert objects(store) == whole


class Refusing(WrappedStore):
    """Takes every object but those with a word in their keys, and notes them all."""

    def __init__(self, refused: str = "") -> None:
        super().__init__(MemoryStore())
        self.refused, self.asked = refused, []

    def put(self, key, body):
        self.asked.append(key)
        if self.refused and self.refused in key:
            raise Unavailable("gone")
        super().put(key, body)


def test_no_reader_takes_a_part_that_was_imported_for_the_whole(url, folder, store):
    capture_file(folder, "0-0", *(exchange(f"c{number}", float(number)) for number in range(3)))
    token_files(folder, "0-0", intents=False)
    ledger_file(folder, "0-0")
    files = RolloutFiles(RUN, "0-0", find_files(folder).rollouts["0-0"])
    whole = Refusing()
    bring(files, whole)
    assert len(whole.asked) == 4 + 6 + 4
    for refused in (*whole.asked, "/c0.", "/c1", "/c2"):
        part = Refusing(refused)
        run(announce(RUN, ("captures", "tokens", "ledger")), part)
        with pytest.raises(Unavailable):
            bring(files, part)
        captured = run(read(RUN, "0-0"), part)
        assert captured.incomplete or len(captured.captures) in {0, 3}, refused
        frozen = run(freeze(RUN, "0-0"), part)
        assert frozen.incomplete or len(frozen.entries) in {0, 3}, refused
        rows = run(manifest(RUN, "0-0"), part)
        guarded = any(one.model_call_id == "import-unfinished" for one in rows.failures)
        assert guarded or len(rows.records) in {0, 2}, refused


def test_dry_run_stores_nothing(url, folder, store):
    capture_file(folder, "0-0", exchange("c1", 1.0))
    found = document(url, "import", str(folder), "--dry-run")
    assert (found["missing"], found["stored"]) == (1, 0)
    assert objects(store) == []
    assert "nothing was changed" in call(url, "import", str(folder), "--dry-run").stdout


def test_damaged_and_unfinished_lines_and_foreign_files_are_counted(url, folder):
    capture_file(folder, "0-0", exchange("c1", 1.0), b'{"model_call_id":"c2","resp', end=b"")
    (folder / "notes.txt").write_text("mine")
    (folder / "sub.capture.jsonl").mkdir()
    found = document(url, "import", str(folder))
    assert (found["lines"], found["damaged_captures"], found["unfinished_lines"]) == (2, 1, 1)
    assert found["foreign_files"] == ["notes.txt", "sub.capture.jsonl"]
    assert "1 capture lines are no JSON object" in call(url, "import", str(folder)).stdout


def test_an_incomplete_marker_moves_both_ways(url, folder, out):
    (folder / "0-0.capture.incomplete").touch()
    assert moved(url, folder, out) == {"0-0.capture.incomplete": b""}


def test_token_files_come_out_as_gym_wrote_them(url, folder, out, store):
    gym = token_files(folder, "0-0")
    found = moved(url, folder, out)
    assert found["0-0.tokens.jsonl"] == gym.path_for("0-0").read_bytes()
    assert found["0-0.tokens.intents"] == gym.intents_path_for("0-0").read_bytes()
    theirs = TokenCaptureStore(out).freeze_now("0-0")
    assert (theirs.incomplete, theirs.entries) == (False, gym.freeze_now("0-0").entries)
    assert run(freeze(RUN, "0-0"), store).incomplete is False


@pytest.mark.parametrize("loss", ["marker", "unnamed", "intent", "conflict"])
def test_what_masks_a_rollout_in_gyms_files_masks_it_in_the_bucket_and_again_in_the_files(
    url, folder, out, store, loss
):
    gym = token_files(folder, "0-0", 1)
    if loss == "intent":
        asyncio.run(gym.begin_call("0-0", "lost"))
    elif loss == "conflict":
        entry = gym.read_entries("0-0")[0].model_copy(update={"model": "other"})
        with pytest.raises(ValueError, match="different payload"):
            gym.append(entry)
    else:
        asyncio.run(gym.mark_incomplete("0-0", "c9" if loss == "marker" else ""))
    moved(url, folder, out)
    assert run(freeze(RUN, "0-0"), store).incomplete is True
    theirs = TokenCaptureStore(out).freeze_now("0-0")
    assert (theirs.incomplete, theirs.entries) == (True, gym.freeze_now("0-0").entries)


def test_a_conflict_in_the_bucket_masks_gyms_rollout_and_is_reported(url, out, store):
    for text in ("one", "two"):
        run(put_entry(RUN, make_entry("0-0", "c1", text=text), [announcement("tokens", RUN)]), store)
    run(put_entry(RUN, make_entry("0-0", "c2")), store)
    result = call(url, "export", "--to", str(out))
    assert (result.exit_code, "left out: 1" in result.stdout) == (1, True)
    theirs = TokenCaptureStore(out).freeze_now("0-0")
    assert (theirs.incomplete, [one.model_call_id for one in theirs.entries]) == (True, ["c2"])


def test_a_refused_call_masks_neither_side(url, out, store):
    run(begin_call(RUN, "0-0", "c1", [announcement("tokens", RUN)]), store)
    run(write(refusal(RUN, "0-0", "c1", {"code": "too_long"})), store)
    run(put_entry(RUN, make_entry("0-0", "c2")), store)
    assert call(url, "export", "--to", str(out)).exit_code == 0
    assert TokenCaptureStore(out).freeze_now("0-0").incomplete is False


def test_ids_that_are_hashed_in_a_key_come_out_whole(url, out, store):
    long = "call-" + "x" * 200
    run(begin_call(RUN, "0-0", long, [announcement("tokens", RUN)]), store)
    run(write(mark(RUN, "0-0", long, {"at": 1.0})), store)
    call(url, "export", "--to", str(out))
    assert contents(out)["0-0.tokens.intents"] == long.encode() + b"\n"
    assert contents(out)["0-0.tokens.incomplete"] == long.encode() + b"\n"


def test_a_rollout_that_gym_retired_is_retired_in_the_bucket_and_back(url, folder, out, store):
    gym = token_files(folder, "0-0")
    snapshot = gym.freeze_now("0-0")
    assert asyncio.run(gym.drop("0-0", snapshot_id=snapshot.snapshot_id, version=snapshot.version))
    (folder / "0-0.lineage.retired").touch()
    found = moved(url, folder, out)
    assert sorted(found) == ["0-0.lineage.retired", "0-0.tokens.state.json"]
    with pytest.raises(RuntimeError, match="retired"):
        TokenCaptureStore(out).freeze_now("0-0")
    assert call(url, "ls").stdout.count("retired") == 1
    assert document(url, "import", str(folder))["stored"] == 0


@pytest.mark.parametrize(("family", "name"), [("tokens", "tokens.state.json"), ("ledger", "lineage.retired")])
def test_a_rollout_that_both_sides_retired_stays_retired(url, folder, store, family, name):
    (folder / f"0-0.{name}").write_text('{"retired": true}')
    run(retire(family, RUN, ["0-0"]), store)
    before = objects(store)
    found = document(url, "import", str(folder))
    assert (found["stored"], found["retired"]) == (0, 1)
    assert [key for key in objects(store) if "!run" not in key] == before


def test_a_torn_entry_is_dropped_as_gym_drops_it(url, folder, store):
    gym = token_files(folder, "0-0", 2)
    with gym.path_for("0-0").open("ab") as file:
        file.write(b'{"model_call_id":"c9","prompt')
    assert document(url, "import", str(folder))["unfinished_lines"] == 1
    assert len(run(freeze(RUN, "0-0"), store).entries) == 2


def test_a_ledger_comes_out_as_gym_wrote_it(url, folder, out, store):
    gym = ledger_file(folder, "0-0")
    before = contents(folder)["0-0.lineage.jsonl"]
    assert moved(url, folder, out)["0-0.lineage.jsonl"] == before
    theirs = asyncio.run(gym.manifest("0-0"))
    assert run(manifest(RUN, "0-0"), store).model_dump(mode="json") == theirs
    assert asyncio.run(FileLineageStore(out).manifest("0-0")) == theirs


def test_a_request_continues_the_same_call_in_the_files_and_in_the_bucket(url, folder, out):
    ledger_file(folder, "0-0")
    moved(url, folder, out)
    items = request_after("hi")
    theirs = asyncio.run(FileLineageStore(out).resolve("0-0", items))
    ours = asyncio.run(CaptureLedger(url, run_id=RUN).resolve("0-0", items))
    assert (theirs.match.model_call_id, theirs.match.chain_hash) == ("c1", ours.match.chain_hash)
    assert ours.match.model_call_id == "c1"


def test_a_row_that_was_never_finished_poisons_the_rollout(url, folder, store):
    gym = ledger_file(folder, "0-0")
    with gym._ledger_path("0-0").open("ab") as file:
        file.write(b'{"model_call_id":"c9","fing')
    assert document(url, "import", str(folder))["unfinished_lines"] == 1
    assert ("unknown", "invalid_manifest_row") in [
        (one.model_call_id, one.reason) for one in run(manifest(RUN, "0-0"), store).failures
    ]


def test_rows_of_lineage_alone_have_no_counterpart(url, folder):
    (folder / "0-0.lineage.jsonl").write_bytes(
        b'{"model_call_id":"c1","fingerprint":"ab","cumulative_token_ids":[1]}\n'
    )
    assert document(url, "import", str(folder))["without_counterpart"] == 1


def test_a_row_whose_hash_is_missing_is_the_same_failure_on_both_sides(url, folder, out):
    row = json.loads(ledger_file(folder, "0-0")._ledger_path("0-0").read_bytes().splitlines()[0])
    (folder / "0-0.lineage.jsonl").write_text(json.dumps({**row, "chain_hash": None}) + "\n")
    moved(url, folder, out)
    assert asyncio.run(FileLineageStore(out).manifest("0-0"))["failures"] == [
        {"schema_version": 2, "model_call_id": "c1", "reason": "ledger_row_missing_chain_hash"}
    ]


BAD = {
    "an empty id": (".capture.jsonl", b"{}\n", "named after no rollout id"),
    "a space in an id": ("a b.tokens.jsonl", b"{}\n", "named after no rollout id"),
    "no entry": ("0-1.tokens.jsonl", b'{"model_call_id":"c1"}\n', "0-1.tokens.jsonl, line=1"),
    "broken before the end": ("0-1.tokens.jsonl", b'{"broken\n{}\n', "0-1.tokens.jsonl, line=1"),
    "another rollout's entry": ("0-1.tokens.jsonl", None, "the entry is of another rollout, rollout_id='0-0'"),
    "no ledger row": ("0-1.lineage.jsonl", b"{}\n{}\n", "names no model_call_id"),
    "a newer ledger row": ("0-1.lineage.jsonl", b'{"model_call_id":"c","staging_key":"k","new":1}\n', "columns=new"),
    "an intent that is no text": ("0-1.tokens.intents", b"c1\n\xff\n", "0-1.tokens.intents, line=2"),
    "a state that is no JSON": ("0-1.tokens.state.json", b"{", "0-1.tokens.state.json, line=1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_that_says_where_and_nothing_is_changed(url, folder, store, case):
    name, body, message = BAD[case]
    gym = token_files(folder, "0-0", 1)
    (folder / name).write_bytes(gym.path_for("0-0").read_bytes() if body is None else body)
    result = call(url, "import", str(folder))
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
    assert objects(store) == []


def test_a_folder_without_gyms_files_is_refused(url, folder, tmp_path):
    assert "none of Gym's files" in call(url, "import", str(folder)).stderr
    assert "there is no such folder" in call(url, "import", str(tmp_path / "absent")).stderr


def test_files_that_contradict_the_bucket_are_refused_before_anything_is_changed(url, folder, store):
    token_files(folder, "0-0", 1)
    capture_file(folder, "0-0", exchange("c1", 1.0))
    run(put_entry(RUN, make_chain("0-0", 1)[0].model_copy(update={"model": "m"}), [announcement("tokens", RUN)]), store)
    before = objects(store)
    assert call(url, "import", str(folder)).exit_code == 8
    assert objects(store) == before
    run(retire("tokens", RUN, ["0-0"]), store)
    assert call(url, "import", str(folder)).exit_code == 4
    assert objects(store) == ["tokens/run-1/!run/writer", "tokens/run-1/0-0/fences/tombstone"]


def test_a_rollout_that_the_files_call_retired_does_not_end_one_that_lives_in_the_bucket(url, folder, store):
    (folder / "0-0.tokens.state.json").write_text('{"retired": true}')
    run(put_entry(RUN, make_entry("0-0"), [announcement("tokens", RUN)]), store)
    assert call(url, "import", str(folder)).exit_code == 8
    assert len(run(freeze(RUN, "0-0"), store).entries) == 1


def test_a_damaged_capture_keeps_its_index_in_the_exported_file(url, folder, out, store):
    capture_file(folder, "0-0", *(exchange(f"c{number}", float(number)) for number in range(3)))
    document(url, "import", str(folder))
    key = next(key for key in objects(store) if ".c1." in key)
    store.put(key, store.get(key)[:-1])
    result = call(url, "export", "--to", str(out))
    assert (result.exit_code, "damaged captures: 1" in result.stdout) == (1, True)
    lines = contents(out)["0-0.capture.jsonl"].splitlines()
    assert (len(lines), lines[1].startswith(b"damaged capture, sha256=")) == (3, True)


def test_an_export_into_a_folder_with_other_contents_keeps_them(url, folder, out):
    capture_file(folder, "0-0", exchange("c1", 1.0))
    document(url, "import", str(folder))
    out.mkdir()
    (out / "0-0.capture.jsonl").write_bytes(b"mine\n")
    result = call(url, "export", "--to", str(out))
    assert (result.exit_code, "export into an empty folder" in result.stderr) == (8, True)
    assert contents(out) == {"0-0.capture.jsonl": b"mine\n"}


def test_a_second_export_changes_nothing_and_goes_on_with_what_is_new(url, folder, out, store):
    capture_file(folder, "0-0", exchange("c1", 1.0))
    document(url, "import", str(folder))
    assert document(url, "export", "--to", str(out))["unchanged"] == 0
    assert document(url, "export", "--to", str(out))["unchanged"] == 1
    run(write(capture_put(RUN, "0-0", line_of(exchange("c2", 2.0), 0.0))), store)
    assert document(url, "export", "--to", str(out))["captures"] == 2
    assert len(contents(out)["0-0.capture.jsonl"].splitlines()) == 2


def test_rollouts_that_no_file_can_be_named_after_are_said(url, out, store):
    for rollout in ("a/b", "x" * 150):
        run(write(capture_put(RUN, rollout, line_of(exchange("c", 1.0), 0.0)), [announcement("captures", RUN)]), store)
    result = call(url, "export", "--to", str(out), "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["rollouts"], len(found["unnamed_rollouts"])) == (1, 0, 2)
    assert "a/b" in found["unnamed_rollouts"]
    assert document(url, "export", "--to", str(out), "--rollout", "x" * 150)["files"] == 1


def test_export_refuses_what_it_cannot_do(url, folder, out, tmp_path):
    assert call(url, "export", "--to", str(out)).exit_code == 3
    assert not out.exists()
    capture_file(folder, "0-0", exchange("c1", 1.0))
    call(url, "import", str(folder))
    for arguments in ((), ("--format", "parquet")):
        result = call(url, "export", "--to", str(out), "--rollout", "0-1", *arguments)
        assert (result.exit_code, "no such rollout" in result.stderr) == (3, True)
    assert contents(out) == {}
    (tmp_path / "file").touch()
    assert call(url, "export", "--to", str(tmp_path / "file")).exit_code == 2
    assert call(url, "export", "--to", str(out), "--payloads").exit_code == 2


def test_a_real_server_takes_and_gives_the_same_files(seaweedfs_server, prefix, folder, out, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweedfs_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweedfs_server.secret_key)
    capture_file(folder, "0-0", *HOSTILE)
    token_files(folder, "0-0")
    ledger_file(folder, "0-0")
    wanted = {name: body for name, body in contents(folder).items() if not name.endswith((".lock", ".state.json"))}
    at = ("--endpoint", seaweedfs_server.endpoint, "--region", "us-east-1")
    url = f"s3://{BUCKET}/{prefix}"
    assert call(url, "import", str(folder), *at).exit_code == 0
    assert call(url, "export", "--to", str(out), *at).exit_code == 0
    assert contents(out) == wanted
