# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a rollout's files say, line by line, as the objects that an import leaves in the bucket."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from gym_objstore import captures, gym_folder, importing, ledger, tokens
from gym_objstore.codec import LIMIT, parse
from gym_objstore.errors import Corrupt, Invalid, ObjstoreError
from gym_objstore.gym_rows import is_failure, is_staged, parse_row
from gym_objstore.reasons import FailureReason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gym_objstore.gym_folder import FileLine
    from gym_objstore.importing import Piece


class RolloutFiles(NamedTuple):
    """One rollout's files by kind."""

    run_id: str
    rollout_id: str
    files: dict[str, Path]

    def families(self) -> tuple[str, ...]:
        """Return the families that the files are of."""
        kinds = {kind.split(".")[1] for kind in self.files}
        named = {"capture": captures.FAMILY, "tokens": tokens.FAMILY, "lineage": ledger.FAMILY}
        return tuple(family for kind, family in named.items() if kind in kinds)


def pieces(family: str, source: RolloutFiles, seen: Counter[str]) -> Iterator[Piece]:
    """Yield what the files say of a family, in the order in which it is to be stored; count what is remarkable.

    Counts: ``lines``, ``damaged_captures``, ``unfinished_lines``, ``without_counterpart`` (rows of lineage alone) and
    ``retired``. Raises ``Invalid`` naming the file and the line of what cannot be imported.
    """
    read = {captures.FAMILY: _captures, tokens.FAMILY: _tokens, ledger.FAMILY: _ledger}[family]
    return read(source, seen)


def _captures(source: RolloutFiles, seen: Counter[str]) -> Iterator[Piece]:
    if gym_folder.CAPTURES_INCOMPLETE in source.files:
        yield importing.capture_marker(source.run_id, source.rollout_id)
    if path := source.files.get(gym_folder.CAPTURES):
        yield from importing.capture_pieces(source.run_id, source.rollout_id, _texts(path, seen))


def _texts(path: Path, seen: Counter[str]) -> Iterator[bytes]:
    for line in gym_folder.read_lines(path):
        with _located(path, line.number):
            if len(line.text) > LIMIT:
                raise Invalid(f"the line is too long to be stored, bytes={len(line.text)}, limit={LIMIT}")
        seen.update(lines=1, unfinished_lines=int(not line.ended), damaged_captures=int(not _is_record(line.text)))
        yield line.text


def _tokens(source: RolloutFiles, seen: Counter[str]) -> Iterator[Piece]:
    """Yield intents and markers before entries: so no reader takes a part of the entries for all of them."""
    place = (source.run_id, source.rollout_id)
    state = _state(source.files.get(gym_folder.STATE))
    if state.get("retired"):
        seen["retired"] += 1
        yield importing.fence(tokens.FAMILY, *place)
        return
    path = source.files.get(gym_folder.TOKENS)
    intents = [call for call in _calls(source.files.get(gym_folder.INTENTS)) if call]
    for call in dict.fromkeys(
        [*intents, *(call for line in _whole_lines(path, Counter()) if (call := _call_in(line)))]
    ):
        yield importing.intent_piece(*place, call)
    marks = _calls(source.files.get(gym_folder.TOKENS_INCOMPLETE))
    # A conflict sets the state alone, and Gym does not name its call.
    for number, call in enumerate(marks or ([""] if state.get("incomplete") else [])):
        yield importing.token_marker(*place, call, number)
    for line in _whole_lines(path, seen):
        seen["lines"] += 1
        with _located(path, line.number):
            yield importing.entry_piece(*place, line.text)


def _ledger(source: RolloutFiles, seen: Counter[str]) -> Iterator[Piece]:
    place = (source.run_id, source.rollout_id)
    if gym_folder.LEDGER_RETIRED in source.files:
        seen["retired"] += 1
        yield importing.fence(ledger.FAMILY, *place)
        return
    path = source.files[gym_folder.LEDGER]
    for line in _whole_lines(path, seen):
        seen["lines"] += 1
        with _located(path, line.number):
            row = parse_row(line.text)
            if not (is_failure(row) or is_staged(row)):
                seen["without_counterpart"] += 1
                continue
            yield importing.row_piece(*place, row)
    if seen["unfinished_lines"]:
        # The call was staged and its row is lost: nobody may train on the rollout.
        yield importing.failure_piece(*place, "unknown", FailureReason.INVALID_MANIFEST_ROW)


def _whole_lines(path: Path | None, seen: Counter[str]) -> Iterator[FileLine]:
    """Yield a file's lines but for a last one that was never finished, and so never acknowledged."""
    for line in gym_folder.read_lines(path) if path else ():
        if line.last and not _is_json(line.text):
            seen["unfinished_lines"] += 1
        else:
            yield line


def _calls(path: Path | None) -> list[str]:
    """Return the call ids of a file with one a line; an empty line is an unnamed call."""
    if path is None:
        return []
    found = []
    for number, line in enumerate(path.read_bytes().removesuffix(b"\n").split(b"\n"), start=1):
        with _located(path, number):
            found.append(line.strip().decode())
    return found


def _state(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    with _located(path, 1):
        return parse(path.read_bytes().strip())


def _call_in(line: FileLine) -> str:
    """Return the call an entry is of; nothing for what is no entry, which is refused when its turn comes."""
    try:
        call = orjson.loads(line.text)["model_call_id"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""
    return call if isinstance(call, str) else ""


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _is_record(text: bytes) -> bool:
    try:
        parse(text.strip())
    except Corrupt:
        return False
    return True


@contextmanager
def _located(path: Path | None, number: int) -> Iterator[None]:
    """Say of an error in a file's line where it is and what to do."""
    try:
        yield
    except (ObjstoreError, UnicodeDecodeError) as error:
        said = error.message if isinstance(error, ObjstoreError) else f"not UTF-8: {error}"
        kind = error.kind if isinstance(error, ObjstoreError) else "not_utf8"
        hint = "repair or remove the line, or move the files of its rollout away"
        raise Invalid(f"{said}, file={path}, line={number}", kind=kind, hint=hint) from error
