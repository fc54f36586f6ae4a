# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``gym-objstore proxy`` as a process: what it prints, serves, refuses and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
import trustme
from typer.testing import CliRunner

from gym_objstore.capture_store import CaptureStore
from gym_objstore.cli.app import app
from gym_objstore.spill import Spill
from tests.upstream import QUESTIONS, UpstreamServer
from tests.web_servers import serving

CHAT = "/v1/chat/completions"
CANARY = "sk-canary-51f0c7e2a9b84d33"


class Proxy(NamedTuple):
    """A running proxy: its address, its first line, its process."""

    url: str
    line: str
    process: subprocess.Popen[str]

    def end(self, signal_number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(signal_number)
        _, errors = self.process.communicate(timeout=40)
        return self.process.returncode, errors


def arguments(upstream: str, *options: str) -> list[str]:
    return ["proxy", "--upstream", upstream, "--run-id", "run-1", "--port", "0", *options]


@contextmanager
def proxying(upstream: str, *options: str, **environment: str) -> Iterator[Proxy]:
    process = subprocess.Popen(
        [sys.executable, "-m", "gym_objstore", *arguments(upstream, *options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    try:
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate(timeout=20)[1])
        yield Proxy(line.split("OpenAI base_url ")[1].split("/ng-rollout")[0], line, process)
    finally:
        process.kill()
        process.communicate()


def refusal(upstream: str, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, arguments(upstream, *options))
    return done.exit_code, done.stderr


@pytest.fixture
def upstream():
    return UpstreamServer()


@pytest.fixture
def place(tmp_path):
    return ["--url", f"file://{tmp_path}/store", "--spill-dir", str(tmp_path / "spill")]


@pytest.fixture
def store(tmp_path):
    return CaptureStore(f"file://{tmp_path}/store", "run-1", spill_dir=str(tmp_path / "spill"))


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_to_point_clients_captures_and_ends_cleanly(upstream, place, store, signal_number):
    with serving(upstream) as url, proxying(f"{url}/v1", *place, "--model-server-name", "policy") as proxy:
        assert proxy.line == (
            f"capturing {url} in {store.settings.store.url}, run run-1: OpenAI base_url "
            f"{proxy.url}/ng-rollout/<rollout id>/v1, Anthropic base_url {proxy.url}/ng-rollout/<rollout id>\n"
        )
        answer = httpx.post(f"{proxy.url}/ng-rollout/0-0{CHAT}", json=QUESTIONS[CHAT])
        assert answer.status_code == 200
        assert len(answer.headers.get_list("date")) == 1
        assert proxy.end(signal_number) == (0, "")
    (capture,) = store.read("0-0")
    assert capture["model_ref"]["name"] == "policy"


def test_a_head_without_end_is_refused(upstream, place):
    with serving(upstream) as url, proxying(url, *place) as proxy:
        answer = httpx.get(f"{proxy.url}/healthz", headers={"x-long": "a" * 1_000_000})
        assert answer.status_code == 400
        assert httpx.get(f"{proxy.url}/healthz").json() == {"alive": True}


def test_an_answer_under_way_is_finished_and_captured_after_the_signal(upstream, place, store):
    question = {**QUESTIONS[CHAT], "stream": True, "metadata": {"pause": 0.1}}
    with serving(upstream) as url, proxying(url, *place) as proxy:
        with httpx.stream("POST", f"{proxy.url}/ng-rollout/0-0{CHAT}", json=question) as answer:
            parts = answer.iter_raw()
            received = next(parts)
            proxy.process.send_signal(signal.SIGTERM)
            received += b"".join(parts)
        assert proxy.process.wait(timeout=40) == 0
    assert received.endswith(b"data: [DONE]\n\n")
    assert store.read("0-0")[0]["response_raw"].encode() == received


def test_calls_are_answered_and_kept_on_disk_while_the_store_is_away(upstream, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}"
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "GYM_OBJSTORE_RETRY_SECONDS": "0"}
    place = ["--url", "s3://none/x", "--endpoint", closed, "--region", "us-east-1"]
    options = [*place, "--spill-dir", str(tmp_path / "spill")]
    with serving(upstream) as url, proxying(url, *options, **keys) as proxy:
        answer = httpx.post(f"{proxy.url}/ng-rollout/0-0{CHAT}", json=QUESTIONS[CHAT], timeout=40)
        assert answer.status_code == 200
        figures = httpx.get(f"{proxy.url}/metrics").text
        code, errors = proxy.end()
    assert code == 0
    assert "the store does not answer yet" in errors
    assert 'gym_objstore_proxy_captures_total{outcome="spilled"} 1.0' in figures
    kept = [one.put.key for one in Spill(tmp_path / "spill", "s3://none/x").kept()]
    assert any(key.startswith("captures/run-1/0-0/records/") for key in kept), kept


def test_what_is_redacted_and_credentials_are_nowhere(upstream, place, store, tmp_path):
    question = {**QUESTIONS[CHAT], "messages": [{"role": "user", "content": f"ask ann@example.org, {CANARY}"}]}
    headers = {"authorization": f"Bearer {CANARY}", "cookie": CANARY}
    options = [*place, "--redact", "keys", "--redact", "emails"]
    with serving(upstream) as url, proxying(url, *options) as proxy:
        httpx.post(f"{proxy.url}/ng-rollout/0-0{CHAT}?key={CANARY}", json=question, headers=headers)
        _, errors = proxy.end()
    assert upstream.asked[0].header(b"authorization") == [f"Bearer {CANARY}".encode()]
    content = store.read("0-0")[0]["request"]["messages"][0]["content"]
    assert content == "ask [redacted e-mail], [redacted key]"
    texts = [path.read_bytes() for path in Path(tmp_path).rglob("*") if path.is_file()]
    assert len(texts) >= 2
    assert not any(CANARY.encode() in text or b"ann@example.org" in text for text in [*texts, errors.encode()])


def test_clients_of_a_guarded_proxy_present_its_key(upstream, place):
    options = [*place, "--host", "0.0.0.0", "--api-key-env", "PROXY_KEY"]
    with serving(upstream) as url, proxying(url, *options, PROXY_KEY="proxy-key") as proxy:
        there = proxy.url.replace("0.0.0.0", "127.0.0.1") + f"/ng-rollout/0-0{CHAT}"
        assert httpx.post(there, json=QUESTIONS[CHAT]).status_code == 401
        allowed = {"authorization": "Bearer proxy-key"}
        assert httpx.post(there, json=QUESTIONS[CHAT], headers=allowed).status_code == 200
        assert "proxy-key" not in proxy.line + proxy.end()[1]


def test_an_upstream_with_a_private_ca_needs_its_file(upstream, place, store, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    with (
        serving(upstream, ssl_certfile=str(tmp_path / "server.pem")) as url,
        proxying(url, *place, "--ca-file", str(tmp_path / "ca.pem")) as proxy,
    ):
        assert httpx.post(f"{proxy.url}/ng-rollout/0-0{CHAT}", json=QUESTIONS[CHAT]).status_code == 200
    assert len(store.read("0-0")) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "other machines could use the model server"),
        (["--host", "::"], "other machines could use the model server"),
        (["--host", "somewhere.example"], "other machines could use the model server"),
        (["--api-key-env", "NO_SUCH_KEY"], "holds no API key, variable=NO_SUCH_KEY"),
        (["--redact", "names"], "redaction rules must be some of keys, emails, media"),
        (["--ca-file", "missing.pem"], "the CA file cannot be read, ca_file=missing.pem"),
        (["--timeout", "0"], "silence_seconds must be more than 0"),
        (["--host", "192.0.2.1", "--open"], "cannot listen there, host=192.0.2.1"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_served(place, options, said):
    code, errors = refusal("http://127.0.0.1:1", *place, *options)
    assert code == 2
    assert said in errors


@pytest.mark.parametrize(
    "upstream", ["127.0.0.1:8000", "ftp://host", "http://", "http://host:port", "http://host/?a=1", "https://u:p@host"]
)
def test_an_upstream_that_is_no_server_is_refused(place, upstream):
    code, errors = refusal(upstream, *place)
    assert code == 2
    assert "upstream" in errors
    assert "u:p" not in errors


def test_a_bucket_that_does_not_exist_is_said_at_the_start(moto_server, prefix, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", moto_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", moto_server.secret_key)
    place = ["--url", f"s3://{prefix}/x", "--endpoint", moto_server.endpoint, "--region", moto_server.region]
    code, errors = refusal("http://127.0.0.1:1", *place, "--spill-dir", str(tmp_path))
    assert code == 2
    assert "the bucket does not exist" in errors
    assert prefix in errors


def test_what_is_missing_of_the_extra_is_named(place, monkeypatch):
    monkeypatch.setattr("gym_objstore.cli.proxy._PACKAGES", ("httpx", "no_such_package"))
    code, said = refusal("http://127.0.0.1:1", *place)
    assert code == 9
    assert "packages=no_such_package; pip install 'gym-objstore[proxy]'" in said
