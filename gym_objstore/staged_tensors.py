# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""One attachment's bytes: from bytes-like objects, numpy arrays and torch tensors, and back without copying.

Owns which values can be stored exactly and what each becomes: little-endian bytes in C order, under a type code of
the safetensors format. A type that the format has no code for is stored as plain bytes; ``origin`` brings it back.
Imports numpy and torch only to give back what they made. How attachments are laid out is for ``staged_attachments``.
"""

from __future__ import annotations

import mmap
import sys
from importlib import import_module
from math import prod
from types import ModuleType
from typing import Any, Final, NamedTuple

from gym_objstore.errors import Corrupt, Invalid, Unusable

CODES: Final = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
"""The codes that safetensors' own readers know; numpy, ml_dtypes and torch agree on the types' names."""

OPAQUE: Final = "U8"
"""The code of plain bytes, and of what has no code of its own."""

_EXOTIC_KINDS = "cmMSU"
_LONG_COMPLEX_BYTES = 32


class Tensor(NamedTuple):
    """An attachment as it is stored: type code, shape and bytes in C order, and what to give back.

    ``kind`` is ``bytes``, ``numpy`` or ``torch``; ``dtype`` and ``origin_shape`` are the original's.
    """

    code: str
    shape: tuple[int, ...]
    data: memoryview
    kind: str
    dtype: str
    origin_shape: tuple[int, ...]
    itemsize: int


def tensor_of(value: Any, where: str) -> Tensor:
    """Return an attachment as it is stored, copying only what does not lie in one piece of this machine's memory.

    Raises ``Invalid`` naming ``where`` for a value that could not be given back exactly: object and structured
    arrays, subclasses, sparse, quantized, nested and meta tensors, lists, scalars, text, ``None``.
    """
    if isinstance(value, (bytes, bytearray, memoryview, mmap.mmap)):
        return _of_bytes(value, where)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and type(value) in (numpy.ndarray, numpy.memmap):
        return _of_array(value, where, numpy)
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_torch(value, where, torch)
    raise _unstorable(value, where, "it is neither bytes, a numpy array, a torch tensor nor a mapping of them")


def value_of(tensor: Tensor) -> Any:
    """Return what was attached: a read-only view of the same bytes, or a tensor over them.

    Raises ``Unusable`` where the library that made it is not installed, ``Corrupt`` for a type it does not have.
    """
    if tensor.kind == "bytes":
        return tensor.data
    if tensor.kind not in ("numpy", "torch"):
        raise Corrupt(f"an attachment is of a kind this version cannot read, kind={tensor.kind}", kind="newer_format")
    made = _array if tensor.kind == "numpy" else _torch
    try:
        return made(tensor, _imported(tensor.kind))
    except Unusable:
        raise
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        reason = f"an attachment's bytes do not fit its type, dtype={tensor.dtype}, shape={tensor.origin_shape}"
        raise Corrupt(reason, kind="bad_attachment") from error


def _of_bytes(value: Any, where: str) -> Tensor:
    view = memoryview(value)
    if view.format not in ("B", "b", "c") or view.ndim != 1 or not view.c_contiguous:
        raise _unstorable(value, where, "a view of anything but single bytes in a row would lose its shape")
    data = view.cast("B").toreadonly()
    return Tensor(OPAQUE, (len(data),), data, "bytes", "", (len(data),), 1)


def _of_array(array: Any, where: str, numpy: ModuleType) -> Tensor:
    dtype = array.dtype
    code = CODES.get(dtype.name)
    exotic = dtype.kind in _EXOTIC_KINDS and dtype.itemsize > 0 and dtype.str[1:] != f"c{_LONG_COMPLEX_BYTES}"
    if code is None and not exotic:
        raise _unstorable(array, where, f"arrays of this type have no exact bytes, dtype={dtype}")
    origin = dtype.str if dtype.type.__module__ == "numpy" else dtype.name
    ordered = array.astype(dtype.newbyteorder("<")) if origin[0] == ">" else array
    data = numpy.ascontiguousarray(ordered).reshape(-1).view(numpy.uint8).data
    return _tensor(code, "numpy", origin, tuple(array.shape), data)


def _of_torch(tensor: Any, where: str, torch: ModuleType) -> Tensor:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise _unstorable(tensor, where, "a subclass may hold more than its elements")
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested or tensor.device.type == "meta":
        raise _unstorable(tensor, where, "only dense tensors with data can be stored")
    dense = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    # A tensor of one element counts as contiguous whatever its stride, but only stride 1 can be viewed as bytes.
    flat = dense.as_strided((dense.numel(),), (1,))
    data = flat.view(torch.uint8).numpy().data if dense.numel() else memoryview(b"")
    dtype = str(tensor.dtype).removeprefix("torch.")
    return _tensor(CODES.get(dtype), "torch", dtype, tuple(tensor.shape), data)


def _tensor(code: str | None, kind: str, dtype: str, shape: tuple[int, ...], data: memoryview) -> Tensor:
    count = prod(shape)
    itemsize = len(data) // count if count else 1
    stored = shape if code is not None else (len(data),)
    return Tensor(code or OPAQUE, stored, data.toreadonly(), kind, dtype, shape, itemsize)


def _array(tensor: Tensor, numpy: ModuleType) -> Any:
    named = tensor.dtype if tensor.dtype[:1] in "<>|" else getattr(_imported("ml_dtypes"), tensor.dtype)
    dtype = numpy.dtype(named)
    if dtype.hasobject:
        raise ValueError(dtype)
    if prod(tensor.origin_shape) * dtype.itemsize != len(tensor.data):
        raise ValueError(tensor.origin_shape)
    if tensor.dtype.startswith(">"):
        return numpy.ndarray(tensor.origin_shape, dtype.newbyteorder(), tensor.data).astype(dtype)
    return numpy.ndarray(tensor.origin_shape, dtype, tensor.data)


def _torch(tensor: Tensor, torch: ModuleType) -> Any:
    dtype = getattr(torch, tensor.dtype)
    if not tensor.data:
        if prod(tensor.origin_shape):
            raise ValueError(tensor.origin_shape)
        return torch.empty(tensor.origin_shape, dtype=dtype)
    try:
        flat = torch.from_dlpack(_imported("numpy").frombuffer(tensor.data, "u1"))
    except BufferError:  # numpy before 2.1 or torch before 2.9 do not hand on what is read-only
        flat = torch.frombuffer(bytearray(tensor.data), dtype=torch.uint8)
    return flat.view(dtype).reshape(tensor.origin_shape)


def _imported(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise Unusable(
            f"an attachment needs a package that is not installed here, package={name}",
            kind="missing_extra",
            hint=f"install {name}",
        ) from error


def _unstorable(value: Any, where: str, why: str) -> Invalid:
    reason = f"the attachment {where!r} cannot be stored, type={type(value).__name__}: {why}"
    return Invalid(reason, kind="bad_attachment", hint="convert it before staging the call")
