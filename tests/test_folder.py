# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from gym_objstore.errors import Invalid, NotFound, Unavailable
from gym_objstore.store import Store
from gym_objstore.store.opening import open_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "root"


@pytest.fixture
def store(root: Path) -> Store:
    return open_store(f"file://{root}")


def path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def test_nothing_is_made_before_the_first_write(store: Store, root: Path):
    assert list(store.scan("")) == []
    assert list(store.folders("")) == []
    assert store.head("a/b") is None
    store.delete(["a/b"])
    assert not root.parent.exists()


def test_a_put_is_on_disk_with_every_folder_above_it_before_it_returns(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
):
    """What is synced must be synced before its name, and each name after it was given."""
    steps: list[str] = []
    fsync, rename, mkdir = os.fsync, os.rename, os.mkdir

    def note_fsync(descriptor: int) -> None:
        steps.append(f"sync {path_of(descriptor).removeprefix(str(root.parent.parent))}")
        fsync(descriptor)

    def note_rename(source: str, target: str, **folders: int) -> None:
        steps.append(f"name {target}")
        rename(source, target, **folders)

    def note_mkdir(name: str, *mode: int, **folder: int) -> None:
        steps.append(f"make {str(name).removeprefix(str(root.parent.parent))}")
        mkdir(name, *mode, **folder)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "rename", note_rename)
    monkeypatch.setattr(os, "mkdir", note_mkdir)
    store.put("a/b/object", b"x")
    partial = next(step.rpartition("/")[2] for step in steps if "§" in step)
    assert steps == [
        *("make /deep", "sync ", "make /deep/root", "sync /deep"),
        *("make a", "sync /deep/root", "make b", "sync /deep/root/a"),
        *(f"sync /deep/root/a/b/{partial}", "name object", "sync /deep/root/a/b"),
    ]


def test_folders_that_others_made_are_synced_too(store: Store, root: Path, monkeypatch: pytest.MonkeyPatch):
    (root / "a" / "b").mkdir(parents=True)
    synced: list[str] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda one: (synced.append(path_of(one)), fsync(one)))
    store.put("a/b/object", b"x")
    assert {str(root), str(root / "a"), str(root / "a" / "b")} <= set(synced)


@pytest.mark.parametrize("step", ["fsync", "rename"])
def test_a_write_that_fails_leaves_nothing_behind(store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, step: str):
    store.put("a/object", b"before")

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(Unavailable):
            store.put("a/object", b"after")
    assert store.get("a/object") == b"before"
    assert [path.name for path in (root / "a").iterdir()] == ["object"]


def test_a_file_that_is_being_written_is_in_no_listing(store: Store, root: Path):
    store.put("a/object", b"x")
    (root / "a" / "§0123456789abcdef").write_bytes(b"half of it")
    (root / "b").mkdir()
    (root / "b" / "§0123456789abcdef").write_bytes(b"half of it")
    assert [meta.key for meta in store.scan("")] == ["a/object"]
    assert list(store.folders("")) == ["a"]


def test_empty_folders_are_invisible_and_a_removal_takes_them_away(store: Store, root: Path):
    (root / "empty" / "deep").mkdir(parents=True)
    store.put("a/b/c/object", b"x")
    store.put("a/other", b"x")
    assert sorted(store.folders("")) == ["a"]
    store.delete(["a/b/c/object"])
    assert sorted(path.name for path in (root / "a").iterdir()) == ["other"]
    store.delete(["a/other"])
    assert sorted(path.name for path in root.iterdir()) == ["empty"]
    assert root.exists()


def test_removals_are_synced(store: Store, root: Path, monkeypatch: pytest.MonkeyPatch):
    """Otherwise what was deleted could come back after a crash, without the tombstone that hid it."""
    for name in ("a/1", "a/2", "b/3"):
        store.put(name, b"x")
    synced: list[str] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda one: (synced.append(path_of(one)), fsync(one)))
    store.delete(["a/1", "b/3"])
    assert str(root / "a") in synced
    assert str(root) in synced


def test_no_link_leads_out_of_the_root(store: Store, root: Path, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    store.put("a/object", b"x")
    (root / "a" / "folder").symlink_to(outside)
    (root / "a" / "file").symlink_to(outside / "secret")
    (root / "a" / "back").symlink_to(root)
    for key in ("a/folder/secret", "a/file", "a/back/a/object"):
        assert store.head(key) is None
        with pytest.raises(NotFound):
            store.get(key)
    with pytest.raises(Invalid):
        store.put("a/folder/new", b"x")
    store.put("a/file", b"ours")
    store.delete(["a/folder/secret", "a/folder"])
    assert [meta.key for meta in store.scan("")] == ["a/file", "a/object"] or {meta.key for meta in store.scan("")} == {
        "a/file",
        "a/object",
    }
    assert list(store.folders("a/")) == []
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"secret": b"secret"}
    assert (root / "a" / "folder").is_symlink()


def test_a_pipe_is_no_object_and_hangs_nobody(store: Store, root: Path):
    store.put("a/object", b"x")
    os.mkfifo(root / "a" / "pipe")
    assert store.head("a/pipe") is None
    with pytest.raises(NotFound):
        store.get("a/pipe")
    assert [meta.key for meta in store.scan("")] == ["a/object"]


def test_the_root_itself_may_be_a_link(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    open_store(f"file://{tmp_path}/link").put("a/object", b"x")
    assert (tmp_path / "real" / "a" / "object").read_bytes() == b"x"


def test_a_file_and_a_folder_of_one_name_are_refused_both_ways(store: Store):
    store.put("a/b", b"x")
    for key in ("a", "a/b/c"):
        with pytest.raises(Invalid) as caught:
            store.put(key, b"x")
        assert (caught.value.kind, caught.value.key) == ("bad_key", key)
    assert store.get("a/b") == b"x"


def test_a_name_that_no_file_can_have_is_refused(store: Store):
    with pytest.raises(Invalid) as caught:
        store.put("x" * 300, b"x")
    assert caught.value.kind == "bad_key"


def test_a_root_that_is_a_file_is_refused(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(Invalid):
        open_store(f"file://{tmp_path}/file").put("a/b", b"x")


def test_writers_and_removers_of_one_folder_do_not_disturb_each_other(store: Store, root: Path):
    """A removal takes the folder away at any moment between a writer's steps."""
    together = threading.Barrier(4)
    failures: list[BaseException] = []

    def write_and_remove(me: int) -> None:
        together.wait(10)
        try:
            for turn in range(150):
                key = f"a/b/{me}-{turn}"
                store.put(key, b"x")
                assert store.get(key) == b"x"
                store.delete([key])
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=write_and_remove, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(root.iterdir()) == []
