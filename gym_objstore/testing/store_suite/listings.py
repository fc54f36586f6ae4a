# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Laws of listings and removals: exact sets, whole folders only, as many pages as it takes."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing

import pytest

from gym_objstore.errors import NotFound, ObjstoreError
from gym_objstore.store import Store
from gym_objstore.testing.store_suite.bodies import CLOCK_TOLERANCE
from gym_objstore.testing.store_suite.playing import Colour, on_a_loop, sizes
from gym_objstore.testing.store_suite.target import Laws, Target

BODY = b"one of many"
TOGETHER = 32


class ListingLaws(Laws):
    """scan and folders."""

    def test_nothing_is_below_an_unknown_prefix(self, store: Store, folder: str) -> None:
        assert list(store.scan(folder)) == []
        assert list(store.scan(f"{folder}deeper/")) == []
        assert list(store.folders(folder)) == []

    def test_a_scan_is_exactly_what_is_below_its_prefix_at_any_depth(self, store: Store, folder: str) -> None:
        inside = {f"{folder}a/{name}": len(name) for name in ("1", "22", "b/3", "b/c/d/4", "b.c/5", "b!/6")}
        outside = [f"{folder}{name}" for name in ("ab/1", "a.b/1", "a!/1", "b/a/1", "a-", "0")]
        for key, size in inside.items():
            store.put(key, b"." * size)
        for key in outside:
            store.put(key, b"")
        assert sizes(store.scan(f"{folder}a/")) == inside
        assert sizes(store.scan(folder)) == inside | dict.fromkeys(outside, 0)
        assert set(sizes(store.scan(""))) >= {*inside, *outside}

    def test_folders_are_exact_each_once_and_never_objects(self, store: Store, folder: str) -> None:
        for name in ("a/1", "a/2", "a/b/3", "ab/4", "a.b/c/d/5", "!run/6", "object", "a.object"):
            store.put(folder + name, b"x")
        assert sorted(store.folders(folder)) == ["!run", "a", "a.b", "ab"]
        assert list(store.folders(f"{folder}a/")) == ["b"]
        assert list(store.folders(f"{folder}ab/")) == []
        assert folder[:-1] in set(store.folders(""))

    def test_a_folder_is_gone_with_its_last_object_or_stays_as_an_empty_one(
        self, target: Target, store: Store, folder: str
    ) -> None:
        store.put(f"{folder}kept/1", b"x")
        store.put(f"{folder}gone/deep/1", b"x")
        store.delete([f"{folder}gone/deep/1"])
        left = set(store.folders(folder))
        assert left == {"kept"} or (left == {"gone", "kept"} and not target.folders_vanish)
        assert sizes(store.scan(folder)) == {f"{folder}kept/1": 1}

    def test_a_scan_of_more_than_a_page_is_complete(self, target: Target, store: Store) -> None:
        names = crowd(target, store, "crowd-1050/", 1_050)
        for waits in (False, True):
            with closing(Colour(store, waits=waits)) as colour:
                found = colour.call("scan", "crowd-1050/")
                assert sizes(found) == dict.fromkeys(names, len(BODY))
                assert all(meta.modified < time.time() + CLOCK_TOLERANCE for meta in found)
                assert colour.call("folders", "crowd-1050/") == []

    def test_a_scan_can_be_left_in_the_middle(self, target: Target, store: Store) -> None:
        names = crowd(target, store, "crowd-1050/", 1_050)
        first = next(iter(store.scan("crowd-1050/")))
        assert first.key in names
        assert len(list(store.scan("crowd-1050/"))) == 1_050

    def test_foreign_keys_that_end_in_a_slash_are_ignored(self, target: Target, store: Store, folder: str) -> None:
        """Consoles and mounts leave such markers, for the listed prefix itself too."""
        store.put(f"{folder}sub/object", b"x")
        for marker in (folder, f"{folder}sub/", f"{folder}sub/empty/"):
            target.behind.write(marker, b"")
        assert sizes(store.scan(folder)) == {f"{folder}sub/object": 1}
        assert sizes(store.scan(f"{folder}sub/")) == {f"{folder}sub/object": 1}
        assert "" not in set(store.folders(folder)) | set(store.folders(f"{folder}sub/"))
        assert "sub" in set(store.folders(folder))

    def test_an_object_beside_a_folder_of_its_name_is_kept_apart_or_refused(
        self, target: Target, store: Store, folder: str
    ) -> None:
        store.put(f"{folder}a/b", b"inside")
        if target.object_beside_folder:
            store.put(f"{folder}a", b"beside")
            assert store.get(f"{folder}a") == b"beside"
            assert sizes(store.scan(f"{folder}a/")) == {f"{folder}a/b": 6}
            assert sizes(store.scan(folder)) == {f"{folder}a": 6, f"{folder}a/b": 6}
        else:
            with pytest.raises(ObjstoreError):
                store.put(f"{folder}a", b"beside")
            assert sizes(store.scan(folder)) == {f"{folder}a/b": 6}
        assert list(store.folders(folder)) == ["a"]
        assert store.get(f"{folder}a/b") == b"inside"


