# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Stores across processes and event loops: forked, spawned, pickled, one loop after another, beside each other."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gym_objstore.errors import Unusable
from gym_objstore.store import Store
from gym_objstore.store.opening import open_store
from gym_objstore.testing.servers import Server
from tests.server_pool import BUCKET

BACKENDS = ("obstore", "boto", "fsspec")
SECONDS = 60.0

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def store(seaweedfs_server: Server, prefix: str, backend: str) -> Iterator[Store]:
    store = open_store(f"s3://{BUCKET}/{prefix}", backend=backend, **seaweedfs_server.settings())
    yield store
    store.close()


def in_child(method: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a child process; return its answer or the name and text of its error."""
    context = multiprocessing.get_context(method)
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(sender, work, *arguments), daemon=True)
    child.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(SECONDS) else "hangs"
    finally:
        child.kill()
        child.join()
        receiver.close()


def _answer(sender: Any, work: Callable[..., Any], *arguments: Any) -> None:
    try:
        sender.send(work(*arguments))
    except Exception as error:  # noqa: BLE001 - its name is the answer
        sender.send((type(error).__name__, str(error)))


def get(store: Store) -> bytes:
    return store.get("a/b")


def get_async(store: Store) -> bytes:
    return asyncio.run(store.get_async("a/b"))


def get_unpickled(pickled: bytes, environment: dict[str, str]) -> bytes:
    os.environ.update(environment)
    return pickle.loads(pickled).get("a/b")


def reopen(url: str, settings: dict[str, str]) -> tuple[str, bytes]:
    store = open_store(url, **settings)
    return repr(store), store.get("a/b")


@pytest.mark.parametrize("read", [get, get_async])
def test_a_fork_after_use_is_served_by_boto_and_refused_by_obstore(store: Store, backend: str, read):
    store.put("a/b", b"x")
    assert get_async(store) == b"x"
    answer = in_child("fork", read, store)
    if backend == "obstore":
        assert answer[0] == "Unusable"
        assert "spawn" in answer[1]
        assert "backend='boto'" in answer[1]
    else:
        assert answer == b"x"
    assert read(store) == b"x"


def test_a_store_opened_in_a_forked_child_is_one_that_works_there(seaweedfs_server: Server, prefix: str):
    url = f"s3://{BUCKET}/{prefix}"
    store = open_store(url, **seaweedfs_server.settings())
    store.put("a/b", b"x")
    assert repr(store).startswith("ObstoreStore")
    assert in_child("fork", reopen, url, seaweedfs_server.settings()) == (f"BotoStore('{url}')", b"x")
    store.close()


def test_a_store_that_was_only_opened_survives_a_fork(tmp_path, seaweedfs_server: Server, prefix: str):
    """In a process of its own: here obstore has long been used."""
    url = f"s3://{BUCKET}/{prefix}"
    open_store(url, **seaweedfs_server.settings()).put("a/b", b"x")
    script = (
        "import os, sys\n"
        "from gym_objstore.store.opening import open_store\n"
        f"store = open_store({url!r})\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if store.get('a/b') == b'x' else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    environment = {**os.environ, **seaweedfs_server.environment()}
    assert subprocess.run([sys.executable, "-c", script], env=environment, timeout=SECONDS, check=False).returncode == 0


def test_a_spawned_process_takes_the_secret_from_its_own_environment(store: Store, seaweedfs_server: Server):
    store.put("a/b", b"x")
    pickled = pickle.dumps(store)
    assert seaweedfs_server.secret_key.encode() not in pickled
    assert seaweedfs_server.access_key.encode() not in pickled
    assert in_child("spawn", get_unpickled, pickled, seaweedfs_server.environment()) == b"x"


def test_a_spawned_process_without_credentials_is_told_why(store: Store):
    store.put("a/b", b"x")
    name, text = in_child("spawn", get_unpickled, pickle.dumps(store), {})
    assert name == "Invalid"
    assert "no credentials were found" in text
    assert "never pickled" in text


def test_a_pickle_of_a_file_store_is_a_store_of_the_same_folder(tmp_path):
    store = open_store(f"file://{tmp_path}/store")
    store.put("a/b", b"x")
    assert pickle.loads(pickle.dumps(store)).get("a/b") == b"x"


def test_opening_and_pickling_import_no_client_and_do_no_input_or_output():
    script = (
        "import pickle, sys\n"
        "from gym_objstore.store.opening import open_store\n"
        "for scheme in ('s3', 'gs', 'az'):\n"
        "    pickle.loads(pickle.dumps(open_store(scheme + '://bucket/prefix')))\n"
        "for backend in ('obstore', 'boto', 'fsspec'):\n"
        "    pickle.loads(pickle.dumps(open_store('s3://bucket', backend=backend)))\n"
        "open_store('file:///no/such/folder')\n"
        "clients = {'boto3', 'botocore', 'obstore', 'fsspec', 's3fs', 'aioboto3', 'aiobotocore'}\n"
        "print(sorted(clients & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=SECONDS, check=True)
    assert answer.stdout == "[]\n"


def test_loops_one_after_another_need_no_close(store: Store):
    """Each loop that ends closes what it opened; a warning about what it left open would fail this test."""
    for index in range(3):
        asyncio.run(store.put_async(f"a/{index}", b"x"))
        gc.collect()
    assert asyncio.run(store.get_async("a/2")) == b"x"
    gc.collect()


def test_loops_beside_each_other_share_one_store(store: Store):
    together = threading.Barrier(3)
    failures: list[BaseException] = []

    async def live(me: int) -> None:
        for index in range(5):
            await store.put_async(f"a/{me}-{index}", b"x")
            assert await store.get_async(f"a/{me}-{index}") == b"x"
        if me == 0:
            await store.close_async()
            assert await store.get_async("a/0-0") == b"x"

    def run(me: int) -> None:
        try:
            together.wait(SECONDS)
            asyncio.run(live(me))
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(list(store.scan("a/"))) == 15


def test_closing_one_form_and_then_the_store(store: Store):
    async def use_and_close() -> None:
        await store.put_async("a/b", b"x")
        await store.close_async()
        await store.close_async()

    asyncio.run(use_and_close())
    assert store.get("a/b") == b"x"
    store.close()
    store.close()
    for use in (store.get, lambda key: asyncio.run(store.get_async(key))):
        with pytest.raises(Unusable) as caught:
            use("a/b")
        assert caught.value.kind == "closed"


def test_one_client_serves_all_threads(seaweedfs_server: Server, prefix: str, backend: str, monkeypatch):
    from gym_objstore.store import boto_store, fsspec_store, obstore_store

    module, name = {
        "obstore": (obstore_store, "connect"),
        "boto": (boto_store, "connect"),
        "fsspec": (fsspec_store, "_open"),
    }[backend]
    connect, made = getattr(module, name), []
    monkeypatch.setattr(module, name, lambda *args, **how: (made.append(1), connect(*args, **how))[1])
    store = open_store(f"s3://{BUCKET}/{prefix}", backend=backend, **seaweedfs_server.settings())
    together = threading.Barrier(8)

    def put(index: int) -> None:
        together.wait(SECONDS)
        store.put(f"a/{index}", b"x")

    threads = [threading.Thread(target=put, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(store.scan("a/"))) == 8
    assert made == [1]
    store.close()


def test_boto_without_aioboto3_says_how_to_get_its_async_form(store: Store, backend: str, monkeypatch):
    monkeypatch.setitem(sys.modules, "aioboto3", None)
    if backend == "boto":
        with pytest.raises(Unusable, match=r"gym-objstore\[aioboto3\]") as caught:
            asyncio.run(store.get_async("a/b"))
        assert caught.value.kind == "missing_extra"
    store.put("a/b", b"x")
    assert store.get("a/b") == b"x"
