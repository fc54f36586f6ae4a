# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Token counts out of the usage objects of the three API dialects, for ``calls``.

What a provider did not say is ``None``, never zero. A count is a non-negative integer; anything else in its
place counts as not said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Usage(NamedTuple):
    """The token counts of one call.

    ``tokens_in`` is the size of the whole prompt, read from or written to a cache included, whatever it cost.
    ``cached_tokens`` were read from a cache, ``cache_creation_tokens`` written to one.
    """

    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_reasoning: int | None = None
    tokens_total: int | None = None
    cache_hit: bool | None = None
    cached_tokens: int | None = None
    cache_creation_tokens: int | None = None


def usage_of(usage: Any) -> Usage:
    """Return the counts of a usage object; all unknown if it is none."""
    if not isinstance(usage, Mapping):
        return Usage()
    tokens_in = _prompt_size(usage)
    tokens_out = _count(usage, "output_tokens", "completion_tokens")
    total = _count(usage, "total_tokens")
    if total is None and tokens_in is not None and tokens_out is not None:
        total = tokens_in + tokens_out
    cached = _cached(usage)
    return Usage(
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        tokens_reasoning=_reasoning(usage),
        tokens_total=total,
        cache_hit=None if cached is None else cached > 0,
        cached_tokens=cached,
        cache_creation_tokens=_count(usage, "cache_creation_input_tokens"),
    )


def _prompt_size(usage: Mapping[str, Any]) -> int | None:
    """Add Anthropic's cached tokens, which its ``input_tokens`` leaves out; OpenAI's counts include them."""
    size = _count(usage, "input_tokens", "prompt_tokens")
    beside = [_count(usage, name) for name in ("cache_read_input_tokens", "cache_creation_input_tokens")]
    cached = sum(count or 0 for count in beside)
    if size is None and cached == 0:
        return None
    return (size or 0) + cached


def _reasoning(usage: Mapping[str, Any]) -> int | None:
    for details in _details(usage, "output_tokens_details", "completion_tokens_details"):
        count = _count(details, "reasoning_tokens")
        if count is not None:
            return count
    return _count(usage, "reasoning_output_tokens")


def _cached(usage: Mapping[str, Any]) -> int | None:
    for details in _details(usage, "prompt_tokens_details", "input_tokens_details"):
        count = _count(details, "cached_tokens", "cached_input_tokens")
        if count is not None:
            return count
    return _count(usage, "cache_read_input_tokens", "cached_input_tokens")


def _details(usage: Mapping[str, Any], *names: str) -> list[Mapping[str, Any]]:
    return [usage[name] for name in names if isinstance(usage.get(name), Mapping)]


def _count(fields: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of the fields that holds a count. ``True`` is no count."""
    for name in names:
        value = fields.get(name)
        if type(value) is int and value >= 0:
            return value
    return None
