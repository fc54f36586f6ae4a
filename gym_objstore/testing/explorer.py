# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The third driver of flows: play every interleaving of several actors, with every crash and lost answer.

Owns: the search and its report. The operations of an actor split into atomic effects (``effects``), and
between any two of them everybody else may act. Schedules that lead to the same bucket, log and actors are
followed once and counted all, so ``schedules`` is what an enumeration one by one would count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from gym_objstore.testing.actors import BROKE, STOPPED, Actor, Event, Script, Step
from gym_objstore.testing.effects import Buckets, Effect


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may go wrong in one schedule.

    ``crashes``: actors that stop for ever, between two effects or after one and before its answer.
    ``lost``: operations that are done but answered ``Unavailable``.
    ``late``: operations answered ``Unavailable`` that go on happening afterwards, at any time or never.
    ``second_page``: says of a key whether listings read it later than the rest; None makes them atomic.
    """

    crashes: int = 1
    lost: int = 1
    late: int = 0
    second_page: Callable[[str], bool] | None = None


@dataclass(frozen=True, slots=True)
class World:
    """What a law judges: the bucket before and after the last step, who made it, and what was said so far.

    ``over`` means that every actor has finished or crashed.
    """

    before: Mapping[str, bytes]
    bucket: Mapping[str, bytes]
    actor: str
    log: tuple[Event, ...]
    over: bool


Law: TypeAlias = Callable[[World], str | None]
"""Says what is wrong with a world, or None. It must be a function of the world alone."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A law, what it said, and the shortest schedule found that leads there."""

    law: str
    message: str
    schedule: tuple[str, ...]

    def __str__(self) -> str:
        return "\n  ".join([f"{self.law}: {self.message}", *self.schedule])


@dataclass(frozen=True, slots=True)
class Result:
    """What was explored: whole schedules, distinct states, prefixes that broke a law, and one example per law."""

    schedules: int
    states: int
    broken: int
    violations: tuple[Violation, ...]

    def __str__(self) -> str:
        counts = f"{self.schedules:,} schedules in {self.states:,} states, {self.broken:,} violating prefixes"
        return "\n".join([counts, *map(str, self.violations)])


def explore(actors: Sequence[Actor], initial: Mapping[str, bytes], laws: Sequence[Law], bounds: Bounds) -> Result:
    """Play everything that can happen and judge every step.

    An actor that raises anything but this package's errors breaks a law too. A schedule ends where it
    breaks one.
    """
    exploration = _Exploration(actors, initial, laws, bounds)
    schedules, broken = exploration.start(bounds)
    return Result(schedules, len(exploration.counts), broken, tuple(exploration.violations.values()))


class _State(NamedTuple):
    """Everything the future depends on. ``adrift``: effects without an owner, that may happen or not."""

    bucket: int
    log: int
    points: tuple[int, ...]
    crashes: int
    lost: int
    late: int
    adrift: tuple[Effect, ...] = ()

    @property
    def over(self) -> bool:
        return not any(self.points)


class _Move(NamedTuple):
    actor: str
    what: str
    effect: Effect | None = None

    def __str__(self) -> str:
        return f"{self.actor:10} {self.what}" + (f" {self.effect}" if self.effect else "")


