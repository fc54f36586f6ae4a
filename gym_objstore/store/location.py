# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a store url names: a scheme, a bucket and a prefix in it. Nothing is opened here."""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from gym_objstore.errors import Invalid
from gym_objstore.store import check_prefix

CLOUDS = ("s3", "gs", "az")
"""Schemes of object storage proper, whose host part is a bucket or container."""

_EXAMPLES = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///folder or memory://name"
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_PASSWORD = re.compile(r"[^/]*:[^/]*@")


class Location(NamedTuple):
    """Where a store's root is.

    ``prefix`` is ``""`` or ends in ``/``. A folder has no bucket and its absolute path as prefix; a place of
    a scheme that is none of ours has all that follows ``://`` as prefix.
    """

    scheme: str
    bucket: str
    prefix: str

    @property
    def url(self) -> str:
        """The location as text, always the same for the same place."""
        if self.scheme == "file":
            return f"file://{quote(self.prefix[:-1])}"
        return f"{self.scheme}://{'/'.join(filter(None, (self.bucket, self.prefix[:-1])))}"


def parse_url(url: object) -> Location:
    """Read a store url. Raises ``Invalid`` that says what is wrong with it and gives examples."""
    found = _URL.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        raise _bad(url, "not a store url")
    scheme, rest = found.groups()
    if not rest.isprintable() or _PASSWORD.match(rest):
        raise _bad(url, "a store url contains only printable text and no password")
    if scheme == "file":
        return Location(scheme, "", _folder(url, unquote(rest)))
    if scheme in ("http", "https"):
        raise _bad(url, "a web address is no store url: write s3://bucket and pass the address as endpoint=")
    if scheme in CLOUDS:
        return _cloud(url, scheme, rest)
    if not rest.strip("/") and scheme != "memory":
        raise _bad(url, "nothing follows the scheme")
    return Location(scheme, "", f"{rest.rstrip('/')}/")


def _folder(url: object, path: str) -> str:
    if not path.startswith("/") or not path.strip("/") or not path.isprintable():
        raise _bad(url, "a file url needs the absolute path of a folder")
    return f"/{os.path.normpath(path).lstrip('/')}/"


def _cloud(url: object, scheme: str, rest: str) -> Location:
    bucket, _, prefix = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise _bad(url, "no bucket has such a name")
    try:
        return Location(scheme, bucket, check_prefix(f"{prefix.removesuffix('/')}/" if prefix else ""))
    except Invalid:
        raise _bad(url, "what follows the bucket is no usable prefix") from None


def _bad(url: object, why: str) -> Invalid:
    """Say what is wrong with a url, which is not repeated where it may contain a password."""
    shown = "***" if "@" in str(url) else f"{url!r:.200}"
    return Invalid(f"{why}, url={shown}", kind="bad_url", hint=f"write {_EXAMPLES}")
