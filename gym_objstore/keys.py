# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Every object key of the format, built and parsed here and nowhere else.

``<family>/<run>/<rollout>/<kind>/<name>`` below the store's root. The family comes first because
lifecycle rules and access policies work by key prefix. A run's own objects live in its ``!run`` folder,
which no rollout's segment can be. Every listed prefix ends in ``/``. What the names of objects say is in
``names``, the keys of what says something about a whole run in ``run_keys``.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, NamedTuple

from gym_objstore.errors import Invalid
from gym_objstore.ids import require_id, segment
from gym_objstore.names import StagedName, parse_staged_name

if TYPE_CHECKING:
    from gym_objstore.names import CaptureName, DropName, EntryName, PackName, RowName

FAMILIES = ("captures", "tokens", "staged", "ledger", "manifests")
FENCES = "fences"
TOMBSTONE = "tombstone"
RUN_FOLDER = "!run"
PACKS = "packs"
RECEIPTS = "receipts"
CONSUMED = "consumed"

_DEPTH = 5
_SEGMENT = re.compile(r"[a-z0-9_!-][a-z0-9._!-]{0,95}")


class Parts(NamedTuple):
    """The five segments of a rollout object's key; ``run``, ``rollout`` and ids in names stay segments."""

    family: str
    run: str
    rollout: str
    kind: str
    name: str


class StagingKey(NamedTuple):
    """Where a staged row is within a run, as workers acknowledge it and manifests carry it."""

    rollout: str
    name: StagedName

    @property
    def text(self) -> str:
        """The staging key as it is sent."""
        return f"{self.rollout}/{self.name.text}"


def run_prefix(family: str, run_id: str) -> str:
    """Return the prefix of everything one family holds of a run."""
    return f"{family}/{segment(require_id(run_id, 'run id'))}/"


def writer_key(family: str, run_id: str) -> str:
    """Return the key of the marker that says somebody wrote to this run."""
    return f"{run_prefix(family, run_id)}{RUN_FOLDER}/writer"


def rollout_prefix(family: str, run_id: str, rollout_id: str) -> str:
    """Return the prefix of everything one family holds of a rollout."""
    return f"{run_prefix(family, run_id)}{segment(require_id(rollout_id, 'rollout id'))}/"


def kind_prefix(rollout: str, kind: str) -> str:
    """Return the prefix of one kind of object below a rollout's prefix."""
    return f"{rollout}{kind}/"


def entry_key(rollout: str, name: EntryName) -> str:
    """Return the key of a token entry below a rollout's prefix."""
    return f"{rollout}entries/{name.text}"


def intent_key(rollout: str, model_call_id: str) -> str:
    """Return the key of the intent of a call. Its body follows from the key's ids alone."""
    return f"{rollout}intents/{segment(require_id(model_call_id, 'model call id'))}"


def capture_key(rollout: str, name: CaptureName) -> str:
    """Return the key of a capture below a rollout's prefix."""
    return f"{rollout}records/{name.text}"


def pack_key(rollout: str, name: PackName) -> str:
    """Return the key of a pack below a rollout's prefix."""
    return f"{rollout}{PACKS}/{'.'.join(name)}"


def row_key(rollout: str, name: RowName) -> str:
    """Return the key of a ledger row below a rollout's prefix."""
    return f"{rollout}rows/{name.text}"


def staged_key(run_id: str, key: StagingKey) -> str:
    """Return the object key of a staged row."""
    return f"{run_prefix('staged', run_id)}{key.rollout}/rows/{key.name.text}"


def receipt_key(rollout: str, digest: str) -> str:
    """Return the key of a published receipt below a rollout's prefix, from the SHA-256 of its bytes."""
    return f"{rollout}{RECEIPTS}/{digest}"


def consumed_key(rollout: str, checkpoint_id: str) -> str:
    """Return the key of the marker that says which checkpoint a rollout's tokens went into."""
    return f"{rollout}{CONSUMED}/{segment(require_id(checkpoint_id, 'checkpoint id'))}"


def note_key(rollout: str, kind: str, model_call_id: str, body: bytes) -> str:
    """Return the key of a marker or refusal; ``""`` as call id means the whole rollout."""
    return f"{rollout}{kind}/{segment(model_call_id)}.{hashlib.sha256(body).hexdigest()[:16]}"


def tombstone_key(rollout: str) -> str:
    """Return the key of the object that retires a rollout."""
    return f"{rollout}{FENCES}/{TOMBSTONE}"


def drop_key(rollout: str, name: DropName) -> str:
    """Return the key of a drop-intent below a rollout's prefix."""
    return f"{rollout}{FENCES}/drop.{name.snapshot}.{name.consumer}"


def parse(key: str) -> Parts:
    """Split a rollout object's key. Raises ``Invalid`` for keys that are not of this format."""
    segments = key.split("/", _DEPTH - 1)
    if (
        len(segments) != _DEPTH
        or not all(segments)
        or not all(key.split("/"))
        or segments[0] not in FAMILIES
        or segments[2] == RUN_FOLDER
    ):
        raise Invalid("not an object key of this format", kind="foreign_key", key=key)
    return Parts(*segments)


def parse_staging_key(text: str) -> StagingKey | None:
    """Read a staging key; ``None`` if it is none of ours, so that no text can lead out of the run's staged rows."""
    rollout, _, rest = text.partition("/")
    name = parse_staged_name(rest)
    if name is None or not (_SEGMENT.fullmatch(rollout) and _SEGMENT.fullmatch(name.call)) or rollout == RUN_FOLDER:
        return None
    return StagingKey(rollout, name)
