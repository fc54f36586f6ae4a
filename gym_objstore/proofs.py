# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Whether an object's bytes are those that its name promises, for every kind of name that carries a digest."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gym_objstore.codec import unpack
from gym_objstore.digests import sha256_hex
from gym_objstore.errors import Corrupt
from gym_objstore.keys import PACKS, RECEIPTS, StagingKey
from gym_objstore.names import (
    parse_capture_name,
    parse_entry_name,
    parse_note_name,
    parse_pack_name,
    parse_receipt_name,
    parse_row_name,
    parse_staged_name,
)
from gym_objstore.staged_rows import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NOTES = ("markers", "refusals", "failures")


def damage_of(family: str, path: str, body: bytes) -> str | None:
    """Say what is wrong with the body of an object, given its path below its run; None if nothing is.

    Names without a digest promise nothing; a body in a format of a newer version cannot be verified and is taken as
    it is.
    """
    rollout, _, name = path.partition("/")
    kind, _, rest = name.partition("/")
    check = _CHECKS.get((family, kind)) or (_note if kind in _NOTES else None)
    if (family, kind) == ("staged", "rows"):
        check = partial(_staged, rollout)
    try:
        fits = check is None or check(rest, body)
    except Corrupt as error:
        return None if error.kind == "newer_format" else error.message
    return None if fits else "its bytes are not those that its name promises"


def _entry(name: str, body: bytes) -> bool:
    parsed = parse_entry_name(name)
    return parsed is None or sha256_hex(unpack(body, parsed.format)) == parsed.digest


def _capture(name: str, body: bytes) -> bool:
    parsed = parse_capture_name(name)
    return parsed is None or sha256_hex(unpack(body, parsed.format)) == parsed.digest


def _pack(name: str, body: bytes) -> bool:
    parsed = parse_pack_name(f"{PACKS}/{name}")
    return parsed is None or sha256_hex(unpack(body, parsed.format)) == parsed.digest


def _row(name: str, body: bytes) -> bool:
    parsed = parse_row_name(name)
    return parsed is None or sha256_hex(body) == parsed.digest


def _staged(rollout: str, name: str, body: bytes) -> bool:
    parsed = parse_staged_name(name)
    if parsed is not None:
        verify(StagingKey(rollout, parsed), body)
    return True


def _receipt(name: str, body: bytes) -> bool:
    return parse_receipt_name(name) in (None, sha256_hex(body))


def _note(name: str, body: bytes) -> bool:
    parsed = parse_note_name(name)
    return parsed is None or sha256_hex(body).startswith(parsed.digest)


_CHECKS: Mapping[tuple[str, str], Callable[[str, bytes], bool]] = {
    ("tokens", "entries"): _entry,
    ("tokens", PACKS): _pack,
    ("captures", "records"): _capture,
    ("ledger", "rows"): _row,
    ("manifests", RECEIPTS): _receipt,
}
