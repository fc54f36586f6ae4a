# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A second explorer that is slow and simple: it plays each schedule from the start and remembers nothing."""

from __future__ import annotations

from gym_objstore.errors import Unavailable
from gym_objstore.testing.actors import Log
from gym_objstore.testing.effects import Buckets, answer_of, effects_of


def known_order(log):
    """Return what each actor said in order, and which answers were over before which questions."""
    own = {event.actor: tuple(one for one in log if one.actor == event.actor) for event in log}
    over = {(a, q) for n, a in enumerate(log) if not a.asked for q in log[n:] if q.asked and q.actor != a.actor}
    return frozenset(own.items()), frozenset(over)


def all_ends(actors, initial, bounds):
    """Return the number of whole schedules, and what the bucket and the log may be in the end."""
    schedules, ends, waiting = 0, set(), [()]
    while waiting:
        schedule = waiting.pop()
        game = Game(actors, initial, bounds)
        for choice in schedule:
            game.choose(*choice)
        if not any(player.alive for player in game.players):
            schedules += 1
            ends.add((frozenset(game.bucket.items()), known_order(game.log)))
        waiting += [(*schedule, choice) for choice in game.choices()]
    return schedules, ends


class Player:
    def __init__(self, actor, game):
        self.actor, self.game, self.alive = actor, game, True
        self.stage, self.attempt, self.brought = 0, 0, None
        self.begin()

    def begin(self):
        self.said = Log(self.actor.name)
        self.said.attempt = self.attempt
        self.flow = self.actor.stages[self.stage](self.said, self.brought)
        self.go_on(lambda: next(self.flow))

    def go_on(self, reply):
        try:
            self.operation = reply()
            while not (chains := effects_of(self.operation, paged=self.game.bounds.second_page is not None)):
                self.operation = self.flow.send(answer_of(self.operation, ()))
        except StopIteration as result:
            self.stage, self.attempt, self.brought = self.stage + 1, 0, result.value
            self.speak(asked=True)
            if self.stage == len(self.actor.stages):
                self.alive = False
            else:
                self.begin()
            return
        except Unavailable:
            self.attempt += 1
            self.speak(asked=True)
            self.begin()
            return
        self.chains, self.answers = chains, [()] * len(chains)
        self.speak(asked=False)

    def speak(self, *, asked):
        """Enter into the log what was answered, and what was asked if an effect has come or none will."""
        said = self.said._said
        while said and (asked or not said[0].asked):
            self.game.log.append(said.pop(0))

    @property
    def left(self):
        return sum(len(chain) - len(answers) for chain, answers in zip(self.chains, self.answers, strict=True))


class Game:
    def __init__(self, actors, initial, bounds):
        self.bounds, self.bucket, self.log, self.adrift = bounds, dict(initial), [], []
        self.left = {"crash": bounds.crashes, "lose": bounds.lost, "give up": bounds.late}
        self.players = [Player(actor, self) for actor in actors]

    def choices(self):
        for number, player in enumerate(self.players):
            if player.alive:
                for chain, (effects, answers) in enumerate(zip(player.chains, player.answers, strict=True)):
                    if len(answers) < len(effects):
                        yield "do", number, chain
                        if player.left == 1 and self.left["crash"]:
                            yield "crash after", number, chain
                        if player.left == 1 and self.left["lose"]:
                            yield "lose", number, chain
                if self.left["crash"]:
                    yield "crash", number, 0
                if self.left["give up"] and any(effect.writes for effect in self.pending(player)):
                    yield "give up", number, 0
        for place in range(len(self.adrift)):
            yield "late", place, 0

    def pending(self, player):
        pairs = zip(player.chains, player.answers, strict=True)
        return [effects[len(answers)] for effects, answers in pairs if len(answers) < len(effects)]

    def do(self, effect):
        buckets = Buckets(self.bucket, self.bounds.second_page)
        after, answer = buckets.apply(buckets.first, effect)
        self.bucket = buckets.contents[after]
        return buckets.answers[answer]

    def choose(self, what, number, chain):
        if what == "late":
            self.do(self.adrift.pop(number))
            return
        player = self.players[number]
        cost = what.removesuffix(" after")
        if cost in self.left:
            self.left[cost] -= 1
        if what == "crash":
            player.alive = False
            return
        player.speak(asked=True)
        if what == "give up":
            self.adrift += sorted(effect for effect in self.pending(player) if effect.writes)
        else:
            answers = player.answers[chain]
            player.answers[chain] = (*answers, self.do(player.chains[chain][len(answers)]))
        if what == "crash after":
            player.alive = False
        elif what in ("lose", "give up"):
            player.go_on(lambda: player.flow.throw(Unavailable("no answer came")))
        elif not player.left:
            player.go_on(lambda: player.flow.send(answer_of(player.operation, player.answers)))
