# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The real nemo-gym model server, over stub workers, in processes of their own on free ports.

Python 3.12 or newer, which Gym's server side needs. Nothing of the caller's environment reaches the processes but
what is passed; on Linux they die with the thread that started them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gym_objstore.testing.processes import free_ports, log_tail, start, stop

CONTROL_TOKEN = "control-secret"


class Worker(Protocol):
    """What answers for the model: at ``url``."""

    @property
    def url(self) -> str: ...


_ROOT = Path(__file__).resolve().parent.parent
_ATTEMPTS = 3
_READY_SECONDS = 90.0
_END_SECONDS = 60.0
_POLL_SECONDS = 0.05
_PORT_CLASH = "address already in use"


@dataclass(frozen=True, slots=True)
class Running:
    """A process that answers at ``url``."""

    url: str
    port: int
    log: Path
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """End it as an operator does, so that it closes what it holds; kill it if it does not go. Repeatable."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End it and its workers at once, as a machine that fails does. Repeatable."""
        stop(self.process)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # a server's workers outlive it


@contextmanager
def stub_worker(
    folder: Path, place: Mapping[str, Any] | None = None, *, port: int | None = None, name: str = "stub"
) -> Iterator[Running]:
    """Run a stub worker; its log and its gates are in ``folder``, its staged rows in ``place``.

    With ``port`` it takes a dead worker's place.
    """
    staging, environment = as_deployed(place or {})

    def command(chosen: int) -> list[str]:
        plan = {"port": chosen, "log": str(produced_by(folder)), "gates": str(folder), "staging": staging or None}
        return ["-m", "tests.stub_worker", json.dumps(plan)]

    with _running(folder / f"{name}.log", command, environment, port=port) as worker:
        yield worker


@contextmanager
def gym_server(
    folder: Path,
    workers: Sequence[Worker],
    capture: Mapping[str, Any],
    *,
    environment: Mapping[str, str],
    processes: int = 1,
    name: str = "gym",
    launch: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
) -> Iterator[Running]:
    """Run a model server that shares its rollouts out to ``workers``; ``capture`` is its token_id_capture block.

    ``launch`` is the module that starts the server's module, with its arguments; ``settings`` are more of Gym's, and
    ``model`` of the server's own.
    """
    external = capture.get("external_staging", False)

    def command(port: int) -> list[str]:
        instance = {
            "entrypoint": "app.py",
            "host": "127.0.0.1",
            "port": port,
            "base_url": [f"{worker.url}/v1" for worker in workers],
            "api_key": "none",
            "model": "stub",
            "return_token_id_information": not external,
            "uses_reasoning_parser": False,
            **({"num_workers": processes} if processes > 1 else {}),
            **(model or {}),
        }
        config = {
            "head_server": {"host": "127.0.0.1", "port": 1},
            "dry_run": False,
            "uvicorn_logging_show_200_ok": False,
            "policy_model": {"responses_api_models": {"vllm_model": instance}},
            "token_id_capture": {"enabled": True, "all_agents": True, **capture},
            **(settings or {}),
        }
        told["NEMO_GYM_CONFIG_DICT"] = json.dumps(config)
        return ["-m", *launch, "responses_api_models.vllm_model.app"]

    told = {
        "NEMO_GYM_CONFIG_PATH": "policy_model",
        "NEMO_GYM_TOKEN_CAPTURE_CONTROL_TOKEN": CONTROL_TOKEN,
        **environment,
    }
    with _running(folder / f"{name}.log", command, told) as server:
        yield server


def as_deployed(place: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arguments for a configuration, which is printed, and the secrets for the environment."""
    names = {"access_key_id": "AWS_ACCESS_KEY_ID", "secret_access_key": "AWS_SECRET_ACCESS_KEY"}
    kwargs = {name: value for name, value in place.items() if name not in names}
    return kwargs, {names[name]: value for name, value in place.items() if name in names}


def produced_by(folder: Path) -> Path:
    """Return the file in which the stub workers of a folder say what they generated."""
    return folder / "produced.jsonl"


def produced(folder: Path) -> list[dict[str, Any]]:
    """Return what the stub workers of a folder generated until now, in order."""
    log = produced_by(folder)
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def sequence(calls: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[int], list[float]]:
    """Return ids, mask and log probabilities of produced calls that continue each other, as the engine had them."""
    ids: list[int] = []
    mask: list[int] = []
    log_probs: list[float] = []
    for one in calls:
        new = one["prompt"][len(ids) :]
        ids += [*new, *one["generated"]]
        mask += [0] * len(new) + [1] * len(one["generated"])
        log_probs += [0.0] * len(new) + one["log_probs"]
    return ids, mask, log_probs


def wait_until(true: Callable[[], Any], what: str, seconds: float = _READY_SECONDS) -> None:
    """Return once something is true; a test that waits too long fails and says for what."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(_POLL_SECONDS)


class Tap:
    """A way to a server that can be shut and opened again, as a network does."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("http://").partition(":")
        self._target, self._open, self._pairs = (host, int(port)), True, set[socket.socket]()
        self._bound = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.endpoint = f"http://127.0.0.1:{self._bound.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, name="tap", daemon=True)
        self._accepting.start()

    def shut(self) -> None:
        """Break every connection and refuse new ones."""
        self._open = False
        for one in list(self._pairs):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def open(self) -> None:
        """Let connections through again."""
        self._open = True

    def close(self) -> None:
        """Shut it for good."""
        self.shut()
        self._bound.shutdown(socket.SHUT_RDWR)
        self._bound.close()
        self._accepting.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._bound.accept()
            except OSError:
                return
            if self._open:
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()
            else:
                near.close()

    def _carry(self, near: socket.socket) -> None:
        with near, socket.create_connection(self._target) as far:
            self._pairs |= {near, far}
            other = {near: far, far: near}
            with suppress(OSError):
                while self._open:
                    for ready in select.select([near, far], [], [])[0]:
                        data = ready.recv(1 << 16)
                        if not data:
                            return
                        other[ready].sendall(data)
        self._pairs -= {near, far}


@contextmanager
def _running(
    log: Path, command: Callable[[int], Sequence[str]], told: dict[str, str], *, port: int | None = None
) -> Iterator[Running]:
    process: Running | None = None
    try:
        for _ in range(_ATTEMPTS):
            chosen = port or free_ports(1)[0]
            arguments = [sys.executable, *command(chosen)]
            search = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
            environment = {"PYTHONPATH": search, "PYTHONUNBUFFERED": "1", **told}
            found = start(arguments, directory=log.parent, log=log, environment=environment)
            process = Running(f"http://127.0.0.1:{chosen}", chosen, log, found)
            if _becomes_ready(process):
                break
            process.kill()
        else:
            raise AssertionError(f"every port was taken:\n{log_tail(log)}")
        yield process
    except BaseException:
        sys.stderr.write(f"end of {log}:\n{log_tail(log)}\n")  # which pytest shows with the failure
        raise
    finally:
        if process is not None:
            process.stop()


def _becomes_ready(process: Running) -> bool:
    """Wait for the first answer; False where the port was taken meanwhile."""
    end = time.monotonic() + _READY_SECONDS
    while time.monotonic() < end:
        if process.process.poll() is not None and _PORT_CLASH in log_tail(process.log).lower():
            return False
        assert process.process.poll() is None, f"the process ended:\n{log_tail(process.log)}"
        try:
            urllib.request.urlopen(f"{process.url}/healthz", timeout=5).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            time.sleep(_POLL_SECONDS)
        else:
            return True
    raise AssertionError(f"the process does not answer:\n{log_tail(process.log)}")
