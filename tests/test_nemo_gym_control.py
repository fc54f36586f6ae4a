# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The control routes beside nemo-gym's own: either client reads either server, and a Gym server learns to retire."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from nemo_gym.token_id_capture import control_routes as gym_routes
from nemo_gym.token_id_capture.staging import records as gym_records

import gym_objstore_nemo_gym as ours
from gym_objstore.control_client import RolloutControlClient
from gym_objstore.control_routes import control_app
from gym_objstore.errors import Conflict, Denied, Invalid, Retired
from gym_objstore.testing.staged_rollouts import ledger_row, staged_call
from gym_objstore.wire_ledger import RolloutManifest, RolloutRemoval
from gym_objstore_nemo_gym import control
from tests.gym_side import server_side
from tests.places import place_of
from tests.web_servers import serving

TOKEN = "correct-horse"
MANIFEST = "/training-token-capture/control/rollouts/r1/manifest"


@pytest.fixture
def ledger(request):
    return ours.CaptureLedger(**place_of("memory", request))


@pytest.fixture
def row():
    return ledger_row(staged_call("c1", rollout_id="r1"))


async def record(ledger, row):
    """Record a row the way Gym's server does: with Gym's own records."""
    theirs = gym_records.CallRecord.model_validate(row.model_dump(mode="json"))
    commit = SimpleNamespace(
        rollout_id="r1", record=theirs, staging_chain=(row.staging_key,), request_items=[], response_items=[]
    )
    await ledger.record(commit)


@pytest.fixture
async def gym_http():
    """Gym's one HTTP client of a process, for this test's loop."""
    from nemo_gym import server_utils

    session = server_utils.set_global_aiohttp_client(server_utils.GlobalAIOHTTPAsyncClientConfig())
    yield
    await session.close()
    server_utils._GLOBAL_AIOHTTP_CLIENT = None


@server_side
@pytest.mark.usefixtures("gym_http")
async def test_gyms_client_reads_our_manifest_route(ledger, row):
    await record(ledger, row)
    with serving(control_app(ledger, token=TOKEN)) as url:
        client = gym_routes.RolloutControlClient(url, auth_token=TOKEN, request_timeout_s=30)
        found = await client.manifest("r1")
        await ledger.retire(["r1"])
        with pytest.raises(RuntimeError, match="HTTP 410"):
            await client.manifest("r1")
    expected = gym_records.CallRecord.model_validate(row.model_dump(mode="json"))
    assert found == gym_records.RolloutManifest(rollout_id="r1", records=[expected])


async def test_our_client_reads_gyms_manifest_route(ledger, row):
    await record(ledger, row)
    app = FastAPI()
    gym_routes.install_rollout_control_routes(app, ledger, auth_token=TOKEN)
    with serving(app) as url:
        async with RolloutControlClient(url, TOKEN) as client:
            assert await client.manifest("r1") == RolloutManifest(rollout_id="r1", records=(row,))
            with pytest.raises(Invalid, match=r"nemo-gym 0\.7\.0 serves manifests only") as caught:
                await client.retire(["r1"])
        async with RolloutControlClient(url, "wrong") as client:
            with pytest.raises(Denied):
                await client.manifest("r1")
    assert caught.value.kind == "no_route"


async def test_our_routes_go_over_gyms_own(ledger, row):
    await record(ledger, row)
    app = FastAPI()
    gym_routes.install_rollout_control_routes(app, ledger, auth_token=TOKEN)
    ours.install_rollout_control_routes(app, ledger, auth_token=TOKEN)
    with serving(app) as url:
        async with RolloutControlClient(url, TOKEN) as client:
            assert await client.manifest("r1") == RolloutManifest(rollout_id="r1", records=(row,))
            assert await client.retire(["r1", "r2"]) == RolloutRemoval(removed=("r1",), absent=("r2",))
            with pytest.raises(Retired):
                await client.manifest("r1")
            assert await client.delete(["r1"]) == RolloutRemoval(removed=("r1",))


async def test_gyms_refusal_of_removals_is_asked(ledger):
    app = FastAPI()
    ours.install_rollout_control_routes(app, ledger, auth_token=TOKEN, refuse_removal=lambda: "a checkpoint is open")
    with serving(app) as url:
        async with RolloutControlClient(url, TOKEN) as client:
            with pytest.raises(Conflict, match="a checkpoint is open"):
                await client.retire(["r1"])


def test_an_empty_token_is_refused_as_gym_does(ledger):
    with pytest.raises(ValueError, match="non-empty"):
        ours.install_rollout_control_routes(FastAPI(), ledger, auth_token="")
    with pytest.raises(ValueError, match="non-empty"):
        ours.RolloutControlClient("http://host", auth_token="", request_timeout_s=1.0)


async def test_the_client_under_gyms_name_returns_gyms_manifest(ledger, row):
    await record(ledger, row)
    with serving(control_app(ledger, token=TOKEN)) as url:
        async with ours.RolloutControlClient(url, auth_token=TOKEN, request_timeout_s=30) as client:
            found = await client.manifest("r1")
            await client.retire(["r1"])
            with pytest.raises(Retired) as caught:
                await client.manifest("r1")
    assert type(found) is gym_records.RolloutManifest
    assert [one.model_dump(mode="json") for one in found.records] == [row.model_dump(mode="json")]
    assert caught.value.kind == "retired"


@server_side
async def test_a_real_gym_server_serves_retire_when_its_installer_is_ours(ledger, row, monkeypatch, request):
    from nemo_gym import base_responses_api_model as server

    monkeypatch.setenv("NEMO_GYM_TOKEN_CAPTURE_CONTROL_TOKEN", TOKEN)
    monkeypatch.setattr(server, "install_rollout_control_routes", ours.install_rollout_control_routes)
    config = {
        "enabled": True,
        "external_staging": True,
        "rebuild_response": False,
        "lineage_store": "gym_objstore_nemo_gym:CaptureLedger",
        "lineage_store_kwargs": place_of("memory", request),
    }
    app = FastAPI()
    server.install_model_call_capture(
        app, server.ModelCallCaptureConfig(), global_config_dict={"token_id_capture": config}
    )
    await record(ledger, row)
    with serving(app) as url:
        async with RolloutControlClient(url, TOKEN) as client:
            assert (await client.manifest("r1")).records == (row,)
            assert await client.retire(["r1"]) == RolloutRemoval(removed=("r1",))
            with pytest.raises(Retired):
                await client.manifest("r1")


def newer_gym(app, lineage_store, *, auth_token, **refusal):
    """What a later nemo-gym's installer does, as far as it shows here."""
    app.state.refusal = refusal
    router = APIRouter(prefix="/training-token-capture/control")

    @router.get("/rollouts/{rollout_id}/manifest")
    async def manifest(rollout_id: str) -> str:
        return f"newer {auth_token}"

    app.include_router(router)


@pytest.mark.parametrize("refusal", [{}, {"refuse_removal": asyncio.sleep}])
def test_a_later_gym_installs_its_own_routes(ledger, monkeypatch, refusal):
    newer = {"MAX_LEDGER_BATCH": 4096, "install_rollout_control_routes": newer_gym}
    for lookup in ("optional_symbol", "symbol"):
        monkeypatch.setattr(control, lookup, lambda module, name: {"control_routes": newer}[module][name])
    app = FastAPI()
    ours.install_rollout_control_routes(app, ledger, auth_token=TOKEN, **refusal)
    with serving(app) as url:
        assert httpx.get(url + MANIFEST).json() == "newer correct-horse"
    assert app.state.refusal == refusal
