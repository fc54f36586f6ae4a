# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The columns of a staged call as machine numbers: from Python's, and to the bytes that digests cover.

Owns which numbers a column can hold and in which type. What columns must be to each other is for ``wire_staging``,
how they lie in an object for ``staged_rows``. A conversion between arrays costs a tenth of one from Python's numbers,
so a record is converted once and everybody else takes its arrays.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from operator import countOf
from typing import TYPE_CHECKING, Any, NamedTuple

from gym_objstore.digests import require_token_ids
from gym_objstore.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

_ONE = struct.pack("f", 1.0)
_ONCE_IN_ONE = b"\x3f"
"""A byte to count ones by: many times faster than to look for all four."""


class PackedColumns(NamedTuple):
    """The columns of a staged call under their names in its record, each in the narrowest type that is exact.

    Ids have 32 or 64 bits and no sign; masks and log probabilities are binary32 or binary64.
    """

    token_ids_delta: array[int]
    token_mask_delta: array[float]
    generation_log_probs_delta: array[float]

    @property
    def carried(self) -> int | None:
        """The number of zeros, where the mask is zeros and then ones and log probabilities are 0.0 under each zero.

        Seen without a look at each number; None where that needs one, as for a mask of another type or with a -0.0.
        """
        _, mask, log_probs = self
        bits = mask.tobytes()
        generated = bits.count(_ONCE_IN_ONE)
        carried = max(len(mask) - generated, 0)
        plain = (
            mask.typecode == "f"
            and bits == bytes(carried * mask.itemsize) + _ONE * generated
            and log_probs[:carried].tobytes() == bytes(carried * log_probs.itemsize)
        )
        return carried if plain else None

    def unpacked(self) -> dict[str, tuple[Any, ...]]:
        """Return the columns as Python's numbers under their names; most of their zeros and ones are one object."""
        ids, mask, log_probs = self
        carried = self.carried
        if carried is None:
            columns = tuple(ids), tuple(mask), tuple(log_probs)
        else:
            zeros = (0.0,) * carried
            columns = tuple(ids), zeros + (1.0,) * (len(mask) - carried), zeros + tuple(log_probs[carried:])
        return dict(zip(self._fields, columns, strict=True))


def pack_columns(token_ids: Sequence[int], token_mask: Sequence[float], log_probs: Sequence[float]) -> PackedColumns:
    """Return three columns of Python's numbers. Raises ``Invalid`` for what is no token id, and no float."""
    return PackedColumns(
        pack_ids(token_ids),
        pack_floats(token_mask, "token_mask_delta"),
        pack_floats(log_probs, "generation_log_probs_delta"),
    )


def pack_ids(values: Sequence[int]) -> array[int]:
    """Return token ids in 32 bits, or in 64 if one needs them. Raises ``Invalid`` as ``require_token_ids``."""
    require_token_ids(values)
    try:
        return array("I", values)
    except OverflowError:
        return array("Q", values)


def pack_floats(values: Sequence[float], what: str) -> array[float]:
    """Return floats in 32 bits, or in 64 if one needs them. Raises ``Invalid`` for what is no float."""
    if countOf(map(type, values), float) != len(values):
        raise _no_finite_floats(what)
    doubles = array("d")
    doubles.frombytes(struct.pack(f"{len(values)}d", *values))  # a third of what array("d", values) takes
    singles = _singles(doubles)
    return doubles if singles is None else singles


def encode_ids(column: array[int]) -> bytes:
    """Return ids as unsigned 64-bit numbers, big-endian."""
    if (numpy := _numpy()) is not None:
        return numpy.asarray(column).astype(">u8").tobytes()  # type: ignore[no-any-return]
    return _big_endian(array("Q", column))


def encode_floats(column: array[float], what: str) -> bytes:
    """Return floats rounded to binary32, big-endian. Raises ``Invalid`` for what is not finite in it."""
    if column.typecode == "f":
        encoded = _big_endian(column[:])
    else:
        try:
            encoded = struct.pack(f">{len(column)}f", *column)
        except OverflowError as error:
            raise Invalid(f"{what} must hold floats within the range of 32 bits", kind="bad_number") from error
    leading = encoded[::4]  # 7f and ff are those of NaN, infinity and 2**127 on
    if (b"\x7f" in leading or b"\xff" in leading) and not all(map(math.isfinite, column)):
        raise _no_finite_floats(what)
    return encoded


def _singles(doubles: array[float]) -> array[float] | None:
    """Return numbers in single precision if it holds each exactly."""
    if (numpy := _numpy()) is None:
        singles = array("f", doubles)
        return singles if singles == doubles else None
    wide = numpy.asarray(doubles)
    with numpy.errstate(over="ignore"):
        narrow = wide.astype(numpy.float32)
    return array("f", narrow.tobytes()) if (narrow == wide).all() else None


def _big_endian(column: array[Any]) -> bytes:
    """Return the bytes of a column, which is swapped in place."""
    if sys.byteorder == "little":
        column.byteswap()
    return column.tobytes()


def _numpy() -> Any:
    """Return numpy where the process has loaded it anyway, as every engine has: loading it costs more than it saves."""
    if sys.modules.get("numpy") is None:
        return None
    import numpy as np

    return np


def _no_finite_floats(what: str) -> Invalid:
    return Invalid(f"{what} must hold finite floats only", kind="bad_number")
