# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Every exception this package raises on purpose.

::

    ObjstoreError
    ├── Invalid      (ValueError)       the caller's input or settings are wrong; nothing was changed
    ├── NotFound     (KeyError)         a named object, run or bucket does not exist
    ├── Conflict     (ValueError)       one identity, two different payloads
    ├── Retired      (RuntimeError)     the rollout is behind a tombstone
    ├── Corrupt      (ValueError)       stored bytes are not what their name promises
    ├── Unavailable  (ConnectionError)  the storage did not answer, or not in time; repeating is safe
    ├── Denied       (PermissionError)  the storage refused; whether the object exists is unknown
    └── Unusable     (RuntimeError)     this object cannot be used here (forked, closed, extra missing)

A class exists where a caller would act differently. ``kind`` tells the cases of one class apart for
machines; its values are only ever added to. Third-party exceptions are translated in the backend that
raised them, nowhere else.
"""

from __future__ import annotations

from typing import Any


class ObjstoreError(Exception):
    """The base of all errors of this package.

    ``kind`` is a stable code, ``key`` the object concerned (empty if none) and ``hint`` the next step
    for a person (empty if none). Errors survive pickling with all three.
    """

    def __init__(self, message: str, *, kind: str = "", key: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind or type(self).__name__.lower()
        self.key = key
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.message]
        if self.key:
            parts.append(f"key={self.key}")
        text = ", ".join(parts)
        return f"{text}; {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.kind, self.key, self.hint)


def _rebuild(cls: type[ObjstoreError], message: str, kind: str, key: str, hint: str) -> ObjstoreError:
    return cls(message, kind=kind, key=key, hint=hint)


class Invalid(ObjstoreError, ValueError):
    """The caller's input or settings are wrong. Nothing was read or written."""


class NotFound(ObjstoreError, KeyError):
    """A named object, run or bucket does not exist."""

    __str__ = ObjstoreError.__str__


class Conflict(ObjstoreError, ValueError):
    """One identity was used for two different payloads."""


class Retired(ObjstoreError, RuntimeError):
    """The rollout is retired: a tombstone stands until it is deleted."""


class Corrupt(ObjstoreError, ValueError):
    """Stored bytes are not what their name or digest promises."""


class Unavailable(ObjstoreError, ConnectionError):
    """The storage did not answer, or not in time. Repeating the operation is safe."""


class Denied(ObjstoreError, PermissionError):
    """The storage refused the operation. Whether the object exists is unknown."""


class Unusable(ObjstoreError, RuntimeError):
    """The object cannot be used here: a forked process, after close, or a missing extra."""
