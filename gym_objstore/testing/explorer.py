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
    schedules, broken = exploration.start()
    return Result(schedules, len(exploration.counts), broken, tuple(exploration.violations.values()))


_Adrift: TypeAlias = tuple[tuple[str, Effect], ...]

_FREE, _CRASH, _LOST, _LATE = (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)


class _State(NamedTuple):
    """Everything the future depends on. ``left``: crashes, lost and late answers still to come.

    ``adrift``: effects that an actor gave up waiting for, and which happen later or never.
    """

    bucket: int
    log: int
    points: tuple[int, ...]
    left: tuple[int, int, int]
    adrift: _Adrift


class _Turn(NamedTuple):
    """One thing that may happen next: what it is called, what it costs and where it leads."""

    who: str
    what: str
    effect: Effect | None
    cost: tuple[int, int, int]
    bucket: int
    step: Step
    adrift: _Adrift = ()

    def __str__(self) -> str:
        return f"{self.who:10} {self.what}" + (f" {self.effect}" if self.effect else "")


class _Exploration:
    """One search: what is known of buckets, logs, actors and states, and the path that is being followed."""

    def __init__(
        self, actors: Sequence[Actor], initial: Mapping[str, bytes], laws: Sequence[Law], bounds: Bounds
    ) -> None:
        self._actors, self._laws, self._bounds = actors, (*laws, no_other_error), bounds
        self._buckets = Buckets(initial, bounds.second_page)
        paged = bounds.second_page is not None
        self._scripts = [Script(actor, self._buckets.answers, paged=paged) for actor in actors]
        self._turns: dict[tuple[int, int, int], list[_Turn]] = {}
        self._logs: list[tuple[Event, ...]] = [()]
        self._log_numbers: dict[tuple[Event, ...], int] = {(): 0}
        self._entered: dict[tuple[int, tuple[Event, ...]], int] = {}
        self._verdicts: dict[tuple[int, int, int, str, bool], tuple[tuple[str, str], ...]] = {}
        self._path: list[_Turn] = []
        self.counts: dict[_State, tuple[int, int]] = {}
        self.violations: dict[str, Violation] = {}

    def start(self) -> tuple[int, int]:
        """Return the number of whole schedules and of prefixes that broke a law."""
        log = 0
        for script in self._scripts:
            log = self._enter(log, script.first.events)
        points = tuple(script.first.point for script in self._scripts)
        bounds = self._bounds
        first = _State(self._buckets.first, log, points, (bounds.crashes, bounds.lost, bounds.late), ())
        return (0, 1) if self._breaks(first, "nobody", first) else self._visit(first)

    def _visit(self, state: _State) -> tuple[int, int]:
        schedules, broken = int(not any(state.points)), 0
        for turn, after in self._next(state):
            self._path.append(turn)
            if self._breaks(state, turn.who, after):
                broken += 1
            else:
                more, worse = self.counts.get(after) or self._visit(after)
                schedules, broken = schedules + more, broken + worse
            self._path.pop()
        self.counts[state] = schedules, broken
        return schedules, broken

    def _next(self, state: _State) -> Iterator[tuple[_Turn, _State]]:
        bucket, log, points, left, adrift = state
        crashes, lost, late = left
        for number, point in enumerate(points):
            if point == STOPPED:
                continue
            for turn in self._turns.get((number, point, bucket)) or self._find_turns(number, point, bucket):
                a, b, c = turn.cost
                if a <= crashes and b <= lost and c <= late:
                    then = self._enter(log, turn.step.events)
                    there = (*points[:number], turn.step.point, *points[number + 1 :])
                    rest = adrift if not turn.adrift else tuple(sorted(adrift + turn.adrift))
                    yield turn, _State(turn.bucket, then, there, (crashes - a, lost - b, late - c), rest)
        for place, (who, effect) in enumerate(adrift):
            turn = _Turn(who, "at last does", effect, _FREE, self._buckets.apply(bucket, effect)[0], Step(STOPPED))
            yield turn, _State(turn.bucket, log, points, left, adrift[:place] + adrift[place + 1 :])

    def _find_turns(self, number: int, at: int, bucket: int) -> list[_Turn]:
        script = self._scripts[number]
        found = [*self._acts(number, script, at, bucket), *self._fails(number, script, at, bucket)]
        self._turns[number, at, bucket] = found
        return found

    def _acts(self, number: int, script: Script, at: int, bucket: int) -> Iterator[_Turn]:
        """Yield an actor's next effects; where one is an operation's last, also without its answer arriving."""
        name, point = self._actors[number].name, script.points[at]
        for chain, effect in point.ready:
            then, answer = self._buckets.apply(bucket, effect)
            yield _Turn(name, "does", effect, _FREE, then, script.answered(at, chain, answer))
            if point.last:
                yield _Turn(name, "crashes after", effect, _CRASH, then, Step(STOPPED, point.said))
                if self._bounds.lost:
                    yield _Turn(name, "gets no answer to", effect, _LOST, then, script.unanswered(at))

    def _fails(self, number: int, script: Script, at: int, bucket: int) -> Iterator[_Turn]:
        """Yield a crash between two effects, and giving up while writes are still under way."""
        name = self._actors[number].name
        yield _Turn(name, "crashes", None, _CRASH, bucket, Step(STOPPED))
        writes = tuple((name, effect) for _, effect in script.points[at].ready if effect.writes)
        if self._bounds.late and writes:
            yield _Turn(name, "gives up on", writes[0][1], _LATE, bucket, script.unanswered(at), writes)

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

    def _breaks(self, before: _State, who: str, after: _State) -> bool:
        """Say whether a step breaks a law. Steps that look the same to every law are judged once."""
        looks = before.bucket, after.bucket, after.log, who, not any(after.points)
        verdict = self._verdicts.get(looks)
        if verdict is None:
            contents = self._buckets.contents
            world = World(contents[before.bucket], contents[after.bucket], who, self._logs[after.log], over=looks[-1])
            verdict = tuple((law.__name__, said) for law in self._laws if (said := law(world)))
            self._verdicts[looks] = verdict
        for law, message in verdict:
            known = self.violations.get(law)
            if known is None or len(self._path) < len(known.schedule):
                self.violations[law] = Violation(law, message, tuple(map(str, self._path)))
        return bool(verdict)


def _in_order(log: tuple[Event, ...]) -> tuple[Event, ...]:
    """Return the log with its neighbouring questions, and its neighbouring answers, in the order of actors."""
    runs = groupby(log, key=attrgetter("asked"))
    return tuple(event for _, run in runs for event in sorted(run, key=attrgetter("actor")))


def no_other_error(world: World) -> str | None:
    """Say who ended in anything but this package's errors."""
    return next((f"{event.actor} broke: {event.value}" for event in world.log if event.what == BROKE), None)
