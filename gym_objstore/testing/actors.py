# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Actors for the explorer: flows with a log, each turned into an automaton over the answers that it gets.

Owns: how an actor goes on after an answer or without one. A generator cannot be copied, so every point is
reached by playing the actor again from its recorded answers. Does not own: the bucket, and whose turn it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from gym_objstore.errors import ObjstoreError, Unavailable
from gym_objstore.flow import All, Flow, Operation
from gym_objstore.testing.effects import Chain, Effect, answer_of, effects_of

T = TypeVar("T")

STOPPED = 0
"""The number of the point where an actor does nothing more: it has finished or crashed."""

RAISED, BROKE = "raised", "broke"
"""What an actor says when it ends in one of this package's errors, and in any other."""


class Event(NamedTuple):
    """Something that an actor says: what it calls or was answered, and a value for the rest."""

    actor: str
    what: str
    value: Hashable = None


class Log:
    """Where an actor says what it asks for and what it was told.

    A call is entered with its first effect and an answer with its last, so that an entry before another
    means that the one was over before the other began.
    """

    def __init__(self, actor: str) -> None:
        self._actor = actor
        self._told: list[Event] = []
        self._asked: list[Event] = []

    def called(self, what: str, value: Hashable = None) -> None:
        """Say that what follows is this call."""
        self._asked.append(Event(self._actor, what, value))

    def answered(self, what: str, value: Hashable = None) -> None:
        """Say what the effects so far have led to."""
        (self._asked or self._told).append(Event(self._actor, what, value))

    def take(self) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
        """Return and forget what was told, and what waits for an effect."""
        taken = tuple(self._told), tuple(self._asked)
        self._told.clear()
        self._asked.clear()
        return taken


class Actor(NamedTuple):
    """A name and what its bearer does. ``play`` must do the same again when it gets the same answers."""

    name: str
    play: Callable[[Log], Flow[object]]


def repeating(flow: Callable[[], Flow[T]]) -> Flow[T]:
    """Play a flow, and again for as long as the storage does not answer, as a caller does."""
    while True:
        try:
            return (yield from flow())
        except Unavailable:
            continue


class Step(NamedTuple):
    """Where an answer leads an actor: to a point, and to what it enters into the log on the way."""

    point: int
    events: tuple[Event, ...] = ()


class Reply(NamedTuple):
    """What an operation is answered: a value, or an error that is raised in the flow."""

    value: Any = None
    error: Exception | None = None

    def give(self, flow: Flow[object]) -> Operation:
        """Return the operation that the flow asks for next."""
        return flow.send(self.value) if self.error is None else flow.throw(self.error.with_traceback(None))


@dataclass(frozen=True, slots=True)
class Point:
    """An actor in the middle of an operation, which began at the point of that number.

    ``done`` has the numbers of each chain's answers so far, ``asked`` what is entered with the next effect.
    """

    began: int = STOPPED
    history: tuple[Reply, ...] = ()
    operation: Operation = All(())
    chains: tuple[Chain, ...] = ()
    done: tuple[tuple[int, ...], ...] = ()
    asked: tuple[Event, ...] = ()
    ready: tuple[tuple[int, Effect], ...] = field(init=False)
    last: bool = field(init=False)
    """Whether the next effect is the operation's last."""

    def __post_init__(self) -> None:
        pairs = list(zip(self.chains, self.done, strict=True))
        ready = tuple((n, chain[len(done)]) for n, (chain, done) in enumerate(pairs) if len(done) < len(chain))
        object.__setattr__(self, "ready", ready)
        object.__setattr__(self, "last", sum(len(chain) - len(done) for chain, done in pairs) == 1)


class Script:
    """One actor as an automaton. ``values`` are the answers by number, shared with the bucket."""

    def __init__(self, actor: Actor, values: Sequence[Any], *, paged: bool) -> None:
        self._actor, self._values, self._paged = actor, values, paged
        self._inside: dict[tuple[int, tuple[tuple[int, ...], ...]], int] = {}
        self._steps: dict[tuple[int, int, int], Step] = {}
        self._unanswered: dict[int, Step] = {}
        self.points = [Point()]
        self.first = self._reach(())

    def answered(self, number: int, chain: int, answer: int) -> Step:
        """Go on from a point after the next effect of a chain was answered."""
        key = number, chain, answer
        if key not in self._steps:
            self._steps[key] = self._answered(self.points[number], chain, answer)
        return self._steps[key]

    def unanswered(self, number: int) -> Step:
        """Go on from a point after the storage did not answer the operation."""
        if number not in self._unanswered:
            lost = Reply(error=Unavailable("no answer came"))
            self._unanswered[number] = self._go_on(self.points[number], lost)
        return self._unanswered[number]

    def _answered(self, point: Point, chain: int, answer: int) -> Step:
        done = (*point.done[:chain], (*point.done[chain], answer), *point.done[chain + 1 :])
        if point.last:
            answers = [tuple(self._values[one] for one in numbers) for numbers in done]
            return self._go_on(point, _reply(point.operation, answers))
        inside = point.began, done
        if inside not in self._inside:
            self._inside[inside] = self._add(replace(point, done=done, asked=()))
        return Step(self._inside[inside], point.asked)

    def _go_on(self, point: Point, reply: Reply) -> Step:
        step = self._reach((*point.history, reply))
        return Step(step.point, (*point.asked, *step.events))

    def _reach(self, history: tuple[Reply, ...]) -> Step:
        """Play the actor from its start; the step has what it says after the last reply."""
        log = Log(self._actor.name)
        flow = self._actor.play(log)
        try:
            operation = next(flow)
            for reply in history:
                log.take()
                operation = reply.give(flow)
            while not (chains := effects_of(operation, paged=self._paged)):
                history = (*history, _reply(operation, ()))
                operation = history[-1].give(flow)
        except StopIteration:
            return _stop(log)
        except ObjstoreError as error:
            return _stop(log, RAISED, type(error).__name__)
        except Exception as error:  # noqa: BLE001 - reported with its schedule
            return _stop(log, BROKE, repr(error))
        told, asked = log.take()
        return Step(self._add(Point(len(self.points), history, operation, chains, ((),) * len(chains), asked)), told)

    def _add(self, point: Point) -> int:
        self.points.append(point)
        return len(self.points) - 1


def _stop(log: Log, *last_words: str) -> Step:
    if last_words:
        log.answered(*last_words)
    told, asked = log.take()
    return Step(STOPPED, (*told, *asked))


def _reply(operation: Operation, answers: Sequence[Sequence[Any]]) -> Reply:
    try:
        return Reply(answer_of(operation, answers))
    except Exception as error:  # noqa: BLE001 - the flow decides what to do with it
        return Reply(error=error)
