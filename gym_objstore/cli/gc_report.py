# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The report of ``gc``: a line that says by which policy it was made and of which store, then one for each object."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from gym_objstore.errors import Invalid, ObjstoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from gym_objstore.garbage import Policy
    from gym_objstore.store.marks import Marks

FORMAT = 1


class Report(NamedTuple):
    """A report that was read: of its objects only hashes are kept."""

    runs: tuple[str, ...]
    policy: Policy
    reported: Marks


@contextmanager
def writing_report(file: Path, url: str, runs: Sequence[str], policy: Policy) -> Iterator[Callable[[Any], None]]:
    """Write a report; it stands under its name only when it is whole."""
    partial = file.with_name(f"{file.name}.part")
    head = {"gc_report": FORMAT, "url": url, "runs": runs, "policy": policy._asdict()}
    try:
        with partial.open("wb") as lines:

            def write(document: Any) -> None:
                lines.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))

            write(head)
            yield write
        partial.replace(file)
    except OSError as error:
        if isinstance(error, ObjstoreError):  # some are both
            raise
        raise Invalid(f"the report cannot be written, file={file}, error={error}", kind="bad_report") from error
    finally:
        partial.unlink(missing_ok=True)


def read_report(file: Path, url: str) -> Report:
    """Read a report of this store. Raises ``Invalid`` for anything else, before anything was changed."""
    from gym_objstore.garbage import Policy, named
    from gym_objstore.store.marks import Marks

    reported = Marks()
    try:
        with file.open("rb") as lines:
            head = orjson.loads(next(lines, b""))
            if head["gc_report"] != FORMAT:
                raise Invalid(f"the report is of another version, file={file}", kind="bad_report")
            for line in lines:
                one = orjson.loads(line)
                reported.add(named(one["reason"], one["key"]))
        report = Report(tuple(head["runs"]), Policy(**head["policy"]), reported)
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, Invalid):
            raise
        raise Invalid(f"the report cannot be read, file={file}, error={error!r}", kind="bad_report") from error
    if head["url"] != url:
        reason = f"the report is of another store, file={file}, report={head['url']}, store={url}"
        raise Invalid(reason, kind="bad_report", hint="pass the url that the report was made with")
    return report
