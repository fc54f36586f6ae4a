# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gym_objstore.errors import Denied, Invalid, NotFound, ObjstoreError, Unavailable
from gym_objstore.store import Body, Meta, Store
from gym_objstore.store import retrying as module
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.retrying import RetryingStore
from tests.synthetic import SyntheticStore, peak_of


def down() -> Unavailable:
    return Unavailable("the storage failed, store=s3://b", kind="server_error", key="a/b", hint="look at its log")


def full() -> Unavailable:
    return Unavailable("the storage is full", kind="disk_full", key="a/b")


def expired() -> Denied:
    return Denied("the credentials have expired", kind="expired_token", key="a/b")


def denied() -> Denied:
    return Denied("the storage refused access", kind="access_denied", key="a/b")


class FaultyStore(MemoryStore):
    """Fails each call, of either form, with the next planned error, or does it where the plan says None.

    A listing fails after as many items as ``listed`` says.
    """

    def __init__(self, *planned: ObjstoreError | None, listed: int = 0) -> None:
        super().__init__("faulty")
        self.planned, self.listed, self.calls = list(planned), listed, 0

    def _next(self) -> ObjstoreError | None:
        self.calls += 1
        return self.planned.pop(0) if self.planned else None

    def _fail(self) -> None:
        if error := self._next():
            raise error

    def put(self, key: str, body: Body) -> None:
        self._fail()
        super().put(key, body)

    def get(self, key: str) -> bytes:
        self._fail()
        return super().get(key)

    def head(self, key: str) -> Meta | None:
        self._fail()
        return super().head(key)

    def delete(self, keys: Sequence[str]) -> None:
        self._fail()
        super().delete(keys)

    def scan(self, prefix: str) -> Iterator[Meta]:
        error = self._next()
        found = list(super().scan(prefix))
        if error is None:
            yield from found
            return
        # The next listing names objects in another order, as unordered stores may.
        yield from found[-self.listed :] if len(self.planned) % 2 else found[: self.listed]
        raise error


@dataclass
class Clock:
    """Time that passes only in pauses, and what the pauses were."""

    now: float = 1000.0
    pauses: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(asyncio, "sleep", clock.sleep_async)
    return clock


async def collected(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


def blocking(store: Store, method: str, *arguments: Any) -> Any:
    answer = getattr(store, method)(*arguments)
    return list(answer) if method in ("scan", "folders") else answer


def waiting(store: Store, method: str, *arguments: Any) -> Any:
    answer = getattr(store, f"{method}_async")(*arguments)
    return asyncio.run(collected(answer) if method in ("scan", "folders") else answer)


Form = Callable[..., Any]
both_forms = pytest.mark.parametrize("form", [blocking, waiting])


def retrying(inner: Store, seconds: float = 60, **more: Any) -> RetryingStore:
    return RetryingStore(inner, seconds=seconds, limit=8, **more)


CALLS = [("put", "a/b", b"x"), ("get", "a/b"), ("get_range", "a/b", 0, 1), ("head", "a/b"), ("delete", ["a/b"])]


@both_forms
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_every_operation_is_repeated_until_it_is_answered(clock, form: Form, call):
    inner = FaultyStore(None, down(), down())
    inner.put("a/b", b"x")
    answer = form(retrying(inner), *call)
    assert inner.calls == 4
    assert len(clock.pauses) == 2
    assert answer == form(inner, *call) or call[0] in ("put", "delete")


@both_forms
def test_an_operation_that_succeeds_never_pauses(clock, form: Form):
    form(retrying(FaultyStore()), "put", "a/b", b"x")
    assert clock.pauses == []


@both_forms
@pytest.mark.parametrize("error", [denied(), NotFound("no such object", key="a/b"), Invalid("no"), full()])
def test_what_repeating_cannot_help_is_raised_as_it_is(clock, form: Form, error):
    inner = FaultyStore(error)
    with pytest.raises(type(error)) as caught:
        form(retrying(inner), "get", "a/b")
    assert caught.value is error
    assert (inner.calls, clock.pauses) == (1, [])


@both_forms
def test_the_budget_is_kept_and_the_last_error_says_what_was_tried(clock, form: Form):
    inner = FaultyStore(*(down() for _ in range(1000)))
    with pytest.raises(Unavailable) as caught:
        form(retrying(inner, seconds=60), "put", "a/b", b"x")
    error = caught.value
    assert 50 < sum(clock.pauses) <= 60
    assert f"operation=put, attempts={inner.calls}, seconds=" in error.message
    assert error.message.startswith("the storage failed, store=s3://b, operation=put")
    assert (error.kind, error.key, error.hint) == ("server_error", "a/b", "look at its log")
    assert isinstance(error.__cause__, Unavailable)


@both_forms
def test_no_budget_means_one_attempt(clock, form: Form):
    inner = FaultyStore(down())
    with pytest.raises(Unavailable, match=r"attempts=1, seconds=0\.0, budget=0"):
        form(retrying(inner, seconds=0), "get", "a/b")
    assert clock.pauses == []


def test_pauses_grow_from_a_tenth_of_a_second_to_five_and_are_jittered(clock):
    inner = FaultyStore(*(down() for _ in range(12)))
    retrying(inner, seconds=600).put("a/b", b"x")
    longest = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5, 5, 5]
    assert all(most / 2 <= pause <= most for pause, most in zip(clock.pauses, longest, strict=True))
    assert len(set(clock.pauses)) == 12


