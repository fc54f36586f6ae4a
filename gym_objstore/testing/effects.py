# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What an operation does to a bucket, in atomic effects, and the buckets that a play passes through.

Owns: how each operation splits into effects, and how their answers make up the operation's. Does not own:
in which order effects happen (``explorer``) and who asks for them (``actors``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from gym_objstore.errors import NotFound
from gym_objstore.flow import All, Compute, Delete, Find, Folders, Get, GetRange, Head, Page, Put, Scan
from gym_objstore.store import Meta, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gym_objstore.flow import Operation, Single

    SecondPage = Callable[[str], bool]


class Effect(NamedTuple):
    """One atomic effect: ``verb`` is ``put``, ``delete``, ``read``, ``head`` or ``list``.

    ``key`` is a prefix for ``list``, whose ``page`` is 0 or 1, or -1 for a listing that is atomic.
    """

    verb: str
    key: str
    body: bytes = b""
    page: int = -1

    @property
    def writes(self) -> bool:
        """Whether the effect can change anything."""
        return self.verb in ("put", "delete")

    def __str__(self) -> str:
        return f"{self.verb} {self.key}" + (f" (page {self.page + 1})" if self.page >= 0 else "")


Chain: TypeAlias = tuple[Effect, ...]
"""Effects that happen in this order."""


def effects_of(operation: Operation, *, paged: bool) -> tuple[Chain, ...]:
    """Return an operation's effects as chains, which happen in any order and in between each other."""
    if isinstance(operation, Page):
        return tuple(_page(operation, paged=paged))
    singles = operation.operations if isinstance(operation, All) else (operation,)
    return tuple(chain for single in singles for chain in _chains(single, paged=paged))


def _page(operation: Page, *, paged: bool) -> Iterator[Chain]:
    """Yield the one effect of a page, if there is such a page: with two of them, others act in between."""
    if operation.number <= int(paged):
        yield (Effect("list", operation.listing.prefix, page=operation.number if paged else -1),)


def _chains(single: Single, *, paged: bool) -> Iterator[Chain]:
    match single:
        case Put(key, body):
            yield (Effect("put", key, joined(body)),)
        case Get(key) | Find(key) | GetRange(key):
            yield (Effect("read", key),)
        case Head(key):
            yield (Effect("head", key),)
        case Scan(prefix) | Folders(prefix):
            yield tuple(Effect("list", prefix, page=page) for page in ((0, 1) if paged else (-1,)))
        case Delete(keys):
            yield from ((Effect("delete", key),) for key in keys)
        case Compute():
            return


def answer_of(operation: Operation, answers: Sequence[Sequence[Any]]) -> Any:
    """Return an operation's answer from those of its chains, or raise its first error in order."""
    if isinstance(operation, Page):
        return answers[0][0] if answers else None
    rest = iter(answers)
    if isinstance(operation, All):
        return tuple(_answer(single, rest) for single in operation.operations)
    return _answer(operation, rest)


def _answer(single: Single, rest: Iterator[Sequence[Any]]) -> Any:
    match single:
        case Compute(function, arguments):
            return function(*arguments)
        case Delete(keys):
            for _ in keys:
                next(rest)
            return None
        case Scan():
            return tuple(sorted(meta for page in next(rest) for meta in page))
        case Folders(prefix):
            below = (meta.key[len(prefix) :].partition("/") for page in next(rest) for meta in page)
            return tuple(sorted({name for name, slash, _ in below if slash}))
    (found,) = next(rest)
    match single:
        case Find(_, decode):
            return None if found is None else decode(found)
        case Get(key) | GetRange(key) if found is None:
            raise NotFound("no such object", key=key)
        case GetRange(_, start, length, decode):
            return decode(found[start : start + length])
    return found


class Buckets:
    """Every content that the bucket had so far, by number, and what each effect does to each."""

    def __init__(self, initial: Mapping[str, bytes], second_page: SecondPage | None) -> None:
        self._second_page = second_page
        self.contents: list[dict[str, bytes]] = []
        self.answers: list[Any] = []
        self._numbers: dict[frozenset[tuple[str, bytes]], int] = {}
        self._answer_numbers: dict[Any, int] = {}
        self._done: dict[tuple[int, Effect], tuple[int, int]] = {}
        self.first = self._number(dict(initial))

    def apply(self, bucket: int, effect: Effect) -> tuple[int, int]:
        """Return the numbers of the bucket after an effect and of the effect's answer."""
        done = self._done.get((bucket, effect))
        if done is None:
            content, answer = self._apply(self.contents[bucket], effect)
            number = self._answer_numbers.setdefault(answer, len(self.answers))
            if number == len(self.answers):
                self.answers.append(answer)
            done = self._done[bucket, effect] = (self._number(content), number)
        return done

    def _number(self, content: dict[str, bytes]) -> int:
        number = self._numbers.setdefault(frozenset(content.items()), len(self.contents))
        if number == len(self.contents):
            self.contents.append(content)
        return number

    def _apply(self, content: dict[str, bytes], effect: Effect) -> tuple[dict[str, bytes], Any]:
        key = effect.key
        match effect.verb:
            case "put":
                return {**content, key: effect.body}, None
            case "delete":
                return {other: body for other, body in content.items() if other != key}, None
            case "read":
                return content, content.get(key)
            case "head":
                return content, Meta(key, len(content[key]), 0.0) if key in content else None
        found = (one for one in content if one.startswith(key) and self._on(effect.page, one))
        return content, tuple(Meta(one, len(content[one]), 0.0) for one in sorted(found))

    def _on(self, page: int, key: str) -> bool:
        return self._second_page is None or page < 0 or self._second_page(key) == bool(page)