class _Exploration:
    """One search: what is known of buckets, logs, actors and states, and the path that is being followed."""

    def __init__(
        self, actors: Sequence[Actor], initial: Mapping[str, bytes], laws: Sequence[Law], bounds: Bounds
    ) -> None:
        self._actors, self._laws = actors, (*laws, no_other_error)
        self._buckets = Buckets(initial, bounds.second_page)
        paged = bounds.second_page is not None
        self._scripts = [Script(actor, self._buckets.answers, paged=paged) for actor in actors]
        self._logs: list[tuple[Event, ...]] = [()]
        self._log_numbers: dict[tuple[Event, ...], int] = {(): 0}
        self._entered: dict[tuple[int, tuple[Event, ...]], int] = {}
        self._verdicts: dict[tuple[int, int, int, str, bool], tuple[tuple[str, str], ...]] = {}
        self._path: list[_Move] = []
        self.counts: dict[_State, tuple[int, int]] = {}
        self.violations: dict[str, Violation] = {}

    def start(self, bounds: Bounds) -> tuple[int, int]:
        """Return the number of whole schedules and of prefixes that broke a law."""
        points = tuple(script.first.point for script in self._scripts)
        log = 0
        for script in self._scripts:
            log = self._enter(log, script.first.events)
        first = _State(self._buckets.first, log, points, bounds.crashes, bounds.lost, bounds.late)
        return (0, 1) if self._breaks(first, _Move("nobody", "acts"), first) else self._visit(first)

    def _visit(self, state: _State) -> tuple[int, int]:
        if state in self.counts:
            return self.counts[state]
        schedules, broken = int(state.over), 0
        for move, after in self._moves(state):
            self._path.append(move)
            if self._breaks(state, move, after):
                broken += 1
            else:
                more, worse = self._visit(after)
                schedules, broken = schedules + more, broken + worse
            self._path.pop()
        self.counts[state] = schedules, broken
        return schedules, broken

    def _moves(self, state: _State) -> Iterator[tuple[_Move, _State]]:
        for number, point in enumerate(state.points):
            if point != STOPPED:
                yield from self._acts(state, number)
                yield from self._fails(state, number)
        for effect in dict.fromkeys(state.adrift):
            bucket, _ = self._buckets.apply(state.bucket, effect)
            place = state.adrift.index(effect)
            rest = state.adrift[:place] + state.adrift[place + 1 :]
            yield _Move("nobody", "late:", effect), state._replace(bucket=bucket, adrift=rest)

    def _acts(self, state: _State, number: int) -> Iterator[tuple[_Move, _State]]:
        """Yield each next effect of an actor; if it is the last one, also without its answer arriving."""
        name, script, at = self._actors[number].name, self._scripts[number], state.points[number]
        point = script.points[at]
        for chain, effect in point.ready:
            bucket, answer = self._buckets.apply(state.bucket, effect)
            then = state._replace(bucket=bucket)
            yield _Move(name, "does", effect), self._go(then, number, script.answered(at, chain, answer))
            if point.last and state.lost:
                lost = then._replace(lost=state.lost - 1)
                yield _Move(name, "gets no answer to", effect), self._go(lost, number, script.unanswered(at))
            if point.last and state.crashes:
                crashed = then._replace(crashes=state.crashes - 1)
                yield _Move(name, "crashes after", effect), self._go(crashed, number, Step(STOPPED, point.said))

    def _fails(self, state: _State, number: int) -> Iterator[tuple[_Move, _State]]:
        """Yield a crash between two effects, and giving up while effects are still under way."""
        name, script, at = self._actors[number].name, self._scripts[number], state.points[number]
        if state.crashes:
            yield _Move(name, "crashes"), self._go(state._replace(crashes=state.crashes - 1), number, Step(STOPPED))
        under_way = tuple(effect for _, effect in script.points[at].ready if effect.writes)
        if state.late and under_way:
            left = state._replace(late=state.late - 1, adrift=tuple(sorted((*state.adrift, *under_way))))
            yield _Move(name, "gives up waiting for", under_way[0]), self._go(left, number, script.unanswered(at))

    def _go(self, state: _State, number: int, step: Step) -> _State:
        points = (*state.points[:number], step.point, *state.points[number + 1 :])
        return state._replace(points=points, log=self._enter(state.log, step.events))

    def _enter(self, log: int, events: tuple[Event, ...]) -> int:
        if not events:
            return log
        if (log, events) not in self._entered:
            entries = _in_order(self._logs[log] + events)
            number = self._log_numbers.setdefault(entries, len(self._logs))
            if number == len(self._logs):
                self._logs.append(entries)
            self._entered[log, events] = number
        return self._entered[log, events]

    def _breaks(self, before: _State, move: _Move, after: _State) -> bool:
        """Say whether a step breaks a law. Steps that look the same to every law are judged once."""
        looks = before.bucket, after.bucket, after.log, move.actor, after.over
        if looks not in self._verdicts:
            contents = self._buckets.contents
            world = World(
                contents[before.bucket], contents[after.bucket], move.actor, self._logs[after.log], after.over
            )
            self._verdicts[looks] = tuple((law.__name__, said) for law in self._laws if (said := law(world)))
        for law, message in self._verdicts[looks]:
            known = self.violations.get(law)
            if known is None or len(self._path) < len(known.schedule):
                self.violations[law] = Violation(law, message, tuple(map(str, self._path)))
        return bool(self._verdicts[looks])


def _in_order(log: tuple[Event, ...]) -> tuple[Event, ...]:
    """Return the log with its neighbouring questions, and its neighbouring answers, in the order of actors."""
    runs = groupby(log, key=attrgetter("asked"))
    return tuple(event for _, run in runs for event in sorted(run, key=attrgetter("actor")))


def no_other_error(world: World) -> str | None:
    """An actor ends in this package's errors only."""
    return next((f"{event.actor} broke: {event.value}" for event in world.log if event.what == BROKE), None)
