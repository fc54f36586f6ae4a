# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What the names of objects say, built and parsed here and nowhere else; where objects are is for ``keys``.

Names end in fixed-width fields, so they parse from the right whatever the id in front; they are ASCII, at most
200 bytes. A parser returns ``None`` for a name that is none of its kind.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

FULL = "full"
"""The parent field of an entry that stores its whole prompt."""
UNSTAMPED = "none"
"""The fingerprint field of an entry that no request can continue."""

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
_DROP = re.compile(r"drop\.(?P<snapshot>[0-9a-f]{64})\.(?P<consumer>[0-9a-f]{16})")


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


class PackName(NamedTuple):
    """The name of a pack: the snapshot whose entries it holds, the SHA-256 of its text, how the body is encoded."""

    snapshot: str
    digest: str
    format: str


class DropName(NamedTuple):
    """The name of a drop-intent: the snapshot to be retired and the consumer that wants it."""

    snapshot: str
    consumer: str


def call_mark(call: str) -> str:
    """Return the 12 hex digits by which an entry's name points at the parent, from the parent's segment."""
    return hashlib.sha256(call.encode("ascii")).hexdigest()[:12]


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


def parse_receipt_name(name: str) -> str | None:
    """Read a receipt's name, which is its digest; ``None`` if it is not one."""
    return name if _DIGEST.fullmatch(name) else None


def parse_drop_name(name: str) -> DropName | None:
    """Read a drop-intent's name; ``None`` if it is not one."""
    found = _DROP.fullmatch(name)
    return DropName(*found.groups()) if found else None
