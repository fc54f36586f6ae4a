# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Routed experts in a call's extras: which experts each layer chose for each token.

Owns the two forms they are staged in and how much of a call they cover. The envelope is one string,
``nrlre1:<dtype>:<tokens>x<layers>x<topk>:<base64 of little-endian values>``; the older form is the same
cube as nested lists. Both are those of nemo-gym 0.7.0.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
from array import array
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from gym_objstore.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

RouteCoverage = Literal["full", "tail", "sentinel"]

MISSING_ROUTE_SENTINEL: Final = -1
"""The value of every route a call has none for."""

_TYPECODES: dict[str, Literal["b", "h", "i"]] = {"int8": "b", "int16": "h", "int32": "i"}
_ENVELOPE = re.compile(
    r"nrlre1:(int8|int16|int32):([1-9][0-9]{0,8})x([1-9][0-9]{0,8})x([1-9][0-9]{0,8}):(.*)", re.DOTALL
)
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class RoutedExperts:
    """A decoded cube of ``[tokens][layers][topk]`` expert indices; ``dtype`` is ``legacy-int`` for nested lists."""

    values: list[list[list[int]]]
    dtype: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """The number of tokens, layers and experts per layer; none is 0."""
        return len(self.values), len(self.values[0]), len(self.values[0][0])


def encode_routed_experts(values: Sequence[Sequence[Sequence[int]]], *, dtype: str = "int16") -> str:
    """Return the envelope of a cube of expert indices. Raises ``Invalid`` if it is ragged or does not fit."""
    if dtype not in _TYPECODES:
        raise _invalid(f"the dtype must be one of {', '.join(_TYPECODES)}")
    flat, shape = _flattened(list(values))
    try:
        packed = _little_endian(array(_TYPECODES[dtype], flat)).tobytes()
    except OverflowError as error:
        raise _invalid(f"values do not fit, dtype={dtype}") from error
    return f"nrlre1:{dtype}:{'x'.join(map(str, shape))}:{base64.b64encode(packed).decode('ascii')}"


def decode_routed_experts(payload: Any) -> RoutedExperts:
    """Return the cube of either form. Raises ``Invalid`` for anything that is not exactly one of them."""
    if not isinstance(payload, str):
        return RoutedExperts(_nested(*_flattened(payload)), "legacy-int")
    dtype, shape, encoded = _split(payload)
    try:
        flat = array(_TYPECODES[dtype], base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError) as error:
        raise _invalid("the envelope holds no base64 of whole values") from error
    tokens, layers, topk = shape
    if len(flat) != tokens * layers * topk:
        raise _invalid(f"the envelope holds {len(flat)} values, shape={tokens}x{layers}x{topk}")
    return RoutedExperts(_nested(_little_endian(flat).tolist(), shape), dtype)


def routed_experts_token_count(payload: Any) -> int:
    """Return the number of tokens of either form, without decoding it."""
    if isinstance(payload, str):
        return _split(payload)[1][0]
    if type(payload) is not list or not payload:
        raise _invalid("neither an envelope nor a list of tokens")
    return len(payload)


def classify_route_span(*, carry_len: int, generation_len: int, staged_route_len: int) -> RouteCoverage:
    """Tell how much of a call's ``carry_len`` prompt and ``generation_len`` generated tokens staged routes cover.

    ``full``: one route per token. ``tail``: the last ``generation_len`` routes are those of the generated
    tokens. ``sentinel``: no usable routes; the span is filled with ``MISSING_ROUTE_SENTINEL``.
    """
    lengths = (carry_len, generation_len, staged_route_len)
    if any(type(length) is not int or length < 0 for length in lengths):
        raise _invalid(f"lengths must be counts, carry_len, generation_len, staged_route_len={lengths}")
    if 0 < staged_route_len == carry_len + generation_len:
        return "full"
    return "tail" if 0 < generation_len <= staged_route_len else "sentinel"


def _split(envelope: str) -> tuple[str, tuple[int, int, int], str]:
    found = _ENVELOPE.fullmatch(envelope)
    if not found:
        raise _invalid(f"the envelope must be nrlre1:<dtype>:<tokens>x<layers>x<topk>:<base64>, is {envelope[:40]!r}")
    dtype, tokens, layers, topk, encoded = found.groups()
    return dtype, (int(tokens), int(layers), int(topk)), encoded


def _flattened(cube: Any) -> tuple[list[int], tuple[int, int, int]]:
    shape: list[int] = []
    level: list[Any] = [cube]
    for axis in ("tokens", "layers", "experts"):
        if not set(map(type, level)) <= {list}:
            raise _invalid(f"{axis} must be given as a list")
        sizes = set(map(len, level))
        if len(sizes) != 1 or 0 in sizes:
            raise _invalid(f"every list must hold the same positive number of {axis}")
        shape += sizes
        level = list(chain.from_iterable(level))
    if not set(map(type, level)) <= {int}:
        raise _invalid("values must be integers")
    tokens, layers, topk = shape
    return level, (tokens, layers, topk)


def _nested(flat: list[int], shape: tuple[int, int, int]) -> list[list[list[int]]]:
    _, layers, topk = shape
    return _chunks(_chunks(flat, topk), layers)


def _little_endian(values: array[int]) -> array[int]:
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _chunks(values: list[_Item], size: int) -> list[list[_Item]]:
    return [values[start : start + size] for start in range(0, len(values), size)]


def _invalid(reason: str) -> Invalid:
    return Invalid(f"not routed experts: {reason}", kind="bad_routed_experts")