@both_forms
def test_the_pause_that_the_server_asked_for_is_kept(clock, form: Form):
    form(retrying(FaultyStore(down()), asked=lambda _: 7.5), "put", "a/b", b"x")
    assert clock.pauses == [7.5]


@both_forms
def test_a_server_that_asks_for_more_than_the_budget_is_not_waited_for(clock, form: Form):
    with pytest.raises(Unavailable, match="attempts=1"):
        form(retrying(FaultyStore(down()), seconds=60, asked=lambda _: 61), "put", "a/b", b"x")
    assert clock.pauses == []


@both_forms
def test_expired_credentials_are_worth_one_more_attempt_at_once(clock, form: Form):
    inner = FaultyStore(None, expired())
    inner.put("a/b", b"x")
    assert form(retrying(inner), "get", "a/b") == b"x"
    assert clock.pauses == [0.0]


@both_forms
def test_credentials_that_stay_expired_are_refused(clock, form: Form):
    inner = FaultyStore(expired(), expired())
    with pytest.raises(Denied) as caught:
        form(retrying(inner), "get", "a/b")
    assert caught.value.kind == "expired_token"
    assert inner.calls == 2


@both_forms
def test_a_listing_that_broke_begins_again_and_names_nothing_twice(clock, form: Form):
    inner = FaultyStore(listed=4)
    for index in range(10):
        inner.put(f"a/{index}", b"x")
    inner.planned = [down(), down(), down()]
    keys = [meta.key for meta in form(retrying(inner), "scan", "a/")]
    assert sorted(keys) == [f"a/{index}" for index in range(10)]
    assert len(clock.pauses) == 3


@both_forms
def test_folders_are_repeated_like_objects(clock, form: Form):
    inner = FaultyStore(listed=1)
    for name in ("a/x/1", "a/y/1", "a/z/1"):
        inner.put(name, b"x")
    inner.planned = [down(), down()]
    assert sorted(form(retrying(inner), "folders", "a/")) == ["x", "y", "z"]


@both_forms
def test_a_listing_that_gets_on_has_a_new_budget_each_time(clock, form: Form):
    """Here every attempt but the last breaks after one more object, each after most of a budget."""
    inner = FaultyStore()
    for index in range(5):
        inner.put(f"a/{index}", b"x")
    everything = list(inner.scan("a/"))
    attempts = iter(range(1, 7))

    def scan(prefix: str) -> Iterator[Meta]:
        get_on = next(attempts)
        yield from everything[:get_on]
        if get_on < 6:
            raise down()

    async def scan_async(prefix: str) -> AsyncIterator[Meta]:
        for meta in scan(prefix):
            yield meta

    inner.scan, inner.scan_async = scan, scan_async  # type: ignore[method-assign]
    found = form(retrying(inner, seconds=10, asked=lambda _: 9.0), "scan", "a/")
    assert sorted(found) == sorted(everything)
    assert clock.pauses == [9.0] * 5


