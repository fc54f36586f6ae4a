# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Every object key of the format, built and parsed here and nowhere else.

``<family>/<run>/<rollout>/<kind>/<name>`` below the store's root. The family comes first because
lifecycle rules and access policies work by key prefix. A run's own objects live in its ``!run`` folder,
which no rollout's segment can be. Names end in fixed-width fields, so they parse from the right whatever
the id in front; they are ASCII, at most 200 bytes, and every listed prefix ends in ``/``.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from gym_objstore.errors import Invalid
from gym_objstore.ids import require_id, segment

FAMILIES = ("captures", "tokens", "staged", "ledger", "manifests")
FENCES = "fences"
TOMBSTONE = "tombstone"
RUN_FOLDER = "!run"
PACKS = "packs"
RECEIPTS = "receipts"
CONSUMED = "consumed"

FULL = "full"
"""The parent field of an entry that stores its whole prompt."""
UNSTAMPED = "none"
"""The fingerprint field of an entry that no request can continue."""

_DEPTH = 5
_ENTRY = re.compile(
    r"(?P<call>.+)\.(?P<parent>full|[0-9a-f]{12})\.(?P<fp>none|[0-9a-f]{16})\.(?P<sha>[0-9a-f]{64})\.(?P<fmt>[a-z0-9]{1,6})"
)
_NOTE = re.compile(r"(?P<call>.+)\.(?P<sha>[0-9a-f]{16})")
_ROW = re.compile(r"(?P<call>[^/]+)/(?P<fp>none|[0-9a-f]{16})\.(?P<sha>[0-9a-f]{64})")
_STAGED = re.compile(
    r"(?P<call>[^/]+)\.(?P<sha>[0-9a-f]{64})\.(?P<record>[1-9][0-9]{0,11})\.(?P<extras>0|[1-9][0-9]{0,11})\.(?P<fmt>[a-z0-9]{1,6})"
)
_CAPTURE = re.compile(r"(?P<order>[0-9]{16})\.(?P<call>.+)\.(?P<sha>[0-9a-f]{64})\.(?P<fmt>[a-z0-9]{1,6})")
_PACK = re.compile(r"packs/(?P<snapshot>[0-9a-f]{64})\.(?P<sha>[0-9a-f]{64})\.(?P<fmt>[a-z0-9]{1,6})")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SEGMENT = re.compile(r"[a-z0-9_!-][a-z0-9._!-]{0,95}")
_DROP = re.compile(r"drop\.(?P<snapshot>[0-9a-f]{64})\.(?P<consumer>[0-9a-f]{16})")


class Parts(NamedTuple):
    """The five segments of a rollout object's key; ``run``, ``rollout`` and ids in names stay segments."""

    family: str
    run: str
    rollout: str
    kind: str
    name: str


class EntryName(NamedTuple):
    """What the name of a token entry says without a read.

    ``call`` is the call's segment; ``parent`` what ``call_mark`` gives of the parent for an entry that
    stores only its prompt's new part, else ``FULL``; ``fingerprint`` the first 16 digits of
    the continuation fingerprint or ``UNSTAMPED``; ``digest`` the SHA-256 of the canonical record;
    ``format`` how the body is encoded.
    """

    call: str
    parent: str
    fingerprint: str
    digest: str
    format: str

    @property
    def text(self) -> str:
        """The object name itself."""
        return ".".join(self)


class CaptureName(NamedTuple):
    """The name of a capture, by which sorted keys are the durable order.

    ``order`` is when the call completed, in microseconds since the epoch, 16 digits; ``call`` the call's segment;
    ``digest`` the SHA-256 of the record's text; ``format`` how the body is encoded.
    """

    order: str
    call: str
    digest: str
    format: str

    @property
    def text(self) -> str:
        """The object name itself."""
        return ".".join(self)


class NoteName(NamedTuple):
    """The name of an incomplete marker or a refusal: the call's segment and a digest of its body."""

    call: str
    digest: str


