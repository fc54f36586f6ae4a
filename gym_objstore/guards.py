# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What keeps readers from taking a part of a rollout for the whole, while it is removed or copied object by object.

A tombstone in the families that look for one; in ``captures`` a marker that says some are lost. Staged rows need
none: nobody lists them, and who names a row that is not there is told so.
"""

from __future__ import annotations

from gym_objstore import captures, staging
from gym_objstore.flow import Put
from gym_objstore.keys import FENCES, kind_prefix, note_key, tombstone_key
from gym_objstore.objects import write_object

_FENCED = kind_prefix("", FENCES)
_MARKED = kind_prefix("", "markers")
_STONE = tombstone_key("")


def guard(family: str, rollout: str, cause: str) -> Put | None:
    """Return the write that guards a rollout at a prefix; its bytes and its key depend on the cause alone."""
    body = write_object(cause=cause)
    if family == staging.FAMILY:
        return None
    if family == captures.FAMILY:
        return Put(note_key(rollout, "markers", "", body), body)
    return Put(tombstone_key(rollout), body)


def is_guard(family: str, name: str) -> bool:
    """Say whether an object below a rollout keeps readers off: what is removed last."""
    return name.startswith(_MARKED if family == captures.FAMILY else _FENCED)


def keeps_readers_off(family: str, name: str) -> bool:
    """Say whether an object below a rollout keeps readers off by itself: among fences only a tombstone does."""
    return is_guard(family, name) and (family == captures.FAMILY or name == _STONE)
