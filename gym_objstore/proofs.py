# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Whether an object's bytes are those that its name promises: by a digest, or because they follow from the ids in it.

Nothing proves the body of a tombstone.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from gym_objstore.codec import unpack_named
from gym_objstore.digests import sha256_hex
from gym_objstore.errors import Corrupt
from gym_objstore.ids import segment
from gym_objstore.keys import CONSUMED, PACKS, RECEIPTS, StagingKey
from gym_objstore.names import (
    parse_capture_name,
    parse_entry_name,
    parse_note_name,
    parse_pack_name,
    parse_receipt_name,
    parse_row_name,
    parse_staged_name,
)
from gym_objstore.objects import announcement, read_object, write_object
from gym_objstore.runs import CLOSED
from gym_objstore.staged_rows import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gym_objstore.codec import Named

Check: TypeAlias = "Callable[[str, bytes], bool]"
"""Says whether a body is what its name promises."""

_NOTES = ("markers", "refusals", "failures")


def damage_of(family: str, path: str, body: bytes) -> str | None:
    """Say what is wrong with the body of an object, given its path below its run; None if nothing is.

    Names of no kind of ours promise nothing; a body in a format of a newer version cannot be verified and is taken as
    it is.
    """
    rollout, _, name = path.partition("/")
    kind, _, rest = name.partition("/")
    check = _CHECKS.get((family, kind)) or (_note if kind in _NOTES else None)
    if (family, kind) in _WITHIN:
        check = partial(_WITHIN[family, kind], rollout)
    return _damage(check, rest, body)


def run_damage_of(family: str, run: str, name: str, body: bytes) -> str | None:
    """Say what is wrong with an object of a run itself, given the run's segment and the name below its folder."""
    kind, _, rest = name.partition("/")
    checks: Mapping[str, Check] = {
        "writer": lambda _, found: _is_announcement(family, run, found),
        "closed": lambda _, found: found == CLOSED,
        "descriptors": lambda digest, found: sha256_hex(found) == digest,
    }
    return _damage(checks.get(kind), rest, body)


def _damage(check: Check | None, name: str, body: bytes) -> str | None:
    try:
        fits = check is None or check(name, body)
    except Corrupt as error:
        return None if error.kind == "newer_format" else error.message
    return None if fits else "its bytes are not those that its name promises"


def _text(parse: Callable[[str], Named | None], name: str, body: bytes) -> bool:
    if (named := parse(name)) is not None:
        unpack_named(body, named)
    return True


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


def _intent(rollout: str, name: str, body: bytes) -> bool:
    return _names(rollout, name, body, "model_call_id")


def _consumed(rollout: str, name: str, body: bytes) -> bool:
    return _names(rollout, name, body, "checkpoint_id")


def _names(rollout: str, name: str, body: bytes, field: str) -> bool:
    """Say whether a body is what follows from the two ids in it, and these are the ids of its key."""
    said = read_object(body)
    owner, named = said.get("rollout_id"), said.get(field)
    if not isinstance(owner, str) or not isinstance(named, str) or (segment(owner), segment(named)) != (rollout, name):
        return False
    return body == write_object(rollout_id=owner, **{field: named})


def _is_announcement(family: str, run: str, body: bytes) -> bool:
    said = read_object(body).get("run_id")
    return isinstance(said, str) and segment(said) == run and body == announcement(family, said).body


_WITHIN: Mapping[tuple[str, str], Callable[[str, str, bytes], bool]] = {
    ("staged", "rows"): _staged,
    ("tokens", "intents"): _intent,
    ("manifests", CONSUMED): _consumed,
}
_CHECKS: Mapping[tuple[str, str], Check] = {
    ("tokens", "entries"): partial(_text, parse_entry_name),
    ("tokens", PACKS): partial(_text, lambda name: parse_pack_name(f"{PACKS}/{name}")),
    ("captures", "records"): partial(_text, parse_capture_name),
    ("ledger", "rows"): _row,
    ("manifests", RECEIPTS): _receipt,
}
