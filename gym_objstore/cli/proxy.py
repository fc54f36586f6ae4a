# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``proxy``: capture in front of any OpenAI- or Anthropic-compatible server."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gym_objstore.cli.options import Run, on_a_store, require_run
from gym_objstore.cli.printing import say
from gym_objstore.errors import Invalid, Unavailable, Unusable
from gym_objstore.settings import SPILL_VARIABLE
from gym_objstore.store.options import StoreOptions

if TYPE_CHECKING:
    from gym_objstore.capture_store import CaptureStore
    from gym_objstore.control_routes import Asgi
    from gym_objstore.redaction import Redaction

GRACE_SECONDS = 15
"""How long answers that are under way may take after a signal. With the drain after it, less than the 30 s after
which Kubernetes kills."""

_CLIENTS_KEEP_SECONDS = 75
"""Longer than clients and load balancers keep an idle connection, so that none is closed while it is used again."""

_PACKAGES = ("httptools", "httpx", "prometheus_client", "uvicorn")

Upstream = Annotated[str, typer.Option("--upstream", help="Root URL of the model server.", show_default=False)]
CaFile = Annotated[str | None, typer.Option("--ca-file", help="Trust these certificates, not the system's.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Longest silence of the upstream, in seconds.")]
Host = Annotated[str, typer.Option("--host", help="Address to listen on.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
ApiKeyEnv = Annotated[
    str | None,
    typer.Option("--api-key-env", metavar="NAME", help="Environment variable with the key that clients must present."),
]
Open = Annotated[bool, typer.Option("--open", help="Serve other machines without a key.")]
Redact = Annotated[
    list[str] | None,
    typer.Option("--redact", help="Take keys, emails or media out of captures. Repeatable.", show_default=False),
]
Name = Annotated[str | None, typer.Option("--model-server-name", help="Name of the model server in captures.")]
SpillDir = Annotated[str | None, typer.Option("--spill-dir", envvar=SPILL_VARIABLE, help="The local folder.")]


@on_a_store
def proxy(
    place: StoreOptions,
    upstream: Upstream,
    run_id: Run = None,
    host: Host = "127.0.0.1",
    port: Port = 8400,
    ca_file: CaFile = None,
    timeout: Timeout = 600.0,
    redact: Redact = None,
    model_server_name: Name = None,
    api_key_env: ApiKeyEnv = None,
    open_to_all: Open = False,  # noqa: FBT002
    spill_dir: SpillDir = None,
) -> None:
    """Relay model calls to a server and capture those below /ng-rollout/<rollout id>. Ends on SIGTERM or Ctrl-C."""
    import asyncio

    _require_packages()
    from gym_objstore.proxy import proxy_app
    from gym_objstore.proxy_upstream import Upstream as Settings

    api_key = _api_key(api_key_env)
    _require_guarded(host, guarded=api_key is not None or open_to_all)
    to = Settings(upstream, ca_file=ca_file, silence_seconds=timeout)
    store = _store(place, require_run(run_id), spill_dir, _redaction(redact))
    app = proxy_app(to, store, model_server_name=model_server_name, api_key=api_key)
    with _listening(host, port) as bound:
        asyncio.run(_serve(app, store, bound, to.root.geturl()))


def _require_packages() -> None:
    """Raise ``Unusable`` naming what is not installed of the extra."""
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        raise Unusable(
            f"the proxy needs packages that are not installed, packages={', '.join(missing)}",
            kind="missing_extra",
            hint="pip install 'gym-objstore[proxy]'",
        )


async def _serve(app: Asgi, store: CaptureStore, bound: socket.socket, upstream: str) -> None:
    import uvicorn

    from gym_objstore.proxy_heads import BoundedHeads

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    await _require_usable(store)
    config = uvicorn.Config(
        app,
        http=BoundedHeads,
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_CLIENTS_KEEP_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    # Once it has ended, uvicorn repeats the signal that ended it. To us that is a success.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: None)
    say(_where(bound, upstream, store))
    await uvicorn.Server(config).serve(sockets=[bound])
    await store.close()


async def _require_usable(store: CaptureStore) -> None:
    """Raise for a store that will not take captures; one that does not answer now may do so later."""
    import asyncio

    from gym_objstore.proxy import PROBE_SECONDS, ask

    try:
        await asyncio.wait_for(ask(store), PROBE_SECONDS)
    except (Unavailable, TimeoutError) as error:
        logging.getLogger("gym_objstore").warning("the store does not answer yet, store=%s, error=%s", store, error)


def _where(bound: socket.socket, upstream: str, store: CaptureStore) -> str:
    host, port = bound.getsockname()[:2]
    root = f"http://{f'[{host}]' if ':' in host else host}:{port}/ng-rollout/<rollout id>"
    return (
        f"capturing {upstream} in {store.settings.store.url}, run {store.settings.run_id}: "
        f"OpenAI base_url {root}/v1, Anthropic base_url {root}"
    )


def _store(place: StoreOptions, run_id: str, spill_dir: str | None, redact: Redaction | None) -> CaptureStore:
    from gym_objstore.capture_store import CaptureStore

    said = {name: getattr(place, name) for name in ("endpoint", "region", "profile", "backend")}
    options: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    return CaptureStore(place.url, run_id, redact=redact, spill_dir=spill_dir, **options)


def _redaction(rules: list[str] | None) -> Redaction | None:
    from gym_objstore.redaction import redaction

    return redaction(*rules) if rules else None


def _api_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not (api_key := os.environ.get(variable)):
        raise Invalid(f"the environment variable holds no API key, variable={variable}", kind="bad_api_key")
    return api_key


def _require_guarded(host: str, *, guarded: bool) -> None:
    """Raise ``Invalid`` for an address that other machines reach, unless clients need a key or none is wanted."""
    try:
        private = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        private = False
    if not private and not guarded:
        raise Invalid(
            f"other machines could use the model server through this address, host={host}",
            kind="open_proxy",
            hint="pass --api-key-env NAME for a key that clients must present, or --open",
        )


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise Invalid(f"cannot listen there, host={host}, port={port}: {error}", kind="bad_address") from error
