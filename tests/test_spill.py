# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What the store could not take is on disk, whole, in order, and can be replayed."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from gym_objstore import spill as spill_module
from gym_objstore.errors import Corrupt, Retired, Unavailable
from gym_objstore.flow import Put, run
from gym_objstore.keys import tombstone_key
from gym_objstore.spill import Spill, forget, replay
from gym_objstore.store.memory import MemoryStore

KEY = "tokens/run/r1/markers/c1.0123456789abcdef"


@pytest.fixture
def spill(tmp_path):
    return Spill(tmp_path, "s3://bucket")


def test_a_kept_write_comes_back_byte_for_byte_in_another_process_eyes(spill, tmp_path):
    spill.keep(Put(KEY, b"one\n\x00two"))
    (kept,) = Spill(tmp_path, "s3://bucket").kept()
    assert kept.put == Put(KEY, b"one\n\x00two")
    assert len(spill) == 1


def test_writes_come_back_oldest_first_and_one_by_one(spill):
    for body in (b"a", b"b", b"c"):
        spill.keep(Put(KEY, body))
    assert [kept.put.body for kept in spill.kept()] == [b"a", b"b", b"c"]
    forget(next(spill.kept()).path)
    assert [kept.put.body for kept in spill.kept()] == [b"b", b"c"]


def test_stores_do_not_see_each_others_writes(spill, tmp_path):
    spill.keep(Put(KEY, b"x"))
    assert list(Spill(tmp_path, "s3://another").kept()) == []


def test_several_buffers_are_kept_as_one_body(spill):
    spill.keep(Put(KEY, [b"ab", memoryview(b"cd")]))
    assert next(spill.kept()).put.body == b"abcd"


def test_a_torn_file_is_named_not_replayed(spill):
    path = spill.keep(Put(KEY, b"whole body"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Corrupt, match="not a kept write, path="):
        list(spill.kept())


def test_a_file_that_the_disk_does_not_give_holds_up_no_other(spill):
    spill.folder.mkdir(parents=True)
    (spill.folder / "00000000000000000001-bad.write").mkdir()
    path, kept = spill.keep(Put(KEY, b"x")), spill.kept()
    assert next(kept).path == path
    with pytest.raises(Corrupt, match="a kept write cannot be read, path=") as refused:
        next(kept)
    assert refused.value.kind == "spill_damaged"


def test_an_unfinished_file_is_no_kept_write(spill):
    path = spill.keep(Put(KEY, b"x"))
    path.with_suffix(".part").write_bytes(b"half")
    assert len(list(spill.kept())) == 1


def unfinished(spill, name, hours):
    path = spill.folder / f"{name}.part"
    spill.folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half")
    then = time.time() - 3_600 * hours
    os.utime(path, (then, then))
    return path


def test_what_a_killed_process_left_unfinished_goes_once_it_is_old(spill):
    """The next process that keeps a write removes it; a young one may be one that is not locked yet."""
    old, young = unfinished(spill, "old", 1.1), unfinished(spill, "young", 0.9)
    spill.keep(Put(KEY, b"x"))
    assert (old.exists(), young.exists()) == (False, True)
    assert [kept.put.body for kept in spill.kept()] == [b"x"]


def keep_and_wait(folder, sender):
    """Begin to keep a write and never end, in a process of its own."""

    def hang(_):
        sender.send("writing")
        time.sleep(600)

    os.fsync = hang
    Spill(folder, "s3://bucket").keep(Put(KEY, b"theirs"))


def test_what_a_living_process_is_writing_stays_however_old_it_is(spill, tmp_path):
    """And goes once that process was killed: a lock is the kernel's, in whatever container who holds it is."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    writer = context.Process(target=keep_and_wait, args=(tmp_path, sender), daemon=True)
    writer.start()
    assert receiver.recv() == "writing"
    (path,) = spill.folder.glob("*.part")
    os.utime(path, (0, 0))
    spill.keep(Put(KEY, b"x"))
    assert path.exists()
    writer.kill()
    writer.join()
    Spill(tmp_path, "s3://bucket").keep(Put(KEY, b"y"))
    assert not path.exists()
    assert [kept.put.body for kept in spill.kept()] == [b"x", b"y"]


def test_on_a_file_system_without_locks_what_is_unfinished_stays(spill, monkeypatch):
    def without(*_):
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(fcntl, "flock", without)
    old = unfinished(spill, "old", 48)
    spill.keep(Put(KEY, b"x"))
    assert old.exists()
    assert [kept.put.body for kept in spill.kept()] == [b"x"]


def test_what_cannot_be_removed_holds_up_no_write(spill, tmp_path):
    folder = unfinished(spill, "x", 48)
    folder.unlink()
    folder.mkdir()
    link = folder.with_name("link.part")
    (tmp_path / "theirs").write_bytes(b"theirs")
    link.symlink_to(tmp_path / "theirs")
    os.utime(link, (0, 0))
    spill.keep(Put(KEY, b"x"))
    assert (folder.is_dir(), link.is_symlink(), (tmp_path / "theirs").read_bytes()) == (True, True, b"theirs")


@pytest.mark.parametrize("failing", ["fsync", "rename"])
def test_a_write_that_fails_leaves_nothing_behind(spill, monkeypatch, failing):
    """A full disk would be full of parts."""

    def full(*_):
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(*((os, "fsync") if failing == "fsync" else (Path, "rename")), full)
        with pytest.raises(Unavailable, match="no room"):
            spill.keep(Put(KEY, b"x"))
    assert list(spill.folder.iterdir()) == []


def test_a_full_spill_refuses_loudly(spill, monkeypatch):
    monkeypatch.setattr(spill_module, "LIMIT_BYTES", 1000)
    spill.keep(Put(KEY, b"x" * 600))
    with pytest.raises(Unavailable, match="the spill is full") as refused:
        spill.keep(Put(KEY, b"y" * 600))
    assert refused.value.key == KEY
    assert len(spill) == 1


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(Unavailable, match="the spill cannot keep a write"):
        Spill(tmp_path / "taken", "s3://bucket").keep(Put(KEY, b"x"))


def test_the_disk_has_it_before_keep_returns(spill, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    spill.keep(Put(KEY, b"x"))
    assert len(synced) == 2


def test_a_replayed_write_is_the_one_that_was_kept(spill):
    store = MemoryStore()
    spill.keep(Put(KEY, b"x"))
    for kept in spill.kept():
        run(replay(kept.put), store)
        run(replay(kept.put), store)
    assert [(meta.key, store.get(meta.key)) for meta in store.scan("")] == [(KEY, b"x")]


def test_a_replay_behind_a_tombstone_says_so():
    store = MemoryStore()
    store.put(tombstone_key("tokens/run/r1/"), b"x")
    with pytest.raises(Retired):
        run(replay(Put(KEY, b"x")), store)