@both_forms
def test_a_listing_that_does_not_get_on_ends_with_its_budget(clock, form: Form):
    inner = FaultyStore(*(down() for _ in range(1000)), listed=0)
    with pytest.raises(Unavailable, match="operation=list"):
        form(retrying(inner, seconds=20), "scan", "a/")
    assert 10 < sum(clock.pauses) <= 20


def test_no_more_requests_are_in_flight_than_the_limit_says():
    class Crowded(MemoryStore):
        inside = most = 0

        async def put_async(self, key: str, body: Body) -> None:
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(0)
            self.inside -= 1

    async def conversation() -> None:
        await asyncio.gather(*(store.put_async(f"a/{index}", b"x") for index in range(100)))

    inner = Crowded()
    store = RetryingStore(inner, seconds=60, limit=5)
    asyncio.run(conversation())
    assert inner.most == 5


def test_threads_wait_for_their_turn_too():
    entered, leave = threading.Semaphore(0), threading.Event()

    class Slow(MemoryStore):
        def put(self, key: str, body: Body) -> None:
            entered.release()
            leave.wait(10)

    store = RetryingStore(Slow(), seconds=0, limit=2)
    threads = [threading.Thread(target=store.put, args=(f"a/{index}", b"x")) for index in range(3)]
    for thread in threads:
        thread.start()
    assert [entered.acquire(timeout=10) for _ in range(2)] == [True, True]
    assert not entered.acquire(timeout=0.1)
    leave.set()
    assert entered.acquire(timeout=10)
    for thread in threads:
        thread.join()


@both_forms
def test_a_turn_is_given_up_while_an_operation_pauses(clock, form: Form):
    """Otherwise a few failing operations would keep all others from being tried."""
    inner = FaultyStore(down())
    store = RetryingStore(inner, seconds=60, limit=1)
    turns: list[bool] = []
    pause = clock.sleep

    def sleep(seconds: float) -> None:
        turns.append(store._turns().acquire(blocking=False) if form is blocking else not store._turns_async().locked())
        if form is blocking:
            store._turns().release()
        pause(seconds)

    clock.sleep = sleep  # type: ignore[method-assign]
    form(store, "put", "a/b", b"x")
    assert turns == [True]


def test_it_is_a_store_that_closes_and_pickles_with_what_is_inside(tmp_path):
    from gym_objstore.store.opening import open_store

    store = open_store("s3://bucket/prefix", region="r", retry_seconds=7, concurrency=3)
    assert isinstance(store, RetryingStore)
    assert isinstance(store, Store)
    again = pickle.loads(pickle.dumps(store))
    assert (again.url, again._seconds, again._limit) == ("s3://bucket/prefix", 7.0, 3)
    assert repr(again) == repr(store) == "ObstoreStore('s3://bucket/prefix')"


@both_forms
def test_a_page_that_the_server_gives_twice_is_named_once(form: Form):
    inner = MemoryStore()
    for index in range(10):
        inner.put(f"a/{index}/x", b"x")
    whole, names = sorted(inner.scan("a/")), [str(index) for index in range(10)]

    async def scan_async(prefix: str) -> AsyncIterator[Meta]:
        for meta in [*whole[:6], *whole[2:]]:
            yield meta

    async def folders_async(prefix: str) -> AsyncIterator[str]:
        for name in [*names[:6], *names[2:]]:
            yield name

    inner.scan = lambda prefix: iter([*whole[:6], *whole[2:]])  # type: ignore[method-assign]
    inner.folders = lambda prefix: iter([*names[:6], *names[2:]])  # type: ignore[method-assign]
    inner.scan_async, inner.folders_async = scan_async, folders_async  # type: ignore[method-assign]
    assert form(retrying(inner), "scan", "a/") == whole
    assert form(retrying(inner), "folders", "a/") == names


def test_a_long_listing_is_remembered_in_twenty_bytes_a_key():
    store = retrying(SyntheticStore(300_000))
    assert peak_of(lambda: sum(1 for _ in store.scan("staged/"))) < 30 * 100_000
