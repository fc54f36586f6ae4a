# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A token entry's canonical bytes: those that nemo-gym's own store writes and hashes.

Takes this package's class, nemo-gym's or any other with the fields of one and pydantic's ``model_dump``. What makes an
entry fit to train on is for ``records``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from gym_objstore.digests import canonical_json, is_token_id_text
from gym_objstore.errors import Invalid
from gym_objstore.records import are_finite_floats, parse_entry, require_consistent
from gym_objstore.responses import TOKEN_ARRAYS


class Sealed(NamedTuple):
    """An entry as it will be stored: its plain fields, and the canonical bytes whose SHA-256 is its identity."""

    fields: dict[str, Any]
    canonical: bytes


def seal(entry: Any) -> Sealed:
    """Return what is stored of an entry that is fit to train on, written as JSON once.

    Free-form fields hold what pydantic makes of them for JSON: NaN ends as ``null``, tuples and sets as lists. Raises
    ``Invalid`` as ``parse_entry``, and naming the path of text with a lone surrogate or an integer of more than 64
    bits: neither has canonical bytes.
    """
    texts = _array_texts(entry)
    if texts is None:
        fields = _plain(entry)
        return Sealed(fields, canonical_json(fields))
    rest = _dumped(entry, exclude=set(TOKEN_ARRAYS))
    fields = {**rest, **{name: getattr(entry, name) for name in TOKEN_ARRAYS}}
    require_consistent(fields)
    return Sealed(fields, canonical_json({**rest, **{name: orjson.Fragment(text) for name, text in texts.items()}}))


def _array_texts(entry: Any) -> dict[str, bytes] | None:
    """Return the JSON of each token array; ``None`` unless they are plain lists, sound, and dumped as they are."""
    decorators = getattr(entry, "__pydantic_decorators__", None)
    if decorators is None or decorators.field_serializers or decorators.model_serializers:
        return None
    arrays = [getattr(entry, name, None) for name in TOKEN_ARRAYS]
    if any(type(values) is not list for values in arrays):
        return None
    try:
        texts = [orjson.dumps(values) for values in arrays]
    except TypeError:
        return None
    sound = all(is_token_id_text(text) for text in texts[:2]) and are_finite_floats(entry.generation_log_probs)
    return dict(zip(TOKEN_ARRAYS, texts, strict=True)) if sound else None


def _plain(entry: Any) -> dict[str, Any]:
    """Return the plain JSON fields of an entry whose arrays need a closer look."""
    mapping = _dumped(entry)
    record = parse_entry(mapping)
    for name in TOKEN_ARRAYS:
        # An entry changed after it was built may hold numbers as text, which would be stored as text.
        if getattr(record, name) != mapping[name]:
            raise Invalid(f"{name} must hold numbers only", kind="bad_record")
    return mapping


def _dumped(entry: Any, **options: Any) -> dict[str, Any]:
    try:
        return entry.model_dump(mode="json", **options)  # type: ignore[no-any-return]
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        reason = f"not a token entry that can be written as JSON, type={type(entry).__name__}: {error}"
        raise Invalid(reason, kind="bad_record") from error
