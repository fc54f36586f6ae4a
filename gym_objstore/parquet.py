# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A run's calls as one Parquet file, a row each, for analysis. Needs the ``parquet`` extra.

Columns are the fields of ``ModelCallRecord`` below the rollout's id; null is unknown. Tool calls and, where asked for,
payloads are JSON texts. ``rollout_incomplete`` says that a capture of the rollout was lost, and a row without any
model fields whose ``unreadable`` is true that a capture is damaged.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from gym_objstore.errors import Corrupt, Unusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from gym_objstore.calls import ModelCallRecord
    from gym_objstore.reading import Rollout

FILE_NAME = "calls.parquet"

_TEXT = (
    "model_call_id",
    "response_id",
    "client_session_id",
    "model",
    "dialect",
    "response_status",
    "finish_reason",
    "response_source",
    "local_response_reason",
    "reasoning_content",
    "error_category",
)
_COUNTS = (
    "status_code",
    "upstream_status_code",
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "tokens_total",
    "cached_tokens",
    "cache_creation_tokens",
)
_NUMBERS = ("latency_total_ms", "latency_ttft_ms")
_TIMES = ("started_at", "completed_at")
_FLAGS = ("upstream_attempted", "cache_hit")
_PAYLOADS = ("request", "response")
_RAW = ("request_raw", "response_raw")

_GROUP_ROWS = 1_000
_GROUP_BYTES = 32 << 20
"""What is gathered in memory before a row group is written."""


class Written(NamedTuple):
    """What a file holds, as read back from it."""

    calls: int
    damaged_captures: int
    bytes: int


def write_calls(path: Path, rollouts: Iterable[Rollout], *, payloads: bool) -> Written:
    """Write the calls of rollouts, whole or not at all, and read them back.

    Returns when: the file is whole and its pages' checksums were verified. Repeating: replaces it.
    Raises ``Unusable`` without the extra, ``Corrupt`` if what is read back is not what was written, storage errors.
    """
    pyarrow = _pyarrow()
    schema = _schema(pyarrow, payloads=payloads)
    aside = path.with_name(f".{path.name}.part")
    aside.unlink(missing_ok=True)  # left by a writer that was killed; or a link, which must not be followed
    written = 0
    try:
        with pyarrow.parquet.ParquetWriter(aside, schema, compression="zstd", write_page_checksum=True) as file:
            for group in _groups(_rows(rollouts, payloads=payloads)):
                file.write_table(pyarrow.Table.from_pylist(group, schema))
                written += len(group)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    found = _read_back(pyarrow, path)
    if found.calls != written:
        msg = f"the file does not hold what was written, file={path}, calls={found.calls}, written={written}"
        raise Corrupt(msg, kind="not_verified")
    return found


def _read_back(pyarrow: Any, path: Path) -> Written:
    calls = damaged = 0
    try:
        with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches():
                calls += batch.num_rows
                damaged += batch.column("unreadable").to_pylist().count(True)
    except OSError as error:
        raise Corrupt(f"the file cannot be read back: {error}, file={path}", kind="not_verified") from error
    return Written(calls, damaged, path.stat().st_size)


def _pyarrow() -> Any:
    try:
        import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        hint = "pip install 'gym-objstore[parquet]'"
        raise Unusable("writing Parquet needs pyarrow", kind="missing_extra", hint=hint) from error
    return import_module("pyarrow")


def _schema(pyarrow: Any, *, payloads: bool) -> Any:
    text, number = pyarrow.string(), pyarrow.float64()
    fields = [
        ("rollout_id", text),
        ("rollout_incomplete", pyarrow.bool_()),
        ("call_index", pyarrow.int64()),
        ("unreadable", pyarrow.bool_()),
        ("model_server", text),
        *((name, text) for name in _TEXT),
        *((name, pyarrow.int64()) for name in _COUNTS),
        *((name, number) for name in _NUMBERS),
        *((name, pyarrow.timestamp("us", tz="UTC")) for name in _TIMES),
        *((name, pyarrow.bool_()) for name in _FLAGS),
        ("tool_calls", text),
        *((name, pyarrow.large_string()) for name in (*_PAYLOADS, *_RAW) if payloads),
    ]
    return pyarrow.schema(fields)


def _rows(rollouts: Iterable[Rollout], *, payloads: bool) -> Iterator[dict[str, Any]]:
    for rollout in rollouts:
        for call in rollout.calls():
            yield {
                "rollout_id": rollout.rollout_id,
                "rollout_incomplete": rollout.incomplete,
                "call_index": call.call_index,
                "unreadable": call.record is None,
                **({} if call.record is None else _fields(call.record, payloads=payloads)),
            }


def _fields(record: ModelCallRecord, *, payloads: bool) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(record, name) for name in (*_TEXT, *_NUMBERS, *_FLAGS)}
    row |= {name: _int64(getattr(record, name)) for name in _COUNTS}
    row |= {name: _microseconds(getattr(record, name)) for name in _TIMES}
    row["model_server"] = record.model_ref.name if record.model_ref else None
    row["tool_calls"] = _json(record.tool_calls)
    if payloads:
        row |= {name: _json(getattr(record, name)) for name in _PAYLOADS}
        row |= {name: getattr(record, name) for name in _RAW}
    return row


def _groups(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    group: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(group) >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _json(value: Any) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


def _int64(value: int | None) -> int | None:
    """Return a count; None for one that no column holds."""
    return value if value is not None and -(2**63) <= value < 2**63 else None


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None or not abs(seconds) < 9e12 else int(seconds * 1e6)  # noqa: PLR2004 - int64 holds it
