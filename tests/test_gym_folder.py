# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Gym's files are found by their names, read line by line without losing a byte, and written whole or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_objstore.errors import Conflict, Invalid
from gym_objstore.gym_folder import FileLine, find_files, is_gym_id, read_lines, write_file

PIECES = st.lists(st.sampled_from([b"x", b"{}", b" ", b"\t", b"\r", b"\x00", b"\xff"]), max_size=3).map(b"".join)


@given(st.lists(PIECES, max_size=6))
def test_lines_each_with_an_end_are_the_file(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("lines") / "file"
    body = b"".join(part + b"\n" for part in parts)
    path.write_bytes(body)
    found = list(read_lines(path))
    assert len(found) == sum(bool(part.strip()) for part in parts)
    assert [line.last for line in found] == [False] * (len(found) - 1) + [True] * bool(found)
    if found:
        assert b"".join(line.text + b"\n" for line in found) == body


def test_a_line_says_where_it_is_and_whether_it_was_finished(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one\n\n\ntwo")
    assert list(read_lines(path)) == [
        FileLine(b"one", 1, last=False, ended=True),
        FileLine(b"\n\ntwo", 4, last=True, ended=False),
    ]


def test_files_are_found_by_name_and_the_rest_is_foreign(tmp_path):
    for name in ("a.capture.jsonl", "a.tokens.jsonl", "a.tokens.lock", "a.tokens.capture.jsonl", "README", "a.jsonl"):
        (tmp_path / name).touch()
    found = find_files(tmp_path)
    assert {rollout: sorted(files) for rollout, files in found.rollouts.items()} == {
        "a": [".capture.jsonl", ".tokens.jsonl"],
        "a.tokens": [".capture.jsonl"],
    }
    assert found.foreign == ("README", "a.jsonl")


def test_files_named_after_no_rollout_are_all_named_in_the_error(tmp_path):
    for name in (".capture.jsonl", "a b.tokens.jsonl", "good.capture.jsonl"):
        (tmp_path / name).touch()
    with pytest.raises(Invalid, match=r"files=\['.capture.jsonl', 'a b.tokens.jsonl'\]"):
        find_files(tmp_path)


@pytest.mark.parametrize(
    ("rollout", "fits"), [("0-0-a1", True), ("a/b", False), ("é", False), ("", False), ("x" * 201, False)]
)
def test_an_id_is_what_gyms_stores_take(rollout, fits):
    assert is_gym_id(rollout) is fits


def test_a_file_is_written_whole_kept_if_it_is_the_same_and_replaced_if_it_has_grown(tmp_path):
    path = tmp_path / "file"
    assert write_file(path, [b"a"]) == (path, 2, False)
    assert write_file(path, [b"a"]) == (path, 2, True)
    assert write_file(path, [b"a", b"b"]) == (path, 4, False)
    assert path.read_bytes() == b"a\nb\n"


def test_other_contents_are_kept_and_a_writer_that_fails_leaves_nothing(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"mine\n")
    with pytest.raises(Conflict, match="other contents"):
        write_file(path, [b"a"])

    def broken():
        yield b"mine"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_file(path, broken())
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("file", b"mine\n")]
