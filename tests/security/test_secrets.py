# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Secrets are used by everything, and are then in nothing that anything wrote, showed, measured or pickled.

Parts of it have tests of their own: settings (``test_store_options``), refused requests with the variables of their
tracebacks (``test_store_errors``), headers of proxied calls (``test_proxy``, ``test_cli_proxy``), the control client
(``test_control_client``), what redaction removes of bodies (``test_redaction_end_to_end``).
"""

from __future__ import annotations

import asyncio
import base64
import gc
import logging
import pickle
import traceback
from contextlib import ExitStack
from functools import partial
from urllib.parse import quote

import httpx
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest
from typer.testing import CliRunner

from gym_objstore import (
    CaptureLedger,
    LineageResolver,
    StagingSink,
    StagingSource,
    TokenSink,
    TokenSource,
    TrainerClient,
)
from gym_objstore.capture_store import CaptureStore
from gym_objstore.cli.app import app
from gym_objstore.codec import FORMAT, unpack
from gym_objstore.control_client import RolloutControlClient
from gym_objstore.control_routes import control_app
from gym_objstore.errors import ObjstoreError
from gym_objstore.observing import observe
from gym_objstore.observing_logging import LogLines
from gym_objstore.observing_otel import OtelTelemetry
from gym_objstore.observing_prometheus import PrometheusMetrics
from gym_objstore.proxy import proxy_app
from gym_objstore.proxy_upstream import Upstream
from gym_objstore.settings import Settings
from gym_objstore.store.opening import open_store
from gym_objstore.store.options import StoreOptions
from gym_objstore.testing.servers import s3_client
from gym_objstore.testing.staged_rollouts import staged_call
from tests.entries import make_entry
from tests.server_pool import BUCKET
from tests.upstream import QUESTIONS, UpstreamServer
from tests.web_servers import serving

SECRET, SESSION = "canary-secret-key-7Jx2/+Qe", "canary-session-token-pW9z=="
CONTROL, BEARER, GUARD = "canary-control-token-4f1d", "canary-bearer-9a3c", "canary-guard-key-c0de"
PASSWORD = "canary-password-e7b1"
CANARIES = (SECRET, SESSION, CONTROL, BEARER, GUARD, PASSWORD)
ACCESS = "AKIACANARYACCESSKEY0"
CHAT = "/v1/chat/completions"
BACKENDS = ("obstore", "boto", "fsspec")
LIBRARIES = ("botocore", "boto3", "urllib3", "aiobotocore", "s3fs", "fsspec", "httpx", "httpcore", "asyncio", "uvicorn")


def spellings(secret: str) -> list[str]:
    coded = base64.b64encode(secret.encode()).decode().rstrip("=")[:-1]
    return [secret, quote(secret, safe=""), coded]


def require_clean(where: str, text: str | bytes, allowed: tuple[str, ...] = ()) -> None:
    shown = text if isinstance(text, str) else text.decode("utf-8", "replace")
    found = [one for one in CANARIES if any(spelt in shown for spelt in spellings(one))]
    assert not found, f"{found} in {where}"
    assert ACCESS not in shown or where in allowed, where


def shown_error(error: BaseException | None) -> str:
    """Return everything that anybody shows of an error, with the variables of every frame but the tests' own."""
    shown = []
    while error is not None:
        shown += [repr(error), str(error), *getattr(error, "__notes__", ())]
        frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), capture_locals=True)
        shown += [f"{frame.line}{frame.locals}" for frame in frames if "/tests/" not in frame.filename]
        error = error.__cause__ or error.__context__
    return "\n".join(shown)


class Watched:
    """Every hook there is, with what it would export."""

    def __init__(self, stack: ExitStack) -> None:
        self._registry, self._reader, self._spans = CollectorRegistry(), InMemoryMetricReader(), InMemorySpanExporter()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        for hook in (LogLines(), PrometheusMetrics(self._registry), OtelTelemetry(tracers=tracers, meters=meters)):
            stack.callback(observe(hook))

    @property
    def exported(self) -> str:
        spans = [span.to_json() for span in self._spans.get_finished_spans()]
        return "\n".join([generate_latest(self._registry).decode(), self._reader.get_metrics_data().to_json(), *spans])


@pytest.fixture
def watched():
    with ExitStack() as stack:
        yield Watched(stack)


@pytest.fixture(autouse=True)
def every_log(caplog):
    caplog.set_level(logging.DEBUG)
    for name in LIBRARIES:  # what clients say of their requests when they are asked for all is theirs,
        caplog.set_level(logging.INFO, name)
    caplog.set_level(logging.WARNING, "httpx")  # as are the query strings that it says at any time
    caplog.handler.setLevel(logging.NOTSET)


def of_log(caplog):
    for record in caplog.records:
        yield logging.Formatter().format(record)
        yield repr(vars(record))


def place(server, prefix, tmp_path, **options):
    given = {"secret_access_key": SECRET, "session_token": SESSION, "access_key_id": ACCESS}
    where = {"endpoint": server.endpoint, "region": server.region, "spill_dir": str(tmp_path / "spill")}
    return {"url": f"s3://{BUCKET}/{prefix}", "run_id": "run-1", **where, **given, "retry_seconds": 0, **options}


