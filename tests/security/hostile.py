# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What an attacker sends: ids that are paths, documents with one part replaced, and a law about errors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import orjson
from hypothesis import strategies as st

from gym_objstore.errors import ObjstoreError

IDS = (
    "..",
    ".",
    "../..",
    "../../../../etc/passwd",
    "/etc/passwd",
    "//host/share",
    "a/../../b",
    "..\\..\\b",
    "C:\\windows",
    "%2e%2e%2f",
    "a\x00b",
    "a\n",
    "a.",
    "a...",
    ".hidden",
    "~",
    "-rf",
    "A",
    "a",
    "É",
    "E\u0301",
    "\ud800",
    "\u202e",
    "!run",
    "!probe",
    "!2e!2e",
    "\N{SECTION SIGN}partial",
    "fences",
    "x" * 300,
    "X" * 300,
    "🙂" * 80,
)
"""Ids that leave their folder, or meet another id, wherever an id is taken for a name."""

ids = st.sampled_from(IDS) | st.text(min_size=1, max_size=60) | st.text("./\\!aA\x00", min_size=1, max_size=12)

_words = st.text(st.characters(codec="utf-8"), max_size=6)
_scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | _words
values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
    max_leaves=6,
)
"""Anything that JSON holds."""

deep = st.sampled_from((b"[" * 2_000, b'{"a":' * 300 + b"1" + b"}" * 300, b"[" * 100_000 + b"]" * 100_000))


@st.composite
def changed(draw: Any, document: Any) -> Any:
    """A document of which up to two parts were replaced by anything, or left out."""
    found = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        holder, name = draw(st.sampled_from(list(_parts({"": found}))))
        if name == "":
            return draw(values)
        if draw(st.booleans()):
            holder[name] = draw(values)
        else:
            del holder[name]
    return found


def text_of(document: Any) -> bytes:
    return orjson.dumps(document)


def ours_only(read: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a reader returns, or the error of ours that it raised; every other error fails the test."""
    try:
        return read(*arguments)
    except ObjstoreError as error:
        return error


def _parts(document: Any) -> Iterator[tuple[Any, Any]]:
    of_list = list(enumerate(document)) if isinstance(document, list) else []
    for name, part in list(document.items()) if isinstance(document, dict) else of_list:
        yield document, name
        yield from _parts(part)
