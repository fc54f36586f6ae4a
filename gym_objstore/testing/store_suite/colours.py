# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Laws of parity: the blocking and the async form are two ways to say the same thing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from gym_objstore.errors import ObjstoreError
from gym_objstore.store import Meta, Store
from gym_objstore.testing.store_suite.playing import Colour
from gym_objstore.testing.store_suite.target import Laws, Target

BUFFERS = (b"head-", bytearray(b"middle"), memoryview(b"-tail"))


class ColourLaws(Laws):
    """Every method in one form, its effect seen in the other, both ways round."""

    @pytest.fixture(params=["blocking writes, async reads", "async writes, blocking reads"])
    def colours(self, request: pytest.FixtureRequest, store: Store) -> Iterator[tuple[Colour, Colour]]:
        """Give the form that writes and the form that reads."""
        waits = request.param == "async writes, blocking reads"
        with closing(Colour(store, waits=waits)) as writer, closing(Colour(store, waits=not waits)) as reader:
            yield writer, reader

    def test_a_put_is_read_by_the_other_form(self, colours: tuple[Colour, Colour], folder: str) -> None:
        writer, reader = colours
        key = f"{folder}sub/object"
        assert writer.call("put", key, BUFFERS) is None
        assert reader.call("get", key) == b"head-middle-tail"
        assert reader.call("get_range", key, 5, 6) == b"middle"
        assert reader.call("get_range", key, 12, 99) == b"tail"
        assert reader.call("get_range", key, 99, 1) == b""
        assert reader.call("head", key)[:2] == (key, 16)
        assert [meta[:2] for meta in reader.call("scan", folder)] == [(key, 16)]
        assert reader.call("folders", folder) == ["sub"]

    def test_a_removal_is_seen_by_the_other_form(self, colours: tuple[Colour, Colour], folder: str) -> None:
        writer, reader = colours
        for name in ("a", "b", "c"):
            writer.call("put", folder + name, b"x")
        assert writer.call("delete", [f"{folder}a", f"{folder}absent", f"{folder}c"]) is None
        assert [meta.key for meta in reader.call("scan", folder)] == [f"{folder}b"]
        assert reader.call("head", f"{folder}a") is None

    def test_both_forms_answer_and_refuse_alike(self, target: Target, store: Store, folder: str) -> None:
        target.behind.write(f"{folder}sub/object", b"0123456789")
        with closing(Colour(store, waits=False)) as blocking, closing(Colour(store, waits=True)) as waiting:
            for method, *arguments in questions(folder):
                answers = [outcome(colour, method, *arguments) for colour in (blocking, waiting)]
                assert answers[0] == answers[1], (method, arguments)

    def test_listings_answer_with_the_documented_types(self, colours: tuple[Colour, Colour], folder: str) -> None:
        writer, reader = colours
        writer.call("put", f"{folder}sub/object", b"x")
        (meta,) = reader.call("scan", folder)
        head = reader.call("head", f"{folder}sub/object")
        assert [type(one) for one in (meta, head)] == [Meta, Meta]
        assert [type(value) for value in (*meta, *head)] == [str, int, float, str, int, float]
        assert [type(name) for name in reader.call("folders", folder)] == [str]
        assert type(reader.call("get", f"{folder}sub/object")) is bytes
        assert type(reader.call("get_range", f"{folder}sub/object", 0, 1)) is bytes


def questions(folder: str) -> list[tuple[Any, ...]]:
    """Return calls that change nothing, good and bad, as method and arguments."""
    there, absent, bad = f"{folder}sub/object", f"{folder}absent", f"{folder}../up"
    return [
        *[(method, key) for method in ("get", "head") for key in (there, absent, bad)],
        *[("get_range", key, 2, 3) for key in (there, absent, bad)],
        *[(method, prefix) for method in ("scan", "folders") for prefix in (folder, absent + "/", absent, bad + "/")],
        ("get_range", there, 99, 1),
        ("put", bad, b"x"),
        ("delete", []),
        ("delete", [absent]),
        ("delete", [bad]),
    ]


def outcome(colour: Colour, method: str, *arguments: Any) -> Any:
    """Return the answer or what is to be known of the refusal; only this package's errors count as one."""
    try:
        answer = colour.call(method, *arguments)
    except ObjstoreError as error:
        return type(error), error.kind, error.key, error.message
    if isinstance(answer, Meta):
        return answer[:2]
    return [one[:2] if isinstance(one, Meta) else one for one in answer] if isinstance(answer, list) else answer
