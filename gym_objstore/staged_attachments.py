# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The attachments of one staged row as a safetensors file, which any safetensors reader opens.

Owns its layout: names are JSON pointers (RFC 6901) into the nested mapping that was given, buffers are ordered by
item size so that each begins aligned, and the metadata keeps order, origin and SHA-256 of each. Whoever knows the
header's digest knows every byte. docs/decisions/0003-staged-row-container.md says why. Never joins buffers.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from gym_objstore.digests import canonical_json
from gym_objstore.errors import Corrupt, Invalid
from gym_objstore.staged_tensors import Tensor, tensor_of, value_of

METADATA: Final = "gym_objstore"
"""The key in the file's metadata under which the origins are."""

_ALIGNMENT = 64
_SIZE = struct.Struct("<Q")


class Container(NamedTuple):
    """A file ready to be written: its header, the buffers that follow, and the header's digest."""

    header: bytes
    buffers: tuple[memoryview, ...]
    digest: str

    @property
    def size(self) -> int:
        """The bytes of the whole file."""
        return len(self.header) + sum(map(len, self.buffers))


def pack(attachments: Mapping[str, Any]) -> Container | None:
    """Return the file of a nested mapping of attachments, None if it is empty; bytes are hashed, not copied.

    Raises ``Invalid`` naming the first attachment that cannot be stored exactly.
    """
    if not isinstance(attachments, Mapping):
        reason = f"attachments must be a mapping of names to values, type={type(attachments).__name__}"
        raise Invalid(reason, kind="bad_attachment")
    try:
        leaves = list(_flatten(attachments, ""))
    except RecursionError:
        raise Invalid("attachments are nested too deeply or contain themselves", kind="bad_attachment") from None
    if not leaves:
        return None
    tensors = {path: tensor for path, tensor in leaves if tensor is not None}
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))
    origins = [_origin(path, tensor) for path, tensor in leaves]
    header = {"__metadata__": {METADATA: canonical_json(origins).decode()}, **dict(_described(ordered))}
    text = canonical_json(header)
    padded = text.ljust(len(text) + -(len(text) + _SIZE.size) % _ALIGNMENT)
    whole = _SIZE.pack(len(padded)) + padded
    return Container(whole, tuple(tensor.data for _, tensor in ordered if tensor.data), _sha256(whole))


def unpack(body: bytes, header_bytes: int, digest: str) -> dict[str, Any]:
    """Return the attachments of a file as they were given, over the file's own bytes.

    Raises ``Corrupt`` for a file that is not the one whose header has this digest, ``Unusable`` where the library
    that made an attachment is not installed.
    """
    return _read(body, header_bytes, digest, _value)


def verify(body: bytes, header_bytes: int, digest: str) -> None:
    """Raise ``Corrupt`` unless a file is the one whose header has this digest, to the byte; needs no library."""
    _read(body, header_bytes, digest, _data)


def _read(body: bytes, header_bytes: int, digest: str, value: Callable[..., Any]) -> dict[str, Any]:
    if _sha256(body[:header_bytes]) != digest:
        raise Corrupt("the header of the attachments is damaged")
    try:
        header = orjson.loads(body[_SIZE.size : header_bytes])
        origins = orjson.loads(header["__metadata__"][METADATA])
        found: dict[str, Any] = {}
        view = memoryview(body)[header_bytes:]
        for origin in origins:
            read = {} if origin["kind"] == "mapping" else value(origin, header.get(origin["path"]), view)
            _insert(found, origin["path"], read)
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, Corrupt):
            raise
        raise Corrupt("the header of the attachments cannot be read", kind="bad_attachment") from error
    return found


def _sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def _flatten(mapping: Mapping[Any, Any], above: str) -> Iterator[tuple[str, Tensor | None]]:
    """Yield every attachment by its pointer; None stands for a mapping without any."""
    if not mapping and above:
        yield above, None
    for key, value in mapping.items():
        if not isinstance(key, str):
            reason = f"the attachments at {above or '/'!r} have a key that is no text, type={type(key).__name__}"
            raise Invalid(reason, kind="bad_attachment", hint="name each attachment")
        path = f"{above}/{key.replace('~', '~0').replace('/', '~1')}"
        if isinstance(value, Mapping):
            yield from _flatten(value, path)
        else:
            yield path, tensor_of(value, path)


def _origin(path: str, tensor: Tensor | None) -> dict[str, Any]:
    if tensor is None:
        return {"path": path, "kind": "mapping"}
    return {
        "path": path,
        "kind": tensor.kind,
        "dtype": tensor.dtype,
        "shape": tensor.origin_shape,
        "sha256": _sha256(tensor.data),
    }


def _described(tensors: list[tuple[str, Tensor]]) -> Iterator[tuple[str, dict[str, Any]]]:
    start = 0
    for path, tensor in tensors:
        end = start + len(tensor.data)
        yield path, {"dtype": tensor.code, "shape": tensor.shape, "data_offsets": (start, end)}
        start = end


def _data(origin: dict[str, Any], described: dict[str, Any] | None, view: memoryview) -> memoryview:
    """Return the verified bytes of an attachment."""
    path = origin["path"]
    if described is None:
        raise Corrupt(f"the attachment {path!r} is not in its file", kind="bad_attachment")
    start, end = described["data_offsets"]
    data = view[start:end]
    if len(data) != end - start or _sha256(data) != origin["sha256"]:
        raise Corrupt(f"the bytes of the attachment {path!r} are damaged")
    return data


def _value(origin: dict[str, Any], described: dict[str, Any] | None, view: memoryview) -> Any:
    data = _data(origin, described, view)
    shape = tuple(origin["shape"])
    if described is None or not all(type(size) is int and size >= 0 for size in shape):
        raise Corrupt(f"the attachment {origin['path']!r} has no shape", kind="bad_attachment")
    return value_of(Tensor(described["dtype"], shape, data, origin["kind"], origin["dtype"], shape, 0))


def _insert(found: dict[str, Any], path: str, value: Any) -> None:
    *above, last = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    for part in above:
        found = found.setdefault(part, {})
    found[last] = value
