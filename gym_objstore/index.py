# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What one listing of a rollout's tokens says, without reading any object.

State objects are everything below the rollout but its fences and its packs, which are copies. The *version* is their
number and the *snapshot id* the SHA-256 over their names, which carry content digests: equal ids mean equal contents.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gym_objstore.flow import Flow, scan
from gym_objstore.keys import FENCES, PACKS, TOMBSTONE
from gym_objstore.names import DropName, EntryName, NoteName, parse_drop_name, parse_entry_name, parse_note_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SNAPSHOT_DOMAIN = b"gym-objstore snapshot 1\n"


@dataclass(slots=True)
class Index:
    """One rollout's listing, sorted out. Calls are named by their segments; names are relative keys."""

    rollout: str
    state: list[str] = field(default_factory=list)
    entries: dict[str, list[EntryName]] = field(default_factory=dict)
    intents: set[str] = field(default_factory=set)
    markers: list[NoteName] = field(default_factory=list)
    refusals: set[str] = field(default_factory=set)
    foreign: list[str] = field(default_factory=list)
    packs: list[str] = field(default_factory=list)
    drops: list[DropName] = field(default_factory=list)
    tombstone: bool = False

    @property
    def version(self) -> int:
        """The number of state objects; it only grows until retirement."""
        return len(self.state)

    @property
    def snapshot_id(self) -> str:
        """The SHA-256 over the rollout's prefix and the sorted names of its state objects."""
        names = "\n".join([self.rollout, *self.state])
        return hashlib.sha256(_SNAPSHOT_DOMAIN + names.encode("ascii", "backslashreplace")).hexdigest()

    @property
    def conflicts(self) -> set[str]:
        """The calls for which more than one payload was stored."""
        return {call for call, names in self.entries.items() if len({name.digest for name in names}) > 1}

    @property
    def dangling(self) -> set[str]:
        """The calls that were admitted and left neither an entry nor a refusal."""
        return self.intents - self.entries.keys() - self.refusals

    @property
    def sound(self) -> list[EntryName]:
        """One name for each call with a single payload, in the order of the call's segment."""
        conflicts = self.conflicts
        return [names[0] for call, names in sorted(self.entries.items()) if call not in conflicts]

    def add(self, relative: str) -> None:
        """Sort one listed name in."""
        kind, _, name = relative.partition("/")
        if kind == FENCES:
            self._add_fence(name)
            return
        if kind == PACKS:
            self.packs.append(relative)
            return
        self.state.append(relative)
        if kind == "entries" and (entry := parse_entry_name(name)):
            self.entries.setdefault(entry.call, []).append(entry)
        elif kind == "intents" and name:
            self.intents.add(name)
        elif kind == "markers" and (note := parse_note_name(name)):
            self.markers.append(note)
        elif kind == "refusals" and (note := parse_note_name(name)):
            self.refusals.add(note.call)
        else:
            self.foreign.append(relative)

    def _add_fence(self, name: str) -> None:
        if name == TOMBSTONE:
            self.tombstone = True
        elif drop := parse_drop_name(name):
            self.drops.append(drop)


def index_keys(rollout: str, keys: Iterable[str]) -> Index:
    """Sort the listed keys of a rollout. Keys that end in ``/`` are other clients' folder marks, ignored."""
    index = Index(rollout)
    for key in sorted(keys):
        if not key.endswith("/"):
            index.add(key[len(rollout) :])
    return index


def read_index(rollout: str) -> Flow[Index]:
    """List a rollout: one request per thousand objects."""
    found: Sequence[tuple[str, int, float]] = yield from scan(rollout)
    return index_keys(rollout, (key for key, _, _ in found))