async def work(options) -> list[BaseException]:
    """Do what every component does; return what failed."""
    sink, source, captured = TokenSink(**options), TokenSource(**options), CaptureStore(**options)
    ledger, resolver, trainer = CaptureLedger(**options), LineageResolver(**options), TrainerClient(**options)
    staging, rows = StagingSink(**options), StagingSource(**options)
    steps = [
        lambda: sink.begin_call("r1", "c1"),
        lambda: sink.put(make_entry("r1", "c1")),
        lambda: sink.mark_incomplete("r2", model_call_id="c1"),
        lambda: captured.record_async("r1", {"model_call_id": "c1", "completed_at": 1.0}),
        lambda: source.freeze("r1"),
        lambda: resolver.resolve("r1", [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]),
        lambda: ledger.manifest("r1"),
        lambda: rows.fetch_async(["no/key"]),
        lambda: ledger.retire(["r9"]),
        lambda: trainer.read(["r1"]),
    ]
    failed = []
    for step in steps:
        try:
            await step()
        except ObjstoreError as error:
            failed.append(error)
    result = staging.stage(staged_call("c1"), attachments={"a": b"x"})
    require_clean("a staging result", repr(result))
    parts = (sink, source, captured, ledger, resolver, trainer, staging, rows)
    for one in parts:
        for text in (repr(one), repr(one.settings), repr(one.settings.store.describe()), repr(vars(one.connection))):
            require_clean("a repr", text, ("a repr",))
        require_clean("a pickle", pickle.dumps(one))
        require_clean("a pickle", pickle.dumps(one.settings))
    require_every_object_clean()
    for one in parts:
        await one.close()
        one.close_now()
    return failed


def require_every_object_clean() -> None:
    """Look at everything of ours that lives in this process."""
    for one in gc.get_objects():
        if str(type(one).__module__).startswith("gym_objstore") and not isinstance(one, type):
            require_clean("an object", repr(one), ("an object",))


def require_nothing_was_written(server, prefix, tmp_path, caplog, watched, capfd) -> int:
    """Search bucket, disk, logs, metrics and streams; return how many objects and files there were."""
    client, looked_at = s3_client(server), 0
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix):
        for found in page.get("Contents", ()):
            answer = client.get_object(Bucket=BUCKET, Key=found["Key"])
            body = answer["Body"].read()
            whole = unpack(body, FORMAT) if found["Key"].endswith(f".{FORMAT}") else body
            for text in (found["Key"], body, whole, repr(answer["Metadata"])):
                require_clean("the bucket", text)
            looked_at += 1
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        require_clean(str(path), path.read_bytes())
        looked_at += 1
    for text in of_log(caplog):
        require_clean(f"a log: {text[:150]}", text)
    require_clean("metrics and traces", watched.exported)
    assert "gym_objstore" in watched.exported
    for text in capfd.readouterr():
        require_clean("a stream", text)
    return looked_at


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_keys_of_a_store_are_in_nothing(moto_server, prefix, tmp_path, caplog, watched, capfd, backend):
    assert await work(place(moto_server, prefix, tmp_path, backend=backend))
    assert require_nothing_was_written(moto_server, prefix, tmp_path, caplog, watched, capfd) >= 5


