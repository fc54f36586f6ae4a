# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Capture the calls of any OpenAI-compatible server, without Gym: serve the proxy, ask, read what was captured.

Here the proxy runs in this process; a deployment runs it beside the model server:
``gym-objstore proxy --upstream http://127.0.0.1:8000 --url s3://bucket/rl --run-id run-7``

Run: ``python examples/capture_openai_server.py --upstream http://127.0.0.1:8000 --model my-model
--url file:///shared/rl --run-id run-7 --rollout-id 0-0``
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket

import uvicorn
from openai import AsyncOpenAI

from gym_objstore import CaptureStore, aggregate_model_call_metrics, read_model_call_records
from gym_objstore.correlation import openai_base_url
from gym_objstore.proxy import proxy_app


async def ask(proxy: str, model: str, rollout_id: str) -> None:
    """Make three calls of one rollout, the last one streaming."""
    async with AsyncOpenAI(
        base_url=openai_base_url(proxy, rollout_id), api_key=os.environ.get("OPENAI_API_KEY", "none")
    ) as client:
        await client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Is it warm?"}])
        await client.responses.create(model=model, input="Is it warm in Paris?")
        async with client.responses.stream(model=model, input="Are you sure?") as stream:
            await stream.until_done()


async def capture(upstream: str, store: CaptureStore, model: str, rollout_id: str) -> None:
    """Serve the proxy on a free port while the calls are made."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = uvicorn.Server(uvicorn.Config(proxy_app(upstream, store), log_level="warning"))
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        try:
            await ask(f"http://127.0.0.1:{bound.getsockname()[1]}", model, rollout_id)
        finally:
            server.should_exit = True
            await serving


def main() -> None:
    """Capture a rollout and print its calls and totals."""
    parser = argparse.ArgumentParser()
    for name in ("upstream", "model", "url", "run-id", "rollout-id"):
        parser.add_argument(f"--{name}", required=True)
    asked = parser.parse_args()

    store = CaptureStore(asked.url, run_id=asked.run_id)
    asyncio.run(capture(asked.upstream, store, asked.model, asked.rollout_id))
    calls = read_model_call_records(store, asked.rollout_id)
    totals = aggregate_model_call_metrics(store, asked.rollout_id)
    for call in calls:
        print(call.call_index, call.dialect, call.status_code, call.tokens_in, call.tokens_out)
    print(totals)


if __name__ == "__main__":
    main()
