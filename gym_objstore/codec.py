# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The stored body of a record: bytes from its canonical JSON, and back.

Owns the formats and the refusal of bytes that are none. Does not own identity, the SHA-256 of the canonical JSON:
``unpack`` returns the text to hash before ``parse`` is believed.

Format ``zst`` is the canonical JSON as one zstd frame with content size and checksum, so ``zstd -d`` and ``sha256sum``
check an object without this package; docs/decisions/0001-entry-codec.md says why. Format ``json`` is the text itself.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import orjson
import zstandard

from gym_objstore.digests import canonical_json, sha256_hex
from gym_objstore.errors import Corrupt, Invalid
from gym_objstore.frames import contexts

FORMAT: Final = "zst"
"""The format that ``encode`` writes; the extension of an object's name."""

INTERCHANGE: Final = "json"
"""The format that is the canonical JSON itself; always readable."""

LIMIT: Final = 256 * 1024 * 1024
"""Bytes of the longest text that is stored, and that is read unless the caller says otherwise."""

_DEPTH = 254
"""Levels of nesting that canonical JSON can have."""
_NO_MEMORY = "Not enough memory"
"""How orjson, and zstd in small letters, say that this machine, and not the body, is at fault."""


class Named(Protocol):
    """The name of an object that says how its body is encoded and what the SHA-256 of its text is."""

    @property
    def digest(self) -> str: ...  # noqa: D102
    @property
    def format(self) -> str: ...  # noqa: D102


def encode(canonical: bytes) -> bytes:
    """Return the body of a record in format ``FORMAT``, given its canonical JSON.

    Equal texts give equal bodies until the zstd library changes. Raises ``Invalid`` (kind ``too_large``) for a
    text that no reader would take.
    """
    if len(canonical) > LIMIT:
        msg = f"the record is too large to store, bytes={len(canonical)}, limit={LIMIT}"
        raise Invalid(msg, kind="too_large", hint="store its large fields elsewhere")
    return contexts.compressor.compress(canonical)


def decode(body: bytes, extension: str, *, limit: int = LIMIT) -> dict[str, Any]:
    """Return the record of a body whose object's name ends in ``extension``.

    Its canonical JSON is byte for byte what was encoded, every float and the difference of ``0`` and ``0.0``
    included. Raises ``Corrupt`` as ``unpack`` and ``parse`` do, and nothing else whatever the bytes.
    """
    return parse(unpack(body, extension, limit=limit))


def unpack(body: bytes, extension: str, *, limit: int = LIMIT) -> bytes:
    """Return the text in a body, whose SHA-256 is the record's identity.

    Never makes a text longer than ``limit`` bytes, whatever the body claims. Raises ``Corrupt`` for a body that was cut
    short, extended or altered; with kind ``newer_format`` for an extension this version does not know, and
    ``too_large`` for a text above ``limit``. Bare JSON is not checked here: its hash tells.
    """
    if extension == INTERCHANGE:
        _require_within(limit, len(body))
        return body
    if extension == FORMAT:
        return _decompress(body, limit)
    msg = f"this version cannot read the format, format={extension!r}"
    raise Corrupt(msg, kind="newer_format", hint="upgrade gym_objstore")


def unpack_named(body: bytes, name: Named) -> bytes:
    """Return the text of a body whose object is called so. Raises ``Corrupt`` as ``unpack`` and ``require_digest``."""
    return require_digest(unpack(body, name.format), name.digest)


def require_digest(text: bytes, digest: str) -> bytes:
    """Return a text whose SHA-256 is the one that a name promises; else raise ``Corrupt`` (kind ``digest``)."""
    if (found := sha256_hex(text)) != digest:
        raise Corrupt(f"its digest is not its name's, digest={found}, name={digest}", kind="digest")
    return text


def parse(text: bytes) -> dict[str, Any]:
    """Return the record a text spells.

    Takes some 16 times the text's size in memory for a token entry, and at most 100 times, for a text of empty objects.
    Raises ``Corrupt`` for what is no JSON object, or nested deeper than canonical JSON can be; ``MemoryError``.
    """
    if not (text.startswith(b"{") and text.endswith(b"}")):
        raise _damaged("its text is no JSON object")
    try:
        record: dict[str, Any] = orjson.loads(text)
        if text.count(b"[") + text.count(b"{") > _DEPTH:
            canonical_json(record)  # reading follows deeper nesting than writing
    except (orjson.JSONDecodeError, Invalid) as error:
        if str(error).startswith(_NO_MEMORY):
            raise MemoryError from error
        raise _damaged("its text is no JSON object of at most 254 levels") from error
    return record


def _decompress(body: bytes, limit: int) -> bytes:
    try:
        size = zstandard.get_frame_parameters(body).content_size
        if size in (0, zstandard.CONTENTSIZE_UNKNOWN):  # the library would believe 0 without a look at the rest
            raise _damaged("it does not say how long its text is")
        _require_within(limit, size)
        return contexts.decompressor.decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        if _NO_MEMORY.lower() in str(error):
            raise MemoryError from error
        raise _damaged("it is not one whole zstd frame") from error


def _require_within(limit: int, size: int) -> None:
    if size > limit:
        msg = f"the text is longer than the limit, bytes={size}, limit={limit}"
        raise Corrupt(msg, kind="too_large", hint="raise the limit if you trust the writer")


def _damaged(reason: str) -> Corrupt:
    return Corrupt(f"the body is damaged: {reason}", hint="restore the object, or leave its call out")