class CrowdLaws(Laws):
    """Listings of many pages."""

    # Not on the class: whatever inherits it would be slow as a whole.
    @pytest.mark.slow
    def test_a_scan_of_twenty_thousand_objects_is_complete(self, target: Target, store: Store) -> None:
        names = crowd(target, store, "crowd-20000/", 20_000)
        assert sizes(store.scan("crowd-20000/")) == dict.fromkeys(names, len(BODY))

    @pytest.mark.slow
    def test_more_than_a_page_of_folders_is_complete(self, target: Target, store: Store) -> None:
        names = crowd(target, store, "folders-1050/", 1_050, suffix="/object")
        assert sorted(store.folders("folders-1050/")) == sorted(name.split("/")[1] for name in names)


class DeleteLaws(Laws):
    """delete."""

    def test_only_the_named_objects_are_removed(self, target: Target, store: Store, folder: str) -> None:
        keys = [folder + name for name in ("a", "ab", "a.b", "b/a", "b/ab", "c")]
        for key in keys:
            store.put(key, b"x")
        store.delete([f"{folder}a", f"{folder}b/a"])
        kept = {f"{folder}ab", f"{folder}a.b", f"{folder}b/ab", f"{folder}c"}
        assert set(sizes(store.scan(folder))) == kept
        assert target.behind.keys(folder) == kept
        assert store.head(f"{folder}a") is None
        with pytest.raises(NotFound):
            store.get(f"{folder}b/a")

    def test_absent_objects_are_no_error(self, store: Store, folder: str) -> None:
        store.put(f"{folder}there", b"x")
        store.delete([])
        store.delete([f"{folder}absent", f"{folder}there", f"{folder}no/folder/either"])
        store.delete([f"{folder}absent", f"{folder}there"])
        assert list(store.scan(folder)) == []

    def test_naming_a_folder_removes_nothing(self, store: Store, folder: str) -> None:
        store.put(f"{folder}sub/object", b"x")
        store.delete([f"{folder}sub"])
        assert sizes(store.scan(folder)) == {f"{folder}sub/object": 1}

    def test_a_key_named_twice_is_removed_once(self, store: Store, folder: str) -> None:
        store.put(f"{folder}object", b"x")
        store.delete([f"{folder}object", f"{folder}object"])
        assert store.head(f"{folder}object") is None

    def test_a_removed_object_can_be_put_again(self, store: Store, folder: str) -> None:
        for body in (b"first", b"second"):
            store.put(f"{folder}object", body)
            assert store.get(f"{folder}object") == body
            store.delete([f"{folder}object"])
            assert store.head(f"{folder}object") is None

    def test_more_keys_than_one_bulk_request_takes_are_all_removed(self, store: Store, folder: str) -> None:
        """Objects stand at both sides of the border, which is at a thousand; the other names are absent."""
        keys = [f"{folder}{index:04d}" for index in range(1_010)]
        placed = [keys[index] for index in (0, 1, 998, 999, 1_000, 1_001, 1_009)]
        for key in [*placed, f"{folder}kept"]:
            store.put(key, b"x")
        store.delete(keys)
        assert sizes(store.scan(folder)) == {f"{folder}kept": 1}

    def test_what_another_program_removed_is_absent(self, target: Target, store: Store, folder: str) -> None:
        for name in ("gone", "kept"):
            store.put(folder + name, b"x")
            assert store.get(folder + name) == b"x"
        assert set(sizes(store.scan(folder))) == {f"{folder}gone", f"{folder}kept"}
        target.behind.delete(f"{folder}gone")
        assert store.head(f"{folder}gone") is None
        assert sizes(store.scan(folder)) == {f"{folder}kept": 1}


def crowd(target: Target, store: Store, prefix: str, count: int, *, suffix: str = "") -> set[str]:
    """See to it that ``count`` objects stand below a prefix, written once for all targets of a root."""
    names = {f"{prefix}{index:05d}{suffix}" for index in range(count)}
    missing = iter(names - target.behind.keys(prefix))

    async def write() -> None:
        for key in missing:
            await store.put_async(key, BODY)

    async def conversation() -> None:
        await asyncio.gather(*(write() for _ in range(TOGETHER)))

    on_a_loop(store, conversation)
    return names