class RowName(NamedTuple):
    """The name of a ledger row: its call's segment, the fingerprint as in ``EntryName``, the row's SHA-256."""

    call: str
    fingerprint: str
    digest: str

    @property
    def text(self) -> str:
        """The object name itself; a call's rows share a folder, so that one listing finds a second one."""
        return f"{self.call}/{self.fingerprint}.{self.digest}"


class StagedName(NamedTuple):
    """The name of a staged row: what a reader must know to ask for exactly its record, or its extras.

    ``call`` is the call's segment; ``digest`` the SHA-256 of the record's stored bytes, which cover everything
    else in the object; ``record_bytes`` and ``extras_bytes`` the sizes of the object's first two parts;
    ``format`` how they are encoded.
    """

    call: str
    digest: str
    record_bytes: int
    extras_bytes: int
    format: str

    @property
    def text(self) -> str:
        """The object name itself."""
        return ".".join(map(str, self))


class StagingKey(NamedTuple):
    """Where a staged row is within a run, as workers acknowledge it and manifests carry it."""

    rollout: str
    name: StagedName

    @property
    def text(self) -> str:
        """The staging key as it is sent."""
        return f"{self.rollout}/{self.name.text}"


class PackName(NamedTuple):
    """The name of a pack: the snapshot whose entries it holds, the SHA-256 of its text, how the body is encoded."""

    snapshot: str
    digest: str
    format: str


class DropName(NamedTuple):
    """The name of a drop-intent: the snapshot to be retired and the consumer that wants it."""

    snapshot: str
    consumer: str


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


def call_mark(call: str) -> str:
    """Return the 12 hex digits by which an entry's name points at the parent, from the parent's segment."""
    return hashlib.sha256(call.encode("ascii")).hexdigest()[:12]


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


def parse_entry_name(name: str) -> EntryName | None:
    """Read an entry's name; ``None`` if it is not one."""
    found = _ENTRY.fullmatch(name)
    return EntryName(*found.groups()) if found else None


def parse_capture_name(name: str) -> CaptureName | None:
    """Read a capture's name; ``None`` if it is not one."""
    found = _CAPTURE.fullmatch(name)
    return CaptureName(*found.groups()) if found else None


def parse_pack_name(relative: str) -> PackName | None:
    """Read a pack's name below a rollout's prefix; ``None`` if it is not one."""
    found = _PACK.fullmatch(relative)
    return PackName(*found.groups()) if found else None


def parse_note_name(name: str) -> NoteName | None:
    """Read a marker's or refusal's name; ``None`` if it is not one."""
    found = _NOTE.fullmatch(name)
    return NoteName(*found.groups()) if found else None


def parse_row_name(name: str) -> RowName | None:
    """Read a ledger row's name below ``rows/``; ``None`` if it is not one."""
    found = _ROW.fullmatch(name)
    return RowName(*found.groups()) if found else None


def parse_staged_name(name: str) -> StagedName | None:
    """Read a staged row's name; ``None`` if it is not one."""
    found = _STAGED.fullmatch(name)
    if found is None:
        return None
    call, digest, record, extras, extension = found.groups()
    return StagedName(call, digest, int(record), int(extras), extension)


def parse_staging_key(text: str) -> StagingKey | None:
    """Read a staging key; ``None`` if it is none of ours, so that no text can lead out of the run's staged rows."""
    rollout, _, rest = text.partition("/")
    name = parse_staged_name(rest)
    if name is None or not (_SEGMENT.fullmatch(rollout) and _SEGMENT.fullmatch(name.call)) or rollout == RUN_FOLDER:
        return None
    return StagingKey(rollout, name)


def parse_receipt_name(name: str) -> str | None:
    """Read a receipt's name, which is its digest; ``None`` if it is not one."""
    return name if _DIGEST.fullmatch(name) else None


def parse_drop_name(name: str) -> DropName | None:
    """Read a drop-intent's name; ``None`` if it is not one."""
    found = _DROP.fullmatch(name)
    return DropName(*found.groups()) if found else None
