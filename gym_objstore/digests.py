# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What is hashed: canonical JSON, and the digest of a token sequence. Bit for bit those of nemo-gym 0.7.0.

Owns the byte layouts and the refusal of values that have none. Which records exist is for ``records``; what is
hashed of a conversation is for ``fingerprint``.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from array import array
from typing import TYPE_CHECKING, Any, Final

import orjson

from gym_objstore.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DIGEST_VERSION: Final = 1
"""Version of the token digest; it is hashed in front of the ids."""

_DOMAIN = b"nemo-gym-tokens"
_UINT64 = range(2**64)
_DIGITS = b"0123456789,"
_ENCODER_DEPTH = 255
"""How deep orjson follows nested values before it gives up."""


def sha256_hex(body: bytes) -> str:
    """Return the SHA-256 of bytes as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(body).hexdigest()


def canonical_json(value: Any) -> bytes:
    """Return the one JSON text of a value: keys sorted, no spaces, UTF-8.

    Floats are written with the shortest digits that read back exactly (``1e+22``: orjson before 3.11.7 wrote
    ``1e22``); NaN and infinities, which JSON does not have, as ``null``. Raises ``Invalid`` naming the path of what
    JSON cannot hold: a lone surrogate, an integer of more than 64 bits, a key that is no string, a foreign type, or
    nesting deeper than 254 levels.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        where = _path_of_unencodable(value) or type(value).__name__
        reason = f"{where} cannot be written as JSON: {str(error).lower()}"
        raise Invalid(reason, kind="not_json", hint="replace the value before recording it") from error


def encode_token_ids(token_ids: Sequence[int]) -> bytes:
    """Return the bytes a token sequence is hashed as: version (1 byte), count and ids (8 bytes each, big-endian).

    Raises ``Invalid`` naming the position of the first id that is no integer from 0 to 2**64 - 1.
    """
    require_token_ids(token_ids)
    words = array("Q", token_ids)
    if sys.byteorder == "little":
        words.byteswap()
    return struct.pack(">BQ", DIGEST_VERSION, len(words)) + words.tobytes()


def compute_digest(token_ids: Sequence[int]) -> str:
    """Return the digest of an exact token sequence as 64 hexadecimal digits.

    The empty sequence hashes the domain alone. Raises ``Invalid`` as ``encode_token_ids`` does.
    """
    encoded = encode_token_ids(token_ids) if token_ids else b""
    return sha256_hex(_DOMAIN + encoded)


def require_token_ids(token_ids: Sequence[int]) -> None:
    """Raise ``Invalid`` naming the first position that holds no plain integer from 0 to 2**64 - 1."""
    if not are_token_ids(token_ids):
        for position, one in enumerate(token_ids):
            _require_token_id(one, position)


def are_token_ids(token_ids: object) -> bool:
    """Tell in one pass whether this is a list or tuple of plain integers from 0 to 2**64 - 1.

    Written as JSON such a list is digits and commas only, which is checked at a tenth of the cost of a loop:
    booleans, floats, strings and negative numbers all leave other characters.
    """
    try:
        return is_token_id_text(orjson.dumps(token_ids))
    except TypeError:
        return False


def is_token_id_text(text: bytes) -> bool:
    """Tell whether this JSON, as orjson writes it, is that of a list of plain integers from 0 to 2**64 - 1."""
    return text.translate(None, _DIGITS) == b"[]"


def _require_token_id(one: object, position: int) -> None:
    if isinstance(one, bool) or not isinstance(one, int):
        msg = f"token id at position {position} must be an integer, type={type(one).__name__}"
        raise Invalid(msg, kind="bad_token_id")
    if one not in _UINT64:
        sign = "negative" if one < 0 else "more than 64 bits"
        raise Invalid(f"token id at position {position} is {sign}, value={hex(one):.40}", kind="bad_token_id")


def _path_of_unencodable(value: Any) -> str:
    """Return where the first part that JSON cannot hold is, as ``a[0].b``; ``""`` for the value itself."""
    path = ""
    for _ in range(_ENCODER_DEPTH):
        step = next(((name, part) for name, part in _parts(value) if _unencodable(part)), None)
        if step is None:
            break
        path, value = path + step[0], step[1]
    return path.removeprefix(".")


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield f" key {key!r}", key
            yield f".{key}", part
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{position}]", part) for position, part in enumerate(value))


def _unencodable(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        return True
    return False
