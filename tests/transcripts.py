# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Real agent conversations, read from the installed nemo-gym wheel, as sequences of model calls.

The wheel puts some 220 files ``*rollouts*.jsonl`` beside the ``nemo_gym`` package (about 1,000 rollouts, 30 MB,
half a second to read). Each line is one finished rollout: ``responses_create_params.input`` is what the agent was
given, ``response.output`` is everything that followed, model-authored items and tool results in one list.

``conversations()`` cuts that list back into the calls a model server would have seen. A call ends where a run of
model-authored items ends; its request is everything before the run, unchanged, as a harness would echo it::

    for talk in conversations():
        for call in talk.calls:
            await resolver.resolve(rollout_id, list(call.request_items))
            entry = TokenEntry(..., output_items=list(call.output_items))
            stamp_continuation(entry, list(call.request_items))

Only some rollouts carry real token ids (``call.tokens``); for the others invent a tokenization, any deterministic
one will do. ``talk.resolvable`` tells whether lineage can name one parent for each continuation: it is false where
the request already starts with a model's turn that nobody captured, or where two calls look alike to the
fingerprint (a turn of reasoning only, or an empty message). Such calls must resolve to nothing.

``message_lists()`` yields every list of messages found anywhere in those files, in whichever dialect.

This module reads the package's data only. It needs nemo-gym installed and raises ``ModuleNotFoundError`` if it is not.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

Item = dict[str, Any]

_FOLDERS = ("resources_servers", "responses_api_agents", "environments", "benchmarks")
_ROLELESS = ("function_call", "function_call_output", "reasoning")
_ARRAYS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
_TOKEN_FIELDS = {*_ARRAYS, "routed_experts"}


@dataclass(frozen=True, slots=True)
class Tokens:
    """The token arrays an engine really returned for one call."""

    prompt_token_ids: list[int]
    generation_token_ids: list[int]
    generation_log_probs: list[float]


@dataclass(frozen=True, slots=True)
class Call:
    """One model call: what was asked, what the model said, and its tokens where the file has them.

    Items are as the file has them, token arrays removed.
    """

    request_items: tuple[Item, ...]
    output_items: tuple[Item, ...]
    tokens: Tokens | None

    @property
    def continues(self) -> bool:
        """The request contains a model-authored turn, so this call has a parent."""
        return any(_authored(item) and item.get("type") != "reasoning" for item in self.request_items)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One rollout as its calls in order. ``source`` is ``<file>:<line>`` relative to site-packages."""

    source: str
    calls: tuple[Call, ...]

    @property
    def resolvable(self) -> bool:
        """The first call is a root and every call added something the fingerprint can see."""
        return not self.calls[0].continues and all(
            any(_says_something(item) for item in call.output_items) for call in self.calls
        )


@cache
def rollout_files() -> tuple[Path, ...]:
    """Return the transcript files of the installed wheel, sorted."""
    spec = importlib.util.find_spec("nemo_gym")
    if spec is None or spec.origin is None:
        msg = "nemo_gym is not installed; its wheel carries the transcripts"
        raise ModuleNotFoundError(msg, name="nemo_gym")
    root = Path(spec.origin).parent.parent
    return tuple(sorted(path for folder in _FOLDERS for path in (root / folder).rglob("*rollouts*.jsonl")))


def rows() -> Iterator[tuple[str, Item]]:
    """Yield ``(source, row)`` of each line that holds a JSON object; placeholder lines are passed over."""
    for path in rollout_files():
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if isinstance(row, dict):
                yield f"{path.parent.parent.name}/{path.name}:{number}", row


def conversations() -> Iterator[Conversation]:
    """Yield every rollout in which a model said something, multi-turn or not."""
    for source, row in rows():
        request, output = _items(row)
        calls = tuple(_calls(request, output))
        if calls:
            yield Conversation(source, calls)


def message_lists() -> Iterator[list[Item]]:
    """Yield every non-empty list of objects with a ``role`` or ``type``, at any depth of any row."""
    for _, row in rows():
        yield from _message_lists(row)


def _message_lists(value: Any) -> Iterator[list[Item]]:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, list) and value and all(isinstance(one, dict) and _is_message(one) for one in value):
        yield value
    for child in children:
        yield from _message_lists(child)


def _is_message(item: Item) -> bool:
    return isinstance(item.get("role"), str) or item.get("type") in _ROLELESS


def _items(row: Item) -> tuple[list[Item], list[Item]]:
    given = (row.get("responses_create_params") or {}).get("input") or []
    request = [{"role": "user", "content": given}] if isinstance(given, str) else given
    output = (row.get("response") or {}).get("output") or []
    if output and isinstance(output[-1], list):
        output = output[-1]  # the aviary agents log the whole transcript after every step; the last one is complete
    return request, [item for item in output if isinstance(item, dict)]


def _calls(request: list[Item], output: list[Item]) -> Iterator[Call]:
    history = [_plain(item) for item in request]
    run: list[Item] = []
    for item in [*output, {}]:
        if _authored(item):
            run.append(item)
            continue
        if run:
            said = tuple(_plain(one) for one in run)
            yield Call(tuple(history), said, _tokens(run))
            history.extend(said)
            run = []
        history.append(item)


def _authored(item: Item) -> bool:
    return item.get("role") == "assistant" or item.get("type") in {"function_call", "reasoning"}


def _says_something(item: Item) -> bool:
    return item.get("type") == "function_call" or bool(item.get("role") == "assistant" and _text(item))


def _text(item: Item) -> str:
    content = item.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text") or "") for part in content)


def _plain(item: Item) -> Item:
    return {key: value for key, value in item.items() if key not in _TOKEN_FIELDS}


def _tokens(run: list[Item]) -> Tokens | None:
    carriers = [item for item in run if item.get("generation_token_ids")]
    if len(carriers) != 1:
        return None  # several agents fill in empty arrays; only a single real set belongs to the call
    return Tokens(*(carriers[0][name] for name in _ARRAYS))
