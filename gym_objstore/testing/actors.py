# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Actors for the explorer: flows with a log, each turned into an automaton over the answers that it gets.

Owns: how an actor goes on after an answer or without one. A generator cannot be copied, so every point is
reached by playing the actor again from its recorded answers. Does not own: the bucket, and whose turn it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from gym_objstore.errors import ObjstoreError, Unavailable
from gym_objstore.flow import All, Flow, Operation
from gym_objstore.testing.effects import Chain, Effect, answer_of, effects_of

STOPPED = 0
"""The number of the point where an actor does nothing more: it has finished or crashed."""

RAISED, BROKE = "raised", "broke"
"""What an actor says when it ends in one of this package's errors, and in any other."""


class Event(NamedTuple):
    """Something that an actor says: what it asks for or was answered, and a value for the rest."""

    actor: str
    what: str
    value: Hashable
    asked: bool


class Log:
    """Where an actor says what it asks for and what it was answered.

    A question is entered with its first effect and an answer with its last, so that an answer in front of a
    question means that the one was over before the other began. ``attempt`` counts the repetitions of
    the stage, from 0.
    """

    def __init__(self, actor: str) -> None:
        self.attempt = 0
        self._actor = actor
        self._said: list[Event] = []

    def asked(self, what: str, value: Hashable = None) -> None:
        """Say what the following effects are for."""
        self._said.append(Event(self._actor, what, value, asked=True))

    def answered(self, what: str, value: Hashable = None) -> None:
        """Say what the effects so far have led to."""
        self._said.append(Event(self._actor, what, value, asked=False))

    def take(self) -> tuple[Event, ...]:
        """Return what was said since the last time."""
        said = tuple(self._said)
        self._said.clear()
        return said


Stage: TypeAlias = Callable[[Log, Any], Flow[Hashable]]
"""A flow that an actor plays, from its log and the result of the stage before."""


class Actor(NamedTuple):
    """A name, and the stages that its bearer goes through. A stage that gets ``Unavailable`` is repeated.

    A stage must do the same again when it gets the same answers. Nothing but its result, which must be
    hashable, passes to the next one: what went before is forgotten, and that makes the search small.
    """

    name: str
    stages: tuple[Stage, ...]


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


class Place(NamedTuple):
    """How far an actor is: in which attempt at which stage, what it brought along, and its replies since."""

    stage: int
    brought: Hashable
    attempt: int = 0
    replies: tuple[Reply, ...] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """An actor in the middle of an operation, which began at the point of number ``began``.

    ``done`` has the numbers of each chain's answers so far, ``said`` what is entered with the next effect.
    """

    began: int
    place: Place
    operation: Operation
    chains: tuple[Chain, ...]
    done: tuple[tuple[int, ...], ...]
    said: tuple[Event, ...]
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
        self._begun: dict[Place, Step] = {}
        self._inside: dict[tuple[int, tuple[tuple[int, ...], ...]], int] = {}
        self._answered: dict[tuple[int, int, int], Step] = {}
        self._unanswered: dict[int, Step] = {}
        start = Place(0, None)
        self.points = [Point(STOPPED, start, All(()), (), (), ())]
        self.first = self._begin(start)

    def answered(self, number: int, chain: int, answer: int) -> Step:
        """Go on from a point after the next effect of a chain was answered."""
        key = number, chain, answer
        if key not in self._answered:
            self._answered[key] = self._answer(self.points[number], chain, answer)
        return self._answered[key]

    def unanswered(self, number: int) -> Step:
        """Go on from a point after the storage did not answer the operation."""
        if number not in self._unanswered:
            self._unanswered[number] = self._go_on(self.points[number], Reply(error=Unavailable("no answer came")))
        return self._unanswered[number]

    def _answer(self, point: Point, chain: int, answer: int) -> Step:
        done = (*point.done[:chain], (*point.done[chain], answer), *point.done[chain + 1 :])
        if point.last:
            answers = [tuple(self._values[one] for one in numbers) for numbers in done]
            return self._go_on(point, _reply(point.operation, answers))
        inside = point.began, done
        if inside not in self._inside:
            self._inside[inside] = self._add(replace(point, done=done, said=()))
        return Step(self._inside[inside], point.said)

    def _go_on(self, point: Point, reply: Reply) -> Step:
        step = self._reach(point.place._replace(replies=(*point.place.replies, reply)))
        return Step(step.point, (*point.said, *step.events))

    def _begin(self, place: Place) -> Step:
        if place.stage == len(self._actor.stages):
            return Step(STOPPED)
        if place not in self._begun:
            self._begun[place] = self._reach(place)
        return self._begun[place]

    def _reach(self, place: Place) -> Step:
        """Play the stage from its start; the step has what the actor says after the last reply."""
        log = Log(self._actor.name)
        log.attempt = place.attempt
        flow = self._actor.stages[place.stage](log, place.brought)
        try:
            operation = next(flow)
            for reply in place.replies:
                log.take()
                operation = reply.give(flow)
            while not (chains := effects_of(operation, paged=self._paged)):
                place = place._replace(replies=(*place.replies, _reply(operation, ())))
                operation = place.replies[-1].give(flow)
        except StopIteration as result:
            return self._then(log, Place(place.stage + 1, result.value))
        except Unavailable:
            return self._then(log, Place(place.stage, place.brought, place.attempt + 1))
        except ObjstoreError as error:
            log.answered(RAISED, type(error).__name__)
            return Step(STOPPED, log.take())
        except Exception as error:  # noqa: BLE001 - reported with its schedule
            log.answered(BROKE, repr(error))
            return Step(STOPPED, log.take())
        said = log.take()
        asked = next((n for n, event in enumerate(said) if event.asked), len(said))
        number = self._add(Point(len(self.points), place, operation, chains, ((),) * len(chains), said[asked:]))
        return Step(number, said[:asked])

    def _then(self, log: Log, place: Place) -> Step:
        step = self._begin(place)
        return Step(step.point, (*log.take(), *step.events))

    def _add(self, point: Point) -> int:
        self.points.append(point)
        return len(self.points) - 1


def _reply(operation: Operation, answers: Sequence[Sequence[Any]]) -> Reply:
    try:
        return Reply(answer_of(operation, answers))
    except Exception as error:  # noqa: BLE001 - the flow decides what to do with it
        return Reply(error=error)