FAULTS = {
    "nobody answers": {"endpoint": "http://127.0.0.1:1"},
    "no such bucket": {"url": "s3://there-is-no-such-bucket-here/x"},
    "no certificates": {"ca_bundle": "/nonexistent/ca.pem"},
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_keys_are_in_no_error(moto_server, prefix, tmp_path, caplog, watched, capfd, backend, fault):
    failed = await work(place(moto_server, prefix, tmp_path, backend=backend, **FAULTS[fault]))
    assert len(failed) >= 4
    for error in failed:
        require_clean("an error", shown_error(error), ("an error",))
        require_clean("a pickled error", pickle.dumps(error))
    require_nothing_was_written(moto_server, prefix, tmp_path, caplog, watched, capfd)


def call(*arguments, **environment):
    ended = CliRunner(env=environment).invoke(app, list(arguments))
    return ended.exit_code, ended.stdout, ended.stderr, repr(ended.exception), str(ended.exception)


COMMANDS = {
    "ls": ("ls",),
    "check": ("check", "--run-id", "run-1"),
    "doctor": ("doctor", "--run-id", "run-1"),
    "doctor --json": ("doctor", "--json", "--identity", "trainer"),
    "du": ("du", "--json"),
    "show": ("show", "r1", "--run-id", "run-1"),
    "spill": ("spill", "--replay"),
    "retire": ("retire", "r1", "--run-id", "run-1"),
}


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_keys_are_in_nothing_that_a_command_says(moto_server, prefix, tmp_path, caplog, command, there):
    variables = {
        "AWS_ACCESS_KEY_ID": ACCESS,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": SESSION,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": moto_server.endpoint if there else "http://127.0.0.1:1",
        "GYM_OBJSTORE_RETRY_SECONDS": "0",
        "GYM_OBJSTORE_SPILL_DIR": str(tmp_path),
    }
    code, *said = call(*COMMANDS[command], "--url", f"s3://{BUCKET}/{prefix}", **variables)
    assert code in range(10)
    shows_identity = ("doctor", "doctor --json")  # which key is used is what a doctor is asked
    for text in (*said, *of_log(caplog)):
        require_clean(command, text, shows_identity)


WITH_PASSWORDS = {
    "a store's url": ("ls", "--url", f"s3://user:{PASSWORD}@bucket/x"),
    "a file's url": ("ls", "--url", f"file://user:{PASSWORD}@host/x"),
    "a foreign url": ("ls", "--url", f"sftp://user:{PASSWORD}@host/x"),
    "an endpoint": ("ls", "--url", "s3://bucket/x", "--endpoint", f"http://user:{PASSWORD}@host"),
    "an upstream": ("proxy", "--url", "memory://x", "--run-id", "r", "--upstream", f"http://user:{PASSWORD}@host"),
    "a copy's target": ("cp", f"s3://user:{PASSWORD}@bucket/x", f"memory://user:{PASSWORD}@x", "--run-id", "r"),
}


@pytest.mark.parametrize("where", WITH_PASSWORDS)
def test_a_password_in_a_url_is_refused_and_not_repeated(where, caplog):
    code, *said = call(*WITH_PASSWORDS[where])
    assert code == 2
    for text in (*said, *of_log(caplog)):
        require_clean(where, text)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_password_of_a_web_proxy_is_in_no_error(prefix, tmp_path, caplog, monkeypatch, backend):
    """It cannot be an option; where the environment has it, the proxy that does not answer is named without it."""
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://user:{PASSWORD}@127.0.0.1:1")
    keys = {"access_key_id": ACCESS, "secret_access_key": SECRET, "region": "us-east-1", "retry_seconds": 0}
    store = open_store(f"s3://bucket/{prefix}", endpoint="http://store.invalid", backend=backend, **keys)
    for ask in (lambda: store.get("a/b"), lambda: list(store.scan("a/"))):
        with pytest.raises(ObjstoreError) as caught:
            ask()
        for text in (str(caught.value), repr(caught.value), *of_log(caplog)):
            require_clean("an error", text)
    store.close()


def test_options_and_settings_show_no_secret():
    keys = {"access_key_id": ACCESS, "secret_access_key": SECRET, "session_token": SESSION}
    settings = Settings.of("s3://bucket/x", "run-1", **keys)
    for text in (repr(settings), repr(settings.store.describe()), repr(StoreOptions.of("s3://bucket/x", **keys))):
        require_clean("settings", text, ("settings",))
    require_clean("a pickle", pickle.dumps(settings))


quietly = partial(serving, access_log=False)  # as the proxy's command has it: the log would hold query strings


async def test_tokens_of_routes_and_calls_are_in_nothing(moto_server, prefix, tmp_path, caplog, watched, capfd):
    """Control routes and a guarded proxy, each asked with the right secret and with a wrong one."""
    options = place(moto_server, prefix, tmp_path)
    ledger, captured = CaptureLedger(**options), CaptureStore(**options)
    with quietly(UpstreamServer()) as upstream, quietly(control_app(ledger, token=CONTROL)) as control:
        proxied = proxy_app(upstream, captured, api_key=GUARD)
        for token in (CONTROL, f"{CONTROL}-wrong"):
            client = RolloutControlClient(control, token, retry_seconds=0)
            for ask in (lambda at=client: at.manifest("r1"), lambda at=client: at.retire(["r2"])):
                try:
                    await ask()
                except ObjstoreError as error:
                    require_clean("an error", shown_error(error), ("an error",))
            require_clean("a client", repr(client))
            await client.close()
        with quietly(proxied) as url:
            for guard in (GUARD, f"{GUARD}-wrong"):
                headers = {"proxy-authorization": f"Bearer {guard}", "authorization": f"Bearer {BEARER}"}
                headers |= {"x-api-key": BEARER, "cookie": f"session={BEARER}"}
                for path in (f"/ng-rollout/r1{CHAT}?key={BEARER}", CHAT, f"/ng-rollout/r1{CHAT}/nothing"):
                    answer = await asyncio.to_thread(httpx.post, f"{url}{path}", headers=headers, json=QUESTIONS[CHAT])
                    require_clean("an answer", f"{answer.headers}{answer.text}")
            figures = await asyncio.to_thread(httpx.get, f"{url}/metrics")
            require_clean("metrics", figures.text)
        broken = proxy_app(Upstream("http://127.0.0.1:1"), captured, api_key=GUARD)
        with quietly(broken) as url:
            right = headers | {"x-api-key": GUARD}
            path = f"/ng-rollout/r1{CHAT}?key={BEARER}"
            answer = await asyncio.to_thread(httpx.post, f"{url}{path}", headers=right, json={})
            assert answer.status_code == 502
            require_clean("an answer", answer.text)
    require_every_object_clean()
    for one in (ledger, captured):
        await one.close()
    assert require_nothing_was_written(moto_server, prefix, tmp_path, caplog, watched, capfd) >= 2
