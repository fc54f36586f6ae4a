# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The digests of external staging, byte for byte as nemo-gym 0.7.0 computes them.

Owns what is hashed and how a value becomes bytes; which digests must agree with what is the business of
``wire_staging`` and ``linearize``. Every digest is SHA-256 over a domain and length-delimited fields, all
numbers big-endian. Token ids are unsigned 64-bit, columns of floats are IEEE-754 binary32; a column may be given as
the array it is packed in.
"""

from __future__ import annotations

import math
import re
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gym_objstore.digests import sha256_hex
from gym_objstore.errors import Invalid
from gym_objstore.staged_columns import encode_floats, encode_ids, pack_floats, pack_ids

STAGING_SCHEMA_VERSION: Final = 2
STAGING_DIGEST_VERSION: Final = 2
EXTRAS_DIGEST_VERSION: Final = 1

_CALL_DOMAIN = b"nemo-gym-staging-call-v2"
_EXTRAS_DOMAIN = b"nemo-gym-staging-extras-v1"
_TOKENS_DOMAIN = b"nemo-gym-staging-prefix-v2"
_CHAIN_DOMAIN = b"nemo-gym-staging-chain-v1"

_INT64 = range(-(2**63), 2**63)
_UINT64 = range(2**64)
_HEX_DIGEST = re.compile(r"[0-9a-f]{64}")

_ABSENT = b"\x00"
_PRESENT = b"\x01"


def hash_token_ids(token_ids: Sequence[int]) -> str:
    """Return the cumulative hash of one whole token sequence."""
    return sha256_hex(_TOKENS_DOMAIN + _ids(token_ids))


def compute_chain_hash(parent_chain_hash: str | None, token_ids_delta: Sequence[int]) -> str:
    """Return the hash of a call's delta chained onto its parent's; ``None`` is the parent of a root."""
    parent = _ABSENT if parent_chain_hash is None else _present_digest(parent_chain_hash, "parent_chain_hash")
    return sha256_hex(_CHAIN_DOMAIN + parent + _ids(token_ids_delta))


def compute_extras_digest(extras: Mapping[str, Any] | None) -> str:
    """Return the digest of a call's extras.

    Values are exactly ``None``, ``bool``, ``int`` of 64 bits, finite ``float``, ``str``, ``list`` and
    ``dict`` with ``str`` keys, so that no two writers choose different bytes for one value. Subclasses,
    tuples, bytes and numpy scalars raise ``Invalid``, as does nesting deeper than the interpreter's stack.
    """
    if extras is not None and not isinstance(extras, Mapping):
        raise Invalid(f"extras must be a mapping or None, type={type(extras).__name__}", kind="bad_extras")
    try:
        encoded = _extra(None if extras is None else dict(extras), "extras")
    except RecursionError:
        raise Invalid("extras are nested too deeply or contain themselves", kind="bad_extras") from None
    return sha256_hex(_EXTRAS_DOMAIN + bytes([EXTRAS_DIGEST_VERSION]) + encoded)


def compute_staging_digest(call: Mapping[str, Any]) -> str:
    """Return the digest of one staged call, given its fields by name; fields not in the layout are ignored.

    Raises ``Invalid`` for a value its field cannot encode. Whether the fields fit each other is not checked.
    """
    return sha256_hex(b"".join([_CALL_DOMAIN, *(encode(call[name], name) for name, encode in _CALL_LAYOUT)]))


def _byte(value: int, what: str) -> bytes:
    if type(value) is not int or value not in range(256):
        raise Invalid(f"{what} must be an unsigned 8-bit integer", kind="bad_number")
    return bytes([value])


def _uint(value: int, what: str) -> bytes:
    if type(value) is not int or value not in _UINT64:
        raise Invalid(f"{what} must be an unsigned 64-bit integer", kind="bad_number")
    return struct.pack(">Q", value)


def _framed(value: bytes) -> bytes:
    return struct.pack(">Q", len(value)) + value


def _text(value: str, what: str) -> bytes:
    if not isinstance(value, str):
        raise Invalid(f"{what} must be text, type={type(value).__name__}", kind="bad_text")
    try:
        return _framed(value.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise Invalid(f"{what} must be encodable as UTF-8", kind="bad_text") from error


def _optional_text(value: str | None, what: str) -> bytes:
    return _ABSENT if value is None else _PRESENT + _text(value, what)


def _digest(value: object, what: str) -> bytes:
    if not isinstance(value, str) or not _HEX_DIGEST.fullmatch(value):
        raise Invalid(f"{what} must be 64 lower-case hex digits", kind="bad_digest")
    return bytes.fromhex(value)


def _present_digest(value: object, what: str) -> bytes:
    return _PRESENT + _digest(value, what)


def _ids(values: Sequence[int]) -> bytes:
    column = values if isinstance(values, array) else pack_ids(values)
    return struct.pack(">Q", len(column)) + encode_ids(column)


def _framed_ids(values: Sequence[int], _what: str) -> bytes:
    return _framed(_ids(values))


def _framed_float32s(values: Sequence[float], what: str) -> bytes:
    column = values if isinstance(values, array) else pack_floats(values, what)
    return _framed(struct.pack(">Q", len(column)) + encode_floats(column, what))


_CALL_LAYOUT: tuple[tuple[str, Callable[[Any, str], bytes]], ...] = (
    ("schema_version", _byte),
    ("digest_version", _byte),
    ("extras_digest_version", _byte),
    ("rollout_id", _text),
    ("model_call_id", _text),
    ("parent_call_id", _optional_text),
    ("mode", _text),
    ("prev_len", _uint),
    ("delta_len", _uint),
    ("cum_len", _uint),
    ("weight_version", _uint),
    ("token_ids_delta", _framed_ids),
    ("token_mask_delta", _framed_float32s),
    ("generation_log_probs_delta", _framed_float32s),
    ("extras_digest", _digest),
    ("chain_hash", _present_digest),
    ("cumulative_hash", _present_digest),
)


def _extra(value: object, where: str) -> bytes:
    encode = _EXTRA_ENCODERS.get(type(value))
    if encode is None:
        raise Invalid(f"{where} holds an unsupported type, type={type(value).__name__}", kind="bad_extras")
    return encode(value, where)


def _extra_int(value: int, where: str) -> bytes:
    if value not in _INT64:
        raise Invalid(f"{where} must fit in 64 bits", kind="bad_extras")
    return b"I" + struct.pack(">q", value)


def _extra_float(value: float, where: str) -> bytes:
    if not math.isfinite(value):
        raise Invalid(f"{where} must be finite, value={value!r}", kind="bad_extras")
    return b"F" + struct.pack(">d", value)


def _extra_list(value: list[object], where: str) -> bytes:
    return b"L" + _uint(len(value), where) + b"".join(_extra(item, where) for item in value)


def _extra_dict(value: dict[Any, object], where: str) -> bytes:
    if not set(map(type, value)) <= {str}:
        raise Invalid(f"{where} must have text keys only", kind="bad_extras")
    # Code points sort as their UTF-8 bytes do.
    items = (_text(key, where) + _extra(value[key], f"{where}[{key!r}]") for key in sorted(value))
    return b"D" + _uint(len(value), where) + b"".join(items)


_EXTRA_ENCODERS: dict[type, Callable[[Any, str], bytes]] = {
    type(None): lambda _value, _where: b"N",
    bool: lambda value, _where: b"B\x01" if value else b"B\x00",
    int: _extra_int,
    float: _extra_float,
    str: lambda value, where: b"S" + _text(value, where),
    list: _extra_list,
    dict: _extra_dict,
}

EMPTY_EXTRAS_DIGEST: Final = compute_extras_digest(None)
